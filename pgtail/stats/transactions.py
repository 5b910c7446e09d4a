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
    """When the log stood where, by the commits that were seen: (position, microseconds since 2000)."""

    def __init__(self) -> None:
        self._lsns: list[int] = []
        self._times: list[int] = []

    def add(self, lsn: int, time: int) -> None:
        """A commit; they come in the order of the log, unless another stream begins."""
        if self._lsns and lsn < self._lsns[-1]:
            self._lsns.clear()
            self._times.clear()
        self._lsns.append(lsn)
        self._times.append(time)
        if len(self._lsns) > _MOST_COMMITS:
            del self._lsns[1:-1:2], self._times[1:-1:2]

    def since(self, lsn: int, time: int) -> tuple[int | None, int | None]:
        """How long before `time` the log stood at `lsn`: at least, and at most.

        pgoutput tells no time but that of the commit. The first commit behind `lsn` came after it was written, the
        last one before it earlier.
        """
        place = bisect.bisect_right(self._lsns, lsn)
        after, before = self._times[place : place + 1], self._times[place - 1 : place] if place else []
        return (max(0, time - after[0]) if after else None), (max(0, time - before[0]) if before else None)


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
