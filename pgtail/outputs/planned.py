"""The base of outputs whose rows are plans: the scanner or outputs/rows.py writes the rows, the output the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from pgtail.changes.events import Ended, Event, RowChange, Started, Transaction
from pgtail.changes.filters import Filter
from pgtail.changes.relations import Relation
from pgtail.files.sink import Sink
from pgtail.local_time import is_utc
from pgtail.native import Scanner, Written, compiled
from pgtail.native.plan import NoPlan, Plan
from pgtail.outputs import OutputOptions
from pgtail.outputs.base import Mask
from pgtail.outputs.choice import ColumnChoice
from pgtail.outputs.fields import Clock, local_time
from pgtail.outputs.prepared import PreparedBuffer
from pgtail.outputs.rows import Rows, Shape, Write
from pgtail.outputs.written import Once, WrittenTables

if TYPE_CHECKING:
    from pgtail.changes.seen_rows import SeenRows


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
    seen_rows: SeenRows | None = None
    """See Output."""
    lacks_changes = False
    """See Output."""
    rows_alone: ClassVar[bool] = False
    """Whether it writes nothing of a transaction but its changes and `begin`, `end` and the like."""
    one_by_one: ClassVar[bool] = False
    """Whether `write` must be called for each row."""
    changed_only: ClassVar[bool] = False
    """Whether it always shows of an update what --changed shows."""
    events_only = False
    """Whether all rows must go through event(), none through the scanner."""

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        self.write: Write = sink.write
        self.options = options
        self.once = Once()
        self.choice = ColumnChoice(options, changed=self.changed_only, once=self.once)
        self.clock: Clock = time.time_ns
        self.local_time = None if is_utc() else lru_cache(maxsize=8)(local_time)
        """The text of Field.TIME, which the rows of a transaction share; the scanner itself knows UTC."""
        self.rows = Rows(self.row, self.clock, one_by_one=self.one_by_one)
        self.open: Transaction | None = None
        """The transaction that was started and not ended."""
        self.elements = 0
        """How many elements of it were written."""
        self.written = WrittenTables()
        self.left_out = 0
        """See Output."""
        self.after: list[bytes] = []
        """Texts to write after its end. The scanner does not write the end of a transaction if there are any."""
        self._prepared = PreparedBuffer(self._event, options.tell, options.spool) if self.buffers_prepared else None
        self.needs_outcomes = self.needs_outcomes or self.buffers_prepared
        self.event: Callable[[Event], None] = self._event if self._prepared is None else self._prepared.event

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        """The plan for the rows of this shape, and what they are written to. Raises NoPlan if there is none."""
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
        self.choice.tell_unused()

    def new_file(self) -> None:
        """Write again what a file begins with."""

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
        """What to write before the next element of the open transaction."""
        self.elements += 1
        return self.separator if self.elements > 1 else b""

    def scanner(
        self, find: Callable[[int], Relation | None], filter_: Filter | None, mask: Mask | None = None
    ) -> Scanner | None:
        fast = compiled()
        if fast is None or self.events_only:
            return None

        def shape_of(relation: Relation, op: str, old_kind: str) -> Shape:
            columns = len(relation.columns)
            shown = relation if mask is None else mask(relation)
            return Shape(shown, op, old_kind, columns if old_kind else None, None if op == "delete" else columns)

        def plan_of(relation: Relation, op: str, old_kind: str) -> tuple[Plan, Write] | None:
            try:
                return self.row(shape_of(relation, op, old_kind))
            except NoPlan:
                return None

        scanner: Scanner = fast.TextScanner(find, filter_, plan_of, self)
        return scanner

    def takes(self, transaction: Transaction) -> bool:
        return not self.after and (transaction.state is None or not self.buffers_prepared)

    def before_run(self) -> Written:
        return Written(self.elements, self.rows.counts, {})

    def after_run(self, written: Written | None, transaction: Transaction | None) -> None:
        assert written is not None
        self._enter(transaction, written.elements)
        self.rows.resume(written.counts)
        if self._prepared is not None:
            self._prepared.inside = transaction is not None

    def _enter(self, transaction: Transaction | None, elements: int = 0) -> None:
        """The output is inside a transaction of which so many elements were written, or outside any."""
        self.open, self.elements = transaction, elements
        self.rows.resume({})

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
