"""Count transactions by rows, bytes and duration, and keep the largest ones."""

from __future__ import annotations

import bisect
import heapq
from collections import Counter
from typing import Final

from pgtail.changes.events import Transaction
from pgtail.records import Record

LARGEST_KEPT: Final = 10
"""How many of the largest transactions are kept."""
_MAX_COMMITS: Final = 4096
_DIGITS: Final = 5
"""Leading binary digits kept of a number: percentiles are too high by at most a sixteenth."""


class Histogram:
    """Non-negative numbers, counted by their leading digits: `count`, `total` and `maximum` are exact."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = self.total = self.maximum = 0

    def add(self, number: int) -> None:
        """Count a number."""
        self.count += 1
        self.total += number
        self.maximum = max(self.maximum, number)
        drop = max(0, number.bit_length() - _DIGITS)
        self._buckets[number >> drop << drop | (1 << drop) - 1] += 1

    def percentile(self, percent: int) -> int:
        """The smallest number that `percent` of all do not exceed, or up to a sixteenth more."""
        left = -(-self.count * percent // 100)
        for number in sorted(self._buckets):
            left -= self._buckets[number]
            if left <= 0:
                return min(number, self.maximum)
        return 0


class TransactionSize(Record, frozen=False):
    """One transaction: its rows and bytes that passed the filter.

    `at_least` and `at_most` bound the time from its first change to its commit, in microseconds, as derived from other
    commits; None if unknown.
    """

    transaction: Transaction
    rows: int
    bytes: int
    at_least: int | None
    at_most: int | None


class CommitTimes:
    """The positions and times of commits: (LSN, microseconds since 2000).

    All recent ones are kept; the older ones are thinned out.
    """

    def __init__(self) -> None:
        self.points: list[tuple[int, int]] = []
        self._old = 0
        """How many of the points are old ones."""
        self._stride = 1

    def add(self, lsn: int, time: int) -> None:
        """Add a commit. Commits are in WAL order; an earlier LSN starts another stream."""
        points = self.points
        if points and lsn < points[-1][0]:
            points.clear()
            self._old, self._stride = 0, 1
        points.append((lsn, time))
        if len(points) > self._old + 2 * _MAX_COMMITS:
            self._thin()

    def _thin(self) -> None:
        points, old = self.points, self._old
        aging = points[old : old + _MAX_COMMITS : self._stride]
        points[old : old + _MAX_COMMITS] = aging
        self._old += len(aging)
        if self._old > _MAX_COMMITS:
            points[: self._old] = points[: self._old : 2]
            self._old = -(-self._old // 2)
            self._stride *= 2

    def since(self, lsn: int, time: int) -> tuple[int | None, int | None]:
        """Bounds of the time from the write of `lsn` to `time`: at least, at most (None if unknown).

        pgoutput sends commit times only. `lsn` was written before the first commit after it, and after the last
        commit before it.
        """
        points = self.points
        place = bisect.bisect_left(points, (lsn + 1,))
        after = None if place == len(points) else max(0, time - points[place][1])
        return after, max(0, time - points[place - 1][1]) if place else None


class Largest:
    """The transactions with the highest values, the first ones among equals."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TransactionSize]] = []
        self._count = 0

    def add(self, value: int, size: TransactionSize) -> None:
        """Consider a transaction."""
        if value > self.least:
            self._count -= 1
            kept = heapq.heappush if len(self._heap) < LARGEST_KEPT else heapq.heapreplace
            kept(self._heap, (value, self._count, size))

    @property
    def least(self) -> int:
        """Only higher values are kept."""
        return self._heap[0][0] if len(self._heap) == LARGEST_KEPT else -1

    def sizes(self) -> list[TransactionSize]:
        """In descending order of value."""
        return [size for _, _, size in sorted(self._heap, reverse=True)]


class Transactions:
    """All transactions that ended, by rows, bytes and time.

    `empty` counts those without changes, `incomplete` those whose end is missing.
    """

    def __init__(self) -> None:
        self.rows = Histogram()
        self.bytes = Histogram()
        self.by_bytes = Largest()
        self.by_rows = Largest()
        self.by_time = Largest()
        self.count = self.empty = self.incomplete = 0
        self.first: Transaction | None = None
        self.last: Transaction | None = None
        self.commits = CommitTimes()

    def add(self, transaction: Transaction, rows: int, size: int, first_lsn: int | None) -> None:
        """Count a transaction; `first_lsn` is the LSN of its first change."""
        self.count += 1
        self.first, self.last = self.first or transaction, transaction
        lsn, time = transaction.lsn, transaction.time
        took: tuple[int | None, int | None] = None, None
        if lsn is not None and time is not None:
            if first_lsn is not None:
                took = self.commits.since(first_lsn, time)
            self.commits.add(lsn, time)
        self.rows.add(rows)
        self.bytes.add(size)
        one = TransactionSize(transaction, rows, size, *took)
        self.by_bytes.add(size, one)
        self.by_rows.add(rows, one)
        if took[0]:
            self.by_time.add(took[0], one)
