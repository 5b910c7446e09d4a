"""Count rows and bytes by time of commit, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

_SECOND: Final = 1_000_000
WIDTHS: Final = (
    *(_SECOND // 1000, _SECOND // 100, _SECOND // 10, _SECOND, 10 * _SECOND, 60 * _SECOND, 600 * _SECOND),
    *(3600 * _SECOND, 6 * 3600 * _SECOND, 86_400 * _SECOND, 10 * 86_400 * _SECOND, 100 * 86_400 * _SECOND),
    *(1000 * 86_400 * _SECOND, 100_000 * 86_400 * _SECOND),
)
"""The possible widths of a bin in microseconds, each a multiple of the one before."""
_MAX_BINS: Final = 4096
_STEPS: Final = (1, 2, 3, 5, 6, 10, 12, 15, 20, 30, 50, 100, 200, 500, 1000, 2000, 5000)
"""How many bins may be merged into one step."""


class Series(NamedTuple):
    """Counts in equal steps of `width` microseconds from `start` on (microseconds since 2000)."""

    start: int
    width: int
    rows: list[int]
    bytes: list[int]


class Rate:
    """Counts by time of commit (microseconds since 2000), in bins that are merged when there are too many."""

    def __init__(self) -> None:
        self._level = 0
        self._bins: dict[int, tuple[int, int]] = {}

    def add_all(self, commits: Iterable[tuple[int, int, int]]) -> None:
        """Count commits, each with its time, rows and bytes."""
        bins, width = self._bins, WIDTHS[self._level]
        for time, rows, size in commits:
            place = time // width
            before = bins.get(place)
            if before is not None:
                bins[place] = before[0] + rows, before[1] + size
                continue
            bins[place] = rows, size
            if len(bins) > _MAX_BINS:
                while len(self._bins) > _MAX_BINS and self._level + 1 < len(WIDTHS):
                    self._bins = _grouped(self._bins, WIDTHS[self._level + 1] // WIDTHS[self._level])
                    self._level += 1
                bins, width = self._bins, WIDTHS[self._level]

    def series(self, max_steps: int) -> Series | None:
        """All counts in at most `max_steps` steps of a round width; None if nothing was counted."""
        if not self._bins:
            return None
        bins, level = self._bins, self._level
        while True:
            first, last = min(bins), max(bins)
            for step in _STEPS:
                if last // step - first // step < max_steps:
                    return _series(_grouped(bins, step), WIDTHS[level] * step)
            level += 1
            if level == len(WIDTHS):  # times over the whole range of PostgreSQL's timestamps
                return _series(_grouped(bins, last - first + 1), WIDTHS[-1] * (last - first + 1))
            bins = _grouped(bins, WIDTHS[level] // WIDTHS[level - 1])


def _grouped(bins: dict[int, tuple[int, int]], by: int) -> dict[int, tuple[int, int]]:
    """The same counts in bins `by` times as wide."""
    found: dict[int, tuple[int, int]] = {}
    for place, (rows, size) in bins.items():
        before = found.get(place // by, (0, 0))
        found[place // by] = (before[0] + rows, before[1] + size)
    return found


def _series(bins: dict[int, tuple[int, int]], width: int) -> Series:
    first, last = min(bins), max(bins)
    values = [bins.get(place, (0, 0)) for place in range(first, last + 1)]
    return Series(first * width, width, [rows for rows, _ in values], [size for _, size in values])
