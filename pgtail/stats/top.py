"""The changes since the last sample, by table, for a stream that is still being counted."""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from pgtail.stats.collect import Statistics, TableCount
from pgtail.stats.rate import NOTHING, Counts

_MAX_RATES: Final = 200
"""Samples whose rate is kept: more than a terminal shows side by side."""


class Position(Struct, frozen=True):
    """Where the stream is. LSNs are None while they are unknown.

    `unfinished` is the xid of the open transaction with the most changes so far, and how many.
    """

    lsn: int | None = None
    server_lsn: int | None = None
    unfinished: tuple[int | None, int] | None = None

    @property
    def lag(self) -> int | None:
        """Bytes of WAL between the stream and the server's position."""
        if self.lsn is None or self.server_lsn is None:
            return None
        return max(0, self.server_lsn - self.lsn)


class Sample(Struct, frozen=True):
    """The changes of `seconds`: `transactions`, and the tables with changes now or before, most bytes first."""

    seconds: float
    transactions: int
    tables: list[tuple[TableCount, Counts]]
    position: Position
    rates: tuple[float, ...]
    """Rows per second of the last samples, this one last."""

    @property
    def rows(self) -> int:
        return sum([counts.rows for _, counts in self.tables])

    @property
    def bytes(self) -> int:
        return sum([counts.bytes for _, counts in self.tables])


class Top:
    """Takes samples of statistics; `started` is the time when counting began, in seconds of any clock."""

    def __init__(self, stats: Statistics, started: float) -> None:
        self.stats = stats
        self._last = started
        self._transactions = 0
        self._before: dict[int, Counts] = {}
        self._rates = deque[float](maxlen=_MAX_RATES)

    def sample(self, now: float, position: Position) -> Sample:
        """The changes since the last sample."""
        tables = []
        for table in self.stats.tables.values():
            counts = Counts(table.inserts, table.updates, table.deletes, table.bytes)
            tables.append((table, counts.since(self._before.get(id(table), NOTHING))))
            self._before[id(table)] = counts
        tables.sort(key=lambda one: (-one[1].bytes, -one[0].bytes, one[0].relation.qualified))
        transactions, seconds = self.stats.transactions.count, max(now - self._last, 0.001)
        self._rates.append(sum([counts.rows for _, counts in tables]) / seconds)
        sample = Sample(seconds, transactions - self._transactions, tables, position, tuple(self._rates))
        self._last, self._transactions = now, transactions
        return sample
