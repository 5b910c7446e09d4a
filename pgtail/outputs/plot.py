"""Floor 4, numbers as blocks on a terminal: bars that lie and bars that stand; knows no colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_LYING: Final = " ▏▎▍▌▋▊▉█"
_STANDING: Final = " ▁▂▃▄▅▆▇█"


def bar(value: float, width: int) -> str:
    """A lying bar of a share (0 to 1) of so many cells; nothing is shown for 0 alone."""
    eighths = min(round(value * width * 8), width * 8)
    full, rest = divmod(max(eighths, 1) if value > 0 else 0, 8)
    return _LYING[8] * full + (_LYING[rest] if rest else "")


def plot(values: Sequence[int], height: int) -> list[str]:
    """Standing bars, one cell wide, in so many lines, the highest first; the highest value fills them all."""
    most = max(values, default=0)
    eighths = [0 if not value else max(1, value * height * 8 // most) for value in values]
    return [
        "".join([_STANDING[min(8, max(0, one - 8 * below))] for one in eighths]).rstrip()
        for below in reversed(range(height))
    ]
