"""Floor 4, transactions by size: the largest ones, how the rest is spread, and how long they took; knows no row."""

from __future__ import annotations

import bisect
import heapq
from dataclasses import dataclass
from typing import Final

from pgtail.stats.spread import Spread
from pgtail.transaction import Transaction

KEPT: Final = 10
"""How many of the largest are kept."""
_MOST_COMMITS: Final = 4096


@dataclass(slots=True)
class Size:
    """One transaction: its rows and bytes, as far as they passed the filter.

    `at_least` and `at_most` say how long it took from its first change to its commit, in microseconds, as far as the
    commits of others tell; None where they do not.
    """

    transaction: Transaction
    rows: int
    bytes: int
    at_least: int | None
    at_most: int | None


class Commits:
    """When the log stood where, by the commits that were seen: (position, microseconds since 2000).

    The last ones are all kept, of the older ones every so many.
    """

    def __init__(self) -> None:
        self._points: list[tuple[int, int]] = []
        self._old = 0
        """How many of the points are of the older ones."""
        self._stride = 1

    def add(self, lsn: int, time: int) -> None:
        """A commit; they come in the order of the log, unless another stream begins."""
        points = self._points
        if points and lsn < points[-1][0]:
            points.clear()
            self._old, self._stride = 0, 1
        points.append((lsn, time))
        if len(points) - self._old > 2 * _MOST_COMMITS:
            self._thin()

    def _thin(self) -> None:
        points, old = self._points, self._old
        aging = points[old : old + _MOST_COMMITS : self._stride]
        points[old : old + _MOST_COMMITS] = aging
        self._old += len(aging)
        if self._old > _MOST_COMMITS:
            points[: self._old] = points[: self._old : 2]
            self._old = -(-self._old // 2)
            self._stride *= 2

    def since(self, lsn: int, time: int) -> tuple[int | None, int | None]:
        """How long before `time` the log stood at `lsn`: at least, and at most.

        pgoutput tells no time but that of the commit. The first commit behind `lsn` came after it was written, the
        last one before it earlier.
        """
        points = self._points
        place = bisect.bisect_left(points, (lsn + 1,))
        after = None if place == len(points) else max(0, time - points[place][1])
        return after, max(0, time - points[place - 1][1]) if place else None


class Largest:
    """The transactions with the highest values; among equals, the first ones."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Size]] = []
        self._count = 0

    def add(self, value: int, size: Size) -> None:
        """One more."""
        self._count -= 1
        if len(self._heap) < KEPT:
            heapq.heappush(self._heap, (value, self._count, size))
        elif value > self._heap[0][0]:
            heapq.heapreplace(self._heap, (value, self._count, size))

    def sizes(self) -> list[Size]:
        """The highest first."""
        return [size for _, _, size in sorted(self._heap, reverse=True)]


class Transactions:
    """All transactions that ended, by rows, bytes and time. `empty` ones had no change, `cut` ones no end."""

    def __init__(self) -> None:
        self.rows = Spread()
        self.bytes = Spread()
        self.by_bytes = Largest()
        self.by_rows = Largest()
        self.by_time = Largest()
        self.count = self.empty = self.cut = 0
        self.first: Transaction | None = None
        self.last: Transaction | None = None
        self._commits = Commits()

    def add(self, transaction: Transaction, rows: int, size: int, first_lsn: int | None) -> None:
        """A transaction ended; `first_lsn` is where its first change stands in the log."""
        self.count += 1
        self.first, self.last = self.first or transaction, transaction
        lsn, time = transaction.lsn, transaction.time
        took: tuple[int | None, int | None] = None, None
        if lsn is not None and time is not None:
            if first_lsn is not None:
                took = self._commits.since(first_lsn, time)
            self._commits.add(lsn, time)
        self.rows.add(rows)
        self.bytes.add(size)
        one = Size(transaction, rows, size, *took)
        self.by_bytes.add(size, one)
        self.by_rows.add(rows, one)
        if took[0]:
            self.by_time.add(took[0], one)
