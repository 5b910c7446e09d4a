"""The base of outputs whose rows are plans: compiled code or outputs/rows.py writes the rows, the output the rest.

Readers of formats that cannot express prepared transactions consider every transaction committed. They receive a
prepared transaction when it is committed, and none that is rolled back, as from a slot without two_phase.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from pgtail.changes.events import (
    Change,
    Ended,
    Event,
    LogicalMessage,
    Outcome,
    RowChange,
    Rows,
    SchemaChange,
    Started,
    TableTruncate,
    Transaction,
)
from pgtail.changes.relations import Relation
from pgtail.changes.stream_buffer import StreamBuffer
from pgtail.files.sink import Sink
from pgtail.files.spool import SpoolLimit
from pgtail.local_time import is_utc
from pgtail.log import log_outcome
from pgtail.native import compiled
from pgtail.native.batch import Writer
from pgtail.native.plan import NoPlan, Plan
from pgtail.outputs import OutputOptions
from pgtail.outputs.base import Mask, Once, WrittenTables
from pgtail.outputs.choice import ColumnChoice
from pgtail.outputs.fields import Clock, local_time
from pgtail.outputs.rows import Rows as RowsByPlans
from pgtail.outputs.rows import Shape, Write

if TYPE_CHECKING:
    from pgtail.changes.context import Context
    from pgtail.changes.seen_rows import SeenRows


class PreparedBuffer:
    """Passes events to `event`, those of prepared transactions on their commit; messages name missing parts.

    `spool` limits the temporary file. If given, `events` gets an iterator of those of such a transaction, to be used
    before the next event; it then has its gid.
    """

    def __init__(
        self,
        event: Callable[[Event], None],
        spool: SpoolLimit | None = None,
        *,
        events: Callable[[Iterator[Event]], None] | None = None,
    ) -> None:
        self._pass_on = event
        self._in_one = events is not None
        self._pass_all = events or self._one_by_one
        self._buffer = StreamBuffer(purpose="keep a prepared transaction", spool=spool)
        self._waiting: dict[int, Transaction] = {}
        self._tables: dict[int, Relation] = {}
        """By id(): versions of tables, and of a table with masked columns what is shown of its rows."""
        self._context: Context | None = None
        """The last one that was kept for the transaction which is being kept."""
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
            log_outcome(
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
        log_outcome(
            f"the beginning of prepared transaction {transaction.gid!r} (xid {transaction.xid}) is missing: it is shown"
            " although its outcome is not known yet"
        )
        self._pass_through(event)

    def _start(self, transaction: Transaction) -> None:
        assert transaction.xid is not None
        self._buffer.start(transaction.xid)
        self._waiting[transaction.xid] = transaction
        self._context = None

    def _keep(self, transaction: Transaction, change: Change) -> None:
        xid = transaction.xid
        assert xid is not None
        if xid not in self._waiting:
            self._start(transaction)
        context = transaction.context
        if context is not None and context is not self._context:
            self._context = context
            self._buffer.add(xid, xid, ("context", context), 100 + 2 * len(context.content))
        entry, size = self._entry(change)
        self._buffer.add(xid, xid, entry, size)

    def _entry(self, change: Change) -> tuple[tuple[Any, ...], int]:
        """A change as a tuple that can be pickled, and its approximate size in bytes."""
        if isinstance(change, LogicalMessage):
            return ("message", replace(change, transaction=None)), 100 + len(change.content)
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
                log_outcome(
                    f"prepared transaction {outcome.gid!r} (xid {outcome.xid}) was committed, but the input has"
                    " none of its changes that the filters pass"
                )
            return
        if outcome.op == "commit_prepared":
            self._pass_all(self._committed(transaction, outcome))
        else:
            self._forget(outcome.xid)

    def _one_by_one(self, events: Iterator[Event]) -> None:
        for event in events:
            self._pass_on(event)

    def _committed(self, transaction: Transaction, outcome: Outcome) -> Iterator[Event]:
        """The events of a transaction as those of an ordinary committed one."""
        transaction.state, transaction.gid = None, outcome.gid if self._in_one else None
        transaction.commit_lsn, transaction.commit_ts, transaction.end_lsn = outcome.lsn, outcome.time, outcome.end_lsn
        transaction.context = None
        yield Started(transaction)
        for entry in self._buffer.take_entries(outcome.xid):
            if entry[0] == "context":
                transaction.context = entry[1]
            else:
                yield self._change(transaction, entry)
        del self._waiting[outcome.xid]
        yield Ended(transaction)

    def _change(self, transaction: Transaction, entry: tuple[Any, ...]) -> Change:
        if entry[0] == "message":
            message: LogicalMessage = entry[1]
            return replace(message, transaction=transaction)
        op, seq, lsn, table, *rest = entry
        if op == "truncate":
            return TableTruncate(transaction, seq, lsn, self._tables[table], *rest)
        return RowChange(op, transaction, seq, lsn, self._tables[table], *rest)


class PlannedOutput:
    """Writes the events of one stream; rows by the plans of row(), transactions by `begin` and `end`.

    A subclass implements row() and other(), and may override started(), ended() and no_plan().
    """

    begin: Plan = ()
    """Written at the start of a transaction."""
    end: Plan = ()
    """Written at its end, if it is complete."""
    incomplete = b""
    """Written at its end, if it broke off."""
    separator = b""
    """Written between the elements of a transaction (rows, truncates, messages)."""
    buffers_prepared = False
    """See Output."""
    needs_outcomes = False
    """See Output."""
    mask: Mask | None = None
    """See Output."""
    takes_whole = True
    """See Output."""
    seen_rows: SeenRows | None = None
    """See Output."""
    lacks_changes = False
    """See Output."""
    rows_alone: ClassVar[bool] = False
    """Whether it writes nothing of a transaction but its changes and `begin`, `end` and the like."""
    one_by_one: ClassVar[bool] = False
    """Whether `write` must be called for each row."""
    changed_only: ClassVar[bool] = False
    """Whether it always shows updates as --changed does."""
    events_only = False
    """Whether all rows must go through event()."""

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        self.write: Write = sink.write
        self.options = options
        self.once = Once()
        self.choice = ColumnChoice(options, changed=self.changed_only, once=self.once)
        self.clock: Clock = time.time_ns
        self.local_time = None if is_utc() else lru_cache(maxsize=8)(local_time)
        """The text of Field.TIME, which the rows of a transaction share; compiled code knows UTC."""
        self.rows = RowsByPlans(self.row, self.clock, one_by_one=self.one_by_one)
        self.open: Transaction | None = None
        """The transaction that was started and not ended."""
        self.elements = 0
        """How many elements of it were written."""
        self.written = WrittenTables()
        self.left_out = 0
        """See Output."""
        self.writer: Writer | None = None
        """Writes the rows of slices; made with the first one."""
        self.after: list[bytes] = []
        """Texts to write after its end. No slice is taken while there are any."""
        self._prepared = PreparedBuffer(self._event, options.spool) if self.buffers_prepared else None
        self.needs_outcomes = self.needs_outcomes or self.buffers_prepared
        self.event: Callable[[Event], None] = self._event if self._prepared is None else self._prepared.event

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        """The plan for the rows of this shape, and their target. Raises NoPlan if there is none."""
        raise NotImplementedError

    def other(self, event: Event) -> None:
        """Write an event that is no row and no start or end of a transaction."""

    def no_plan(self, change: RowChange, reason: NoPlan) -> None:
        """Write a row that its plan cannot express."""
        raise NotImplementedError

    def started(self, transaction: Transaction) -> None:
        """A transaction starts; `open` is set already."""
        if self.begin:
            self.write(self.rows.boundary(self.begin, transaction, lsn=transaction.commit_lsn))

    def ended(self, event: Ended) -> None:
        """A transaction ends; `open` is still set."""
        if event.complete and self.end:
            self.write(self.rows.boundary(self.end, event.transaction, lsn=event.transaction.commit_lsn))
        elif self.incomplete and not event.complete:
            self.write(self.incomplete)

    @property
    def settled(self) -> bool:
        return not self.after and (self._prepared is None or not self._prepared.waits)

    @property
    def needs_end(self) -> bool:
        return not self.rows_alone or bool(self.begin or self.end or self.separator or self.incomplete)

    def finish(self) -> None:
        if self._prepared is not None:
            self._prepared.finish()
        self.close()
        self.choice.note_unused()

    def new_file(self) -> None:
        """Write the beginning of a file again."""

    def close(self) -> None:
        """Complete what is open at the end of the input or after an error."""
        if self.open is not None:
            self._end(Ended(self.open, complete=False))

    def outside(self, text: bytes) -> None:
        """Write a text, or a part of one, that belongs to no transaction: after the end of the open one."""
        if self.open is None:
            self.write(text)
        else:
            self.after.append(text)

    def next_separator(self) -> bytes:
        """The separator before the next element of the open transaction."""
        self.elements += 1
        return self.separator if self.elements > 1 else b""

    @property
    def takes_slices(self) -> bool:
        """See Output."""
        return not self.events_only

    def plan_of(self, relation: Relation, op: str, old_kind: str) -> tuple[Plan, Write] | None:
        """The plan for the rows of a table that fit it, and their target; None if there is none."""
        columns = len(relation.columns)
        shown = relation if self.mask is None else self.mask(relation)
        try:
            widths = columns if old_kind else None, None if op == "delete" else columns
            return self.row(Shape(shown, op, old_kind, *widths))
        except NoPlan:
            return None

    def takes(self, transaction: Transaction) -> bool:
        return not self.after and (transaction.state is None or not self.buffers_prepared)

    def write_rows(self, rows: Rows) -> None:
        if self.writer is None:
            module = compiled()
            assert module is not None
            self.writer = module.Writer(self)
        writer, writer.elements = self.writer, self.elements
        writer.enter(rows.slice, rows.transaction)
        while (place := writer.write_rows()) is not None:
            change = rows.change(place)
            if self.mask is not None:
                change.relation = self.mask(change.relation)
            self.open, self.elements = change.transaction, writer.elements
            self._row(change)
            writer.elements = self.elements
        self.open = rows.open if rows.totals.started else None
        self.elements = 0 if self.open is None else writer.elements
        if self._prepared is not None:
            self._prepared.inside = self.open is not None

    def _enter(self, transaction: Transaction | None, elements: int = 0) -> None:
        """The output is inside a transaction of which so many elements were written, or outside any."""
        self.open, self.elements = transaction, elements
        self.rows.counts.clear()

    def _event(self, event: Event) -> None:
        if isinstance(event, RowChange):
            self._row(event)
        elif isinstance(event, Started):
            self._enter(event.transaction)
            self.started(event.transaction)
        elif isinstance(event, Ended):
            self._end(event)
            if event.complete and not event.transaction.snapshot:
                self.rows.last_end = event.transaction.end_lsn
        else:
            self.other(event)

    def _end(self, event: Ended) -> None:
        self.ended(event)
        self._enter(None)
        for text in self.after:
            self.write(text)
        self.after.clear()

    def _row(self, change: RowChange) -> None:
        before = self.next_separator()
        try:
            self.rows.write(change, before)
        except NoPlan as reason:
            self.no_plan(change, reason)
