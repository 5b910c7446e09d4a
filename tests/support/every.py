"""How much a run tries: with PGTAIL_TEST_ALL=1 everything, else a sample that takes minutes; random seeds."""

from __future__ import annotations

import os
import random
import zlib
from typing import Final

SEED: Final = "PGTAIL_TEST_SEED"
"""The environment variable that has the seed of random inputs."""
ALL: Final = os.environ.get("PGTAIL_TEST_ALL", "") not in ("", "0")
_PART: Final = int(os.environ.get("PGTAIL_TEST_PART") or 1)
"""The number of the run among those that together have all tests."""
NAMED: Final = "PGTAIL_TEST_NAMED"
"""The environment variable that is set if the command line names tests: each of them runs then."""


def is_due(test: str, runs: int) -> bool:
    """Whether a test that belongs to one of so many runs of the whole suite belongs to this one."""
    return ALL or NAMED in os.environ or (zlib.crc32(test.encode()) + _PART) % runs == 0


def every(step: int) -> int:
    """The step through what a test could try: 1 where it shall try all."""
    return 1 if ALL else step


def new_seed() -> int:
    """The seed in SEED, or any other; it is printed, and pytest shows it if the test fails."""
    seed = int(os.environ.get(SEED) or random.randrange(1 << 30))
    print("seed", seed)
    return seed
