"""How much the long tests try: with PGTAIL_TEST_ALL=1 everything, else a sample that takes seconds; random seeds."""

from __future__ import annotations

import os
import random
from typing import Final

SEED: Final = "PGTAIL_TEST_SEED"
"""The environment variable that has the seed of random inputs."""
ALL: Final = os.environ.get("PGTAIL_TEST_ALL", "") not in ("", "0")


def every(step: int) -> int:
    """The step through what a test could try: 1 where it shall try all."""
    return 1 if ALL else step


def new_seed() -> int:
    """The seed in SEED, or any other; it is printed, and pytest shows it if the test fails."""
    seed = int(os.environ.get(SEED) or random.randrange(1 << 30))
    print("seed", seed)
    return seed
