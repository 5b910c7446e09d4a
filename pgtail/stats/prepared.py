"""Prepared transactions, and how long they waited for their outcome, in bounded memory."""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec import Struct

from pgtail.changes.events import Outcome, Transaction

_MAX_OPEN: Final = 10_000
"""Transactions without an outcome that are kept: more than most servers allow (max_prepared_transactions)."""
_KEPT: Final = 10


class PreparedTransaction(Struct):
    """One that was prepared at the time `prepared`, and its outcome with its time; None if it has none yet."""

    gid: str
    xid: int | None
    lsn: int | None
    prepared: int
    outcome: str | None = None
    time: int | None = None

    @property
    def waited(self) -> int:
        """Microseconds from the prepare to the outcome."""
        return 0 if self.time is None else max(0, self.time - self.prepared)


class PreparedTransactions:
    """All of a stream: `outcomes` counts those that were seen, `open` are those without one, oldest first.

    `longest` are the ten that waited longest, of those whose prepare was seen as well.
    """

    def __init__(self) -> None:
        self.count = 0
        self.outcomes = Counter[str]()
        self.open: dict[str, PreparedTransaction] = {}
        self.longest: list[PreparedTransaction] = []

    def add(self, transaction: Transaction) -> None:
        """Count a transaction that was prepared."""
        self.count += 1
        gid, time = transaction.gid, transaction.prepare_ts
        if gid is not None and time is not None:
            self.open[gid] = PreparedTransaction(gid, transaction.xid, transaction.prepare_lsn, time)
            if len(self.open) > _MAX_OPEN:
                del self.open[next(iter(self.open))]

    def end(self, outcome: Outcome) -> None:
        """Count an outcome."""
        self.outcomes[outcome.op] += 1
        ended = self.open.pop(outcome.gid, None)
        if ended is not None:
            ended.outcome, ended.time = outcome.op, outcome.time
            self.longest = sorted([*self.longest, ended], key=lambda kept: -kept.waited)[:_KEPT]
