"""The base of outputs whose rows are plans: the scanner or outputs/rows.py writes the rows, the output the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from pgtail.changes.events import Ended, Event, RowChange, Started, Transaction
from pgtail.files.sink import Sink
from pgtail.native.plan import NoPlan, Plan
from pgtail.outputs.base import OutputOptions
from pgtail.outputs.prepared import PreparedBuffer
from pgtail.outputs.rows import Clock, Rows, Shape, Write


class PlannedOutput:
    """Writes the events of one stream; rows by the plans of row(), transactions by `begin` and `end`.

    A subclass implements row() and other(), and may override started(), ended() and no_plan().
    """

    begin: Plan = ()
    """Written at the start of a transaction."""
    end: Plan = ()
    """Written at its end, if it is complete."""
    separator = b""
    """Written between the elements of a transaction (rows, truncates, messages)."""
    buffers_prepared: ClassVar[bool] = False
    """Whether a prepared transaction is written on its commit only."""
    one_by_one: ClassVar[bool] = False
    """Whether `write` must be called for each row."""
    events_only = False
    """Whether all rows must go through event(), none through the scanner."""

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        self.write: Write = sink.write
        self.options = options
        self.clock: Clock = time.time_ns
        self.rows = Rows(self.row, self.clock)
        self.open: Transaction | None = None
        """The transaction that was started and not ended."""
        self.elements = 0
        """How many elements of it were written."""
        self._prepared = PreparedBuffer(self._event, options.tell) if self.buffers_prepared else None
        self.event: Callable[[Event], None] = self._event if self._prepared is None else self._prepared.event

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        """The plan for the rows of this shape, and what they are written to. Raises NoPlan if there is none."""
        raise NotImplementedError

    def other(self, event: Event) -> None:
        """Write an event that is no row and no start or end of a transaction."""

    def no_plan(self, change: RowChange) -> None:
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

    def finish(self) -> None:
        if self._prepared is not None:
            self._prepared.finish()
        self.close()

    def close(self) -> None:
        """Complete what is open at the end of the input or after an error."""

    def next_separator(self) -> bytes:
        """What to write before the next element of the open transaction."""
        self.elements += 1
        return self.separator if self.elements > 1 else b""

    def resume(self, transaction: Transaction | None, elements: int, last_end: int | None) -> None:
        """The scanner wrote rows: the output is now inside this transaction with so many elements, or outside any."""
        self.open, self.elements, self.rows.last_end = transaction, elements, last_end
        if self._prepared is not None:
            self._prepared.inside = transaction

    def _event(self, event: Event) -> None:
        if isinstance(event, RowChange):
            self._row(event)
        elif isinstance(event, Started):
            self.open, self.elements = event.transaction, 0
            self.started(event.transaction)
        elif isinstance(event, Ended):
            self.ended(event)
            self.open = None
            if event.complete:
                self.rows.last_end = event.transaction.end_lsn
        else:
            self.other(event)

    def _row(self, change: RowChange) -> None:
        before = self.next_separator()
        try:
            self.rows.write(change, before)
        except NoPlan:
            self.no_plan(change)
