"""Buffer prepared transactions until their outcome, for formats that cannot express them.

Readers of such formats consider every transaction committed. They get a prepared transaction when it is committed, and
never one that is rolled back, as from a slot without two_phase.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgtail.changes.events import (
    Change,
    Ended,
    Event,
    LogicalMessage,
    Outcome,
    RowChange,
    SchemaChange,
    Started,
    TableTruncate,
    Transaction,
)
from pgtail.changes.relations import Relation
from pgtail.changes.stream_buffer import StreamBuffer
from pgtail.files.spool import SpoolLimit


class PreparedBuffer:
    """Passes events to `event`, those of prepared transactions on their commit; `tell` reports missing parts.

    `spool` limits the temporary file.
    """

    def __init__(
        self, event: Callable[[Event], None], tell: Callable[[str], None], spool: SpoolLimit | None = None
    ) -> None:
        self._pass_on = event
        self._tell = tell
        self._buffer = StreamBuffer(purpose="keep a prepared transaction", spool=spool)
        self._waiting: dict[int, Transaction] = {}
        self._tables: dict[int, Relation] = {}
        """By id(): versions of tables, and of a table with masked columns what is shown of its rows."""
        self.inside = False
        """Whether events of a transaction are being passed on; transactions are never interleaved."""
        self._shown: set[int | None] = set()
        self._after: list[Outcome] = []

    def event(self, event: Event) -> None:
        """Pass an event on, or buffer it. Raises OutputError if it cannot be buffered."""
        if isinstance(event, Outcome):
            if self.inside:  # only in damaged input
                self._after.append(event)
            else:
                self._outcome(event)
            return
        transaction: Transaction | None = (
            None if isinstance(event, SchemaChange) else getattr(event, "transaction", None)
        )
        if transaction is None or transaction.state != "prepared" or transaction.xid is None:
            self._pass_through(event)
        elif self.inside:
            self._known_late(event, transaction)
        elif isinstance(event, Started):
            self._start(transaction)
        elif isinstance(event, Ended):
            self._end(event)
        elif isinstance(event, RowChange | TableTruncate | LogicalMessage):
            self._keep(transaction, event)

    @property
    def waits(self) -> bool:
        """Whether a prepared transaction has no outcome yet."""
        return bool(self._waiting)

    def finish(self) -> None:
        """Report the transactions without an outcome, and discard them."""
        for transaction in self._waiting.values():
            self._tell(
                f"prepared transaction {transaction.gid!r} (xid {transaction.xid}) was neither committed nor rolled"
                " back: it is not shown"
            )
        self._waiting.clear()
        self._buffer.close()

    def _pass_through(self, event: Event) -> None:
        """Pass on an event of a transaction that is not buffered, or of none."""
        self._pass_on(event)
        if isinstance(event, Started):
            self.inside = True
        elif isinstance(event, Ended):
            self.inside = False
            after, self._after = self._after, []
            for outcome in after:
                self._outcome(outcome)

    def _known_late(self, event: Event, transaction: Transaction) -> None:
        """Pass on the end of a transaction without a beginning, whose Prepare came after its changes were passed on."""
        self._shown.add(transaction.xid)
        self._tell(
            f"the beginning of prepared transaction {transaction.gid!r} (xid {transaction.xid}) is missing: it is shown"
            " although its outcome is not known yet"
        )
        self._pass_through(event)

    def _start(self, transaction: Transaction) -> None:
        assert transaction.xid is not None
        self._buffer.start(transaction.xid)
        self._waiting[transaction.xid] = transaction

    def _keep(self, transaction: Transaction, change: Change) -> None:
        xid = transaction.xid
        assert xid is not None
        if xid not in self._waiting:
            self._start(transaction)
        entry, size = self._entry(change)
        self._buffer.add(xid, xid, entry, size)

    def _entry(self, change: Change) -> tuple[tuple[Any, ...], int]:
        """A change as a tuple that can be pickled, and its approximate size in bytes."""
        if isinstance(change, LogicalMessage):
            return ("message", change.lsn, change.prefix, change.content, True), 100 + len(change.content)
        table = id(change.relation)
        self._tables[table] = change.relation
        if isinstance(change, TableTruncate):
            return ("truncate", change.seq, change.lsn, table, change.cascade, change.restart_identity), 100
        cells = [cell for row in (change.old, change.new) if row is not None for cell in row]
        size = 100 + sum(len(cell) + 40 for cell in cells if isinstance(cell, bytes))
        return (change.op, change.seq, change.lsn, table, change.old_kind, change.old, change.new), size

    def _end(self, event: Ended) -> None:
        if not event.complete and event.transaction.xid in self._waiting:
            self._forget(event.transaction.xid)

    def _forget(self, xid: int) -> None:
        del self._waiting[xid]
        self._buffer.drop(xid)

    def _outcome(self, outcome: Outcome) -> None:
        transaction = self._waiting.get(outcome.xid)
        if transaction is None:
            if outcome.op == "commit_prepared" and outcome.xid not in self._shown:
                self._tell(
                    f"prepared transaction {outcome.gid!r} (xid {outcome.xid}) was committed, but the input has"
                    " none of its changes that the filters pass"
                )
            return
        if outcome.op == "commit_prepared":
            self._commit(transaction, outcome)
        else:
            self._forget(outcome.xid)

    def _commit(self, transaction: Transaction, outcome: Outcome) -> None:
        """Pass on a transaction as an ordinary committed one."""
        transaction.state = transaction.gid = None
        transaction.commit_lsn, transaction.commit_ts, transaction.end_lsn = outcome.lsn, outcome.time, outcome.end_lsn
        self._pass_on(Started(transaction))
        for entry in self._buffer.take(outcome.xid):
            self._pass_on(self._change(transaction, entry))
        del self._waiting[outcome.xid]
        self._pass_on(Ended(transaction))

    def _change(self, transaction: Transaction, entry: tuple[Any, ...]) -> Change:
        if entry[0] == "message":
            return LogicalMessage(transaction, *entry[1:])
        op, seq, lsn, table, *rest = entry
        if op == "truncate":
            return TableTruncate(transaction, seq, lsn, self._tables[table], *rest)
        return RowChange(op, transaction, seq, lsn, self._tables[table], *rest)
