"""Count transactions by rows, bytes and duration, and keep the largest ones."""

from __future__ import annotations

import bisect
import heapq
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from pgtail.changes.events import Transaction
from pgtail.stats.rate import Counts

LARGEST_KEPT: Final = 10
"""How many of the largest transactions are kept."""
_MAX_COMMITS: Final = 4096
_SET_BACK: Final = 10_000_000
"""Microseconds. A commit time that is less by more was taken from another clock, or from one that was set: commits that
are written at once are out of order by less."""
_MOST_KEPT: Final = 100
"""Times when the clock was set back to keep, and origins."""
_MOST_TABLES: Final = 10
"""Tables of one of the largest transactions that are named."""
_MOST_NUMBERS: Final = 4096
"""Different numbers to count at once, before they are put into buckets."""
_DIGITS: Final = 5
"""Leading binary digits kept of a number: percentiles are too high by at most a sixteenth."""

Commit: TypeAlias = "tuple[Transaction | int, int | None, int | None, int, int, int | None]"
"""A transaction (its xid, if nothing else is known), its LSN and time, rows and bytes, the LSN of its first change."""
Took: TypeAlias = tuple[int | None, int | None]
"""Bounds of a time in microseconds: at least, at most (None if unknown)."""
_UNKNOWN: Final[Took] = None, None


class Histogram:
    """Non-negative numbers, counted by their leading digits: `count`, `total` and `maximum` are exact."""

    def __init__(self) -> None:
        self._numbers = Counter[int]()
        """Those that are not in a bucket yet."""
        self._in_buckets = Counter[int]()
        self.count = self.total = self.maximum = 0

    def add_all(self, numbers: Sequence[int]) -> None:
        """Count numbers."""
        self.count += len(numbers)
        self.total += sum(numbers)
        self.maximum = max(self.maximum, *numbers)
        self._numbers.update(numbers)
        if len(self._numbers) > _MOST_NUMBERS:
            self._fill_buckets()

    def _fill_buckets(self) -> Counter[int]:
        """The buckets, with all numbers."""
        for number, count in self._numbers.items():
            self._in_buckets[number | (1 << number.bit_length() >> _DIGITS or 1) - 1] += count
        self._numbers.clear()
        return self._in_buckets

    def classes(self) -> list[tuple[int, int]]:
        """How many numbers were 0, 1, 2 to 3, 4 to 7, ...: the least number of each class that is not empty."""
        classes = Counter[int]()
        for number, count in self._fill_buckets().items():
            classes[1 << number.bit_length() >> 1] += count
        return sorted(classes.items())

    def percentile(self, percent: int) -> int:
        """The smallest number that `percent` of all do not exceed, or up to a sixteenth more."""
        left, buckets = -(-self.count * percent // 100), self._fill_buckets()
        for number in sorted(buckets):
            left -= buckets[number]
            if left <= 0:
                return min(number, self.maximum)
        return 0


class TransactionSize(Struct):
    """One transaction: its rows and bytes that passed the filter.

    `at_least` and `at_most` bound the time from its first change to its commit, in microseconds, as derived from other
    commits; None if unknown. `tables` are those with most bytes in it, by number, and `more_tables` counts the rest.
    """

    transaction: Transaction
    rows: int
    bytes: int
    at_least: int | None
    at_most: int | None
    tables: dict[int, Counts]
    more_tables: int


class SetBack(NamedTuple):
    """The commit at `lsn` has the time `now`, and the commit before it the much later time `before`."""

    lsn: int
    before: int
    now: int

    def spoils(self, size: TransactionSize) -> bool:
        """Whether the clock, which was set back later, may have been set forward while a transaction ran."""
        time, took = size.transaction.time or 0, size.at_most or size.at_least or 0
        return (size.transaction.lsn or 0) < self.lsn and time - took < self.now < time


class CommitTimes:
    """The positions and times of commits: (LSN, microseconds since 2000).

    All recent ones are kept; the older ones are thinned out.
    """

    def __init__(self) -> None:
        self.lsns, self.times = array("Q"), array("q")
        self.last = -1
        """The LSN of the last commit."""
        self.first_time = 0
        """The time of the first commit, if there is one; of several streams the least one."""
        self.latest = -1 << 63
        """The greatest time of the last commits of earlier streams."""
        self.set_back: list[SetBack] = []
        """The first times when the clock was set back."""
        self._least = -1 << 63
        """A commit that follows the last one has this time or a later one."""
        self._old = 0
        """How many of the points are old ones."""
        self._stride = 1

    def add(self, lsn: int, time: int) -> None:
        """Add a commit. Commits are in WAL order; an earlier LSN starts another stream, a much earlier time, too."""
        if lsn < self.last or time < self._least:
            if lsn >= self.last and len(self.set_back) < _MOST_KEPT:
                self.set_back.append(SetBack(lsn, self.times[-1], time))
            self.first_time, self.latest = min(self.first_time, time), max(self.latest, self.times[-1])
            del self.lsns[:], self.times[:]
            self._old, self._stride = 0, 1
        elif self.last < 0:
            self.first_time = time
        self.last, self._least = lsn, time - _SET_BACK
        self.lsns.append(lsn)
        self.times.append(time)
        if len(self.lsns) > self._old + 2 * _MAX_COMMITS:
            self._thin()

    def restarts(self, lsn: int, time: int) -> bool:
        """Whether a commit would start another stream."""
        return lsn < self.last or time < self._least

    def _thin(self) -> None:
        aging = slice(self._old, self._old + _MAX_COMMITS)
        for points in (self.lsns, self.times):
            points[aging] = points[aging][:: self._stride]
        self._old += -(-_MAX_COMMITS // self._stride)
        if self._old > _MAX_COMMITS:
            for points in (self.lsns, self.times):
                points[: self._old] = points[: self._old : 2]
            self._old = -(-self._old // 2)
            self._stride *= 2

    def since(self, lsn: int, time: int) -> Took:
        """Bounds of the time from the write of `lsn` to `time`.

        pgoutput sends commit times only. `lsn` was written before the first commit after it, and after the last
        commit before it.
        """
        times, place = self.times, bisect.bisect_right(self.lsns, lsn)
        after = None if place == len(times) else max(0, time - times[place])
        return after, max(0, time - times[place - 1]) if place else None

    def at_least(self, lsn: int, time: int) -> int:
        """The lower bound of the time from the write of `lsn`, which is before the last commit, to `time`."""
        return max(0, time - self.times[bisect.bisect_right(self.lsns, lsn)])


class Largest:
    """The transactions with the highest values, the first ones among equals."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TransactionSize]] = []
        self.least = -1
        """The lowest value that is kept, once there are LARGEST_KEPT of them; -1 before."""

    def add(self, value: int, number: int, size: TransactionSize) -> None:
        """Consider a transaction; `number` counts them."""
        entry = value, -number, size
        if len(self._heap) < LARGEST_KEPT:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)
        if len(self._heap) == LARGEST_KEPT:
            self.least = self._heap[0][0]

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
        self.durations = Histogram()
        """Milliseconds from the first change to the commit, where a lower bound of them is known."""
        self.by_bytes = Largest()
        self.by_rows = Largest()
        self.by_time = Largest()
        self.count = self.empty = self.incomplete = 0
        self.first: Transaction | None = None
        """The first transaction; of several streams, which begin with an earlier LSN, the one with the least time."""
        self._latest: Transaction | None = None
        """Of the last transactions of earlier streams, the one with the greatest time."""
        self._last: Transaction | None = None
        """The last transaction of the current stream."""
        self.commits = CommitTimes()
        self.origins: Counter[str] = Counter()
        """The transactions with changes that have an origin, and the commit time of the server where they began."""

    def add_all(self, commits: Sequence[Commit], cells: Sequence[int] = ()) -> None:
        """Count transactions, in the order of their commits.

        `cells` has six numbers for each table of a transaction: the place of the transaction in `commits`, the number
        of the table, its inserts, updates and deletes, and their bytes.
        """
        times, durations = self.commits, list[int]()
        before, last_lsn = None, None if self._last is None else self._last.lsn
        by_bytes, by_rows, by_time = [largest.least for largest in self.largest]
        for number, commit in enumerate(commits, self.count + 1):
            _, lsn, time, rows, size, first = commit
            large = size > by_bytes or rows > by_rows
            if self.first is None or (lsn is not None and last_lsn is not None and lsn < last_lsn):
                self._begin_stream(commit, before)
            before, last_lsn = commit, lsn
            if first is not None and time is not None and first < times.last and not times.restarts(lsn or 0, time):
                took = times.at_least(first, time)
                durations.append(took // 1000)
                large = large or took > by_time
            if large:
                self._consider(number, commit, _tables(cells, number - self.count - 1))
                by_bytes, by_rows, by_time = [largest.least for largest in self.largest]
            if lsn is not None and time is not None:
                times.add(lsn, time)
        self.count += len(commits)
        self._last = _transaction(commits[-1])
        self.rows.add_all([commit[3] for commit in commits])
        self.bytes.add_all([commit[4] for commit in commits])
        if durations:
            self.durations.add_all(durations)

    def _begin_stream(self, commit: Commit, before: Commit | None) -> None:
        """Another stream begins with a commit. `before` ended the one before it; None: that is `_last`."""
        last, begun = self._last if before is None else _transaction(before), _transaction(commit)
        if last is not None:
            self._latest = max(self._latest or last, last, key=_time)
        self.first = min(self.first or begun, begun, key=_time)

    def _consider(self, number: int, commit: Commit, tables: dict[int, Counts]) -> None:
        """Keep a transaction if it is one of the largest."""
        _, lsn, time, rows, size, first = commit
        took = _UNKNOWN
        if lsn is not None and time is not None and first is not None and not self.commits.restarts(lsn, time):
            took = self.commits.since(first, time)
        one, least = None, took[0] or -1
        for largest, value in zip(self.largest, (size, rows, least), strict=True):
            if value > largest.least:
                most = dict(sorted(tables.items(), key=lambda item: -item[1].bytes)[:_MOST_TABLES])
                one = one or TransactionSize(_transaction(commit), rows, size, *took, most, len(tables) - len(most))
                largest.add(value, number, one)

    def sizes(self, largest: Largest) -> list[TransactionSize]:
        """Those of by_bytes, by_rows or by_time, the largest first, without durations that the clock has spoilt."""
        sizes = largest.sizes()
        for size in sizes:
            if any(set_back.spoils(size) for set_back in self.commits.set_back):
                size.at_least = size.at_most = None
        return [size for size in sizes if size.at_least is not None] if largest is self.by_time else sizes

    @property
    def span(self) -> tuple[int, int] | None:
        """The times of the first and the last commit without an origin."""
        commits = self.commits
        return (commits.first_time, max(commits.latest, commits.times[-1])) if commits.times else None

    @property
    def last(self) -> Transaction | None:
        """The last transaction; of several streams the one with the greatest time."""
        lasts = [one for one in (self._latest, self._last) if one is not None]
        return max(lasts, key=_time, default=None)

    def add_origin(self, origin: str) -> None:
        """Count a transaction of an origin."""
        known = origin in self.origins or len(self.origins) < _MOST_KEPT
        self.origins[origin if known else "others"] += 1

    @property
    def largest(self) -> tuple[Largest, Largest, Largest]:
        """By bytes, rows and time."""
        return self.by_bytes, self.by_rows, self.by_time


def _tables(cells: Sequence[int], place: int) -> dict[int, Counts]:
    places = cells[::6]
    rows = range(bisect.bisect_left(places, place), bisect.bisect_right(places, place))
    return {cells[6 * row + 1]: Counts(*cells[6 * row + 2 : 6 * row + 6]) for row in rows}


def _time(transaction: Transaction) -> int:
    return transaction.time or 0


def _transaction(commit: Commit) -> Transaction:
    one, lsn, time, *_ = commit
    return one if isinstance(one, Transaction) else Transaction(one, commit_lsn=lsn, commit_ts=time)
