"""Count transactions by rows, bytes and duration, and keep the largest ones."""

from __future__ import annotations

import bisect
import heapq
from array import array
from collections import Counter
from collections.abc import Callable
from typing import Final

from pgtail.changes.events import Transaction
from pgtail.records import NamedTuple, Record

LARGEST_KEPT: Final = 10
"""How many of the largest transactions are kept."""
MOST_IN_PART: Final = 1 << 18
"""Commits that PartTransactions keep."""
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

    def join(self, other: Histogram) -> None:
        """Count the numbers that another one has counted."""
        self.count += other.count
        self.total += other.total
        self.maximum = max(self.maximum, other.maximum)
        self._buckets.update(other._buckets)

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

    def add(self, value: int, number: int, size: TransactionSize) -> None:
        """Consider a transaction; `number` counts them."""
        entry = value, -number, size
        if len(self._heap) < LARGEST_KEPT:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    @property
    def least(self) -> int:
        """Of the transactions after those that were considered, only higher values are kept."""
        return self._heap[0][0] if len(self._heap) == LARGEST_KEPT else -1

    def join(self, other: Largest, before: int) -> None:
        """Consider those that another one has kept; there were `before` transactions before its first one."""
        for value, number, size in other._heap:
            self.add(value, before - number, size)

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
        lsn, time = transaction.lsn, transaction.time
        took: tuple[int | None, int | None] = None, None
        if lsn is not None and time is not None:
            if first_lsn is not None:
                took = self.commits.since(first_lsn, time)
            self.commits.add(lsn, time)
        self._count(transaction, rows, size, took)

    def _count(
        self, transaction: Transaction, rows: int, size: int, took: tuple[int | None, int | None]
    ) -> TransactionSize | None:
        """Count a transaction; returns its size if it is one of the largest."""
        self.count += 1
        self.first, self.last = self.first or transaction, transaction
        self.rows.add(rows)
        self.bytes.add(size)
        least = took[0] or -1
        if not (size > self.by_bytes.least or rows > self.by_rows.least or least > self.by_time.least):
            return None
        one = TransactionSize(transaction, rows, size, *took)
        for largest, value in zip(self.largest, (size, rows, least), strict=True):
            if value > largest.least:
                largest.add(value, self.count, one)
        return one

    @property
    def largest(self) -> tuple[Largest, Largest, Largest]:
        """By bytes, rows and time."""
        return self.by_bytes, self.by_rows, self.by_time

    def join(self, part: PartTransactions) -> None:
        """Count the transactions of the next part of the stream, which PartTransactions have counted."""
        passed = 0
        for late in part.late:
            self._pass(part, passed, late.place)
            passed = late.place
            size = late.size
            assert size.transaction.time is not None
            size.at_least, size.at_most = self.commits.since(late.first_lsn, size.transaction.time)
            if size.at_least:
                part.by_time.add(size.at_least, late.number, size)
        self._pass(part, passed, len(part.lsns))
        for largest, of_part in zip(self.largest, part.largest, strict=True):
            largest.join(of_part, self.count)
        self.rows.join(part.rows)
        self.bytes.join(part.bytes)
        self.count += part.count
        self.empty += part.empty
        self.incomplete += part.incomplete
        self.first, self.last = self.first or part.first, part.last or self.last

    def _pass(self, part: PartTransactions, start: int, stop: int) -> None:
        """Add commits of a part."""
        add = self.commits.add
        for lsn, time in zip(part.lsns[start:stop], part.times[start:stop], strict=True):
            add(lsn, time)


class Late(NamedTuple):
    """A transaction whose time depends on what came before its part: it is the `number`th there.

    `place` is how many commits of the part came before it.
    """

    number: int
    place: int
    first_lsn: int
    size: TransactionSize


class PartTransactions(Transactions):
    """The transactions of a part of the stream, for Transactions.join(). `full` is called when there are many."""

    def __init__(self, full: Callable[[], None]) -> None:
        super().__init__()
        self.full: Callable[[], None] | None = full
        self.lsns, self.times = array("Q"), array("q")
        """Those of all commits."""
        self.late: list[Late] = []
        self._stream: int | None = None
        """Where the last stream begins among the commits, if that is in this part."""

    def add(self, transaction: Transaction, rows: int, size: int, first_lsn: int | None) -> None:
        lsn, time, place = transaction.lsn, transaction.time, len(self.lsns)
        took: tuple[int | None, int | None] = None, None
        late = None
        if lsn is not None and time is not None:
            if first_lsn is not None:
                found = self._since(first_lsn, time)
                took, late = (took, first_lsn) if found is None else (found, None)
            if place and lsn < self.lsns[-1]:
                self._stream = place
            self.lsns.append(lsn)
            self.times.append(time)
        one = self._count(transaction, rows, size, took)
        if late is not None:
            one = one or TransactionSize(transaction, rows, size, None, None)
            self.late.append(Late(self.count, place, late, one))
        if self.full is not None and len(self.lsns) >= MOST_IN_PART:
            self.full()

    def _since(self, lsn: int, time: int) -> tuple[int | None, int | None] | None:
        """CommitTimes.since(); None if it depends on commits that are not here, or may be thinned out."""
        lsns, times = self.lsns, self.times
        start = max(self._stream or 0, len(lsns) - _MAX_COMMITS)
        place = bisect.bisect_left(lsns, lsn + 1, start)
        if place > start:
            most = max(0, time - times[place - 1])
        elif start == self._stream:
            most = None
        else:
            return None
        return None if place == len(lsns) else max(0, time - times[place]), most
