"""Count rows and bytes by time of commit and table, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from operator import add, sub
from typing import Final, NamedTuple

_SECOND: Final = 1_000_000
WIDTHS: Final = (
    *(_SECOND // 1000, _SECOND // 100, _SECOND // 10, _SECOND, 10 * _SECOND, 60 * _SECOND, 600 * _SECOND),
    *(3600 * _SECOND, 6 * 3600 * _SECOND, 86_400 * _SECOND, 10 * 86_400 * _SECOND, 100 * 86_400 * _SECOND),
    *(1000 * 86_400 * _SECOND, 100_000 * 86_400 * _SECOND),
)
"""The possible widths of a bin in microseconds, each a multiple of the one before."""
_MAX_BINS: Final = 1024
_MAX_CELLS: Final = 65_536
"""Pairs of a bin and a table that are counted at a time."""
_STEPS: Final = (1, 2, 3, 5, 6, 10, 12, 15, 20, 30, 50, 100, 200, 500, 1000, 2000, 5000)
"""How many bins may be merged into one step."""


class Counts(NamedTuple):
    """Row changes by operation, and their bytes."""

    inserts: int
    updates: int
    deletes: int
    bytes: int

    @property
    def rows(self) -> int:
        return self.inserts + self.updates + self.deletes

    def plus(self, more: tuple[int, int, int, int]) -> Counts:
        """The sum with `more`."""
        return Counts(*map(add, self, more))

    def since(self, before: Counts) -> Counts:
        """The difference to `before`."""
        return Counts(*map(sub, self, before))


NOTHING: Final = Counts(0, 0, 0, 0)


class Series(NamedTuple):
    """Counts by table in equal steps of `width` microseconds from `start` on (microseconds since 2000)."""

    start: int
    width: int
    steps: list[dict[int, Counts]]

    @property
    def rows(self) -> list[int]:
        """The rows of all tables."""
        return [sum([counts.rows for counts in step.values()]) for step in self.steps]

    @property
    def bytes(self) -> list[int]:
        """Their bytes."""
        return [sum([counts.bytes for counts in step.values()]) for step in self.steps]


class Rate:
    """Counts by time of commit (microseconds since 2000) and number of the table.

    Bins of time are merged when there are too many, or too many tables in them.
    """

    def __init__(self) -> None:
        self._level = 0
        self._bins: dict[int, dict[int, Counts]] = {}
        self._cells = 0

    def bounds(self, time: int) -> tuple[int, int]:
        """The bin of a time, a half-open range, as far as it is one of int64."""
        width = WIDTHS[self._level]
        start = time // width * width
        return max(start, -1 << 63), min(start + width, (1 << 63) - 1)

    def add(self, time: int, tables: Mapping[int, Counts]) -> None:
        """Count what was committed at a time."""
        cells = self._bins.setdefault(time // WIDTHS[self._level], {})
        self._cells += _add_all(cells, tables)
        while self._is_full and self._level + 1 < len(WIDTHS):
            self._bins = _grouped(self._bins, WIDTHS[self._level + 1] // WIDTHS[self._level])
            self._cells = sum(map(len, self._bins.values()))
            self._level += 1

    @property
    def _is_full(self) -> bool:
        return len(self._bins) > _MAX_BINS or (self._cells > _MAX_CELLS and len(self._bins) > 1)

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


def _add_all(cells: dict[int, Counts], tables: Mapping[int, Counts]) -> int:
    """Add the counts of tables; returns how many tables are new."""
    before = len(cells)
    for number, counts in tables.items():
        known = cells.get(number)
        cells[number] = counts if known is None else known.plus(counts)
    return len(cells) - before


def _grouped(bins: Mapping[int, dict[int, Counts]], by: int) -> dict[int, dict[int, Counts]]:
    """The same counts in bins `by` times as wide."""
    wider: dict[int, dict[int, Counts]] = {}
    for place, cells in bins.items():
        _add_all(wider.setdefault(place // by, {}), cells)
    return wider


def _series(bins: Mapping[int, dict[int, Counts]], width: int) -> Series:
    first, last = min(bins), max(bins)
    return Series(first * width, width, [bins.get(place, {}) for place in range(first, last + 1)])
