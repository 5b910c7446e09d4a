"""How much the long tests try: with PGTAIL_TEST_ALL=1 everything, else a sample that takes seconds."""

from __future__ import annotations

import os
from typing import Final

ALL: Final = os.environ.get("PGTAIL_TEST_ALL", "") not in ("", "0")


def every(step: int) -> int:
    """The step through what a test could try: 1 where it shall try all."""
    return 1 if ALL else step
