"""Floor 6, frames -> decoder -> assembler -> filter -> output: one pass, in order, in bounded memory; opens nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pgtail.assembler import Assembler
from pgtail.filters import Filter
from pgtail.outputs.base import Output
from pgtail.transaction import Change, Ended, Event, Note, Outcome, SchemaChange, Started
from pgtail.wire.decoder import AnyFrame


class Pipeline:
    """Takes decoded messages and renders what passes the filter.

    `note` is told what is worth a word. A transaction of which nothing passes is not shown; without a filter every
    transaction is. `shown` counts the transactions that were, `damaged` says that a note told of lost input.
    """

    def __init__(
        self, assembler: Assembler, output: Output, *, filter_: Filter | None = None, note: Callable[[Note], None]
    ) -> None:
        self._assembler = assembler
        self._output = output
        self._filter = filter_ if filter_ is not None and filter_.active else None
        self._note = note
        self._waiting: Started | None = None
        self._emit = output.event
        self.shown = 0
        self.damaged = False
        self.end_lsn: int | None = None
        """The end LSN of the last transaction, outcome or message that was rendered or filtered: where to resume."""

    def feed(self, message: AnyFrame, lsn: int | None, offset: int | None = None) -> None:
        """One decoded message. Raises AssemblyError when strict, OutputError."""
        self._take(self._assembler.feed(message, lsn, offset))

    def lost(self) -> None:
        """Messages were skipped here."""
        self._take(self._assembler.lost())

    def finish(self) -> None:
        """The source ended; raises AssemblyError when strict and something was left open."""
        try:
            self._take(self._assembler.finish())
        finally:
            self._output.finish()

    def break_off(self) -> None:
        """The source broke off with an error: what was rendered is closed well formed."""
        self._take(self._assembler.lost())
        self._output.finish()

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Ended):
                self._end(event)
            elif isinstance(event, Note):
                self._tell(event)
            elif isinstance(event, Outcome):
                self._outcome(event)
            elif self._filter is None:
                self._emit(event)
            else:
                self._filtered(self._filter, event)

    def _filtered(self, filter_: Filter, event: Started | Change | SchemaChange) -> None:
        if isinstance(event, Started):
            self._waiting = event
        elif isinstance(event, SchemaChange):
            if filter_.table_passes(event.now):
                self._emit(event)
        elif filter_.passes(event):
            if self._waiting is not None and event.transaction is not None:
                self._emit(self._waiting)
                self._waiting = None
            self._emit(event)

    def _end(self, event: Ended) -> None:
        transaction = event.transaction
        if self._waiting is None:
            self._emit(event)
            self.shown += bool(transaction.changes or transaction.messages)
        self._waiting = None
        if event.complete and transaction.end_lsn is not None:
            self.end_lsn = transaction.end_lsn

    def _tell(self, note: Note) -> None:
        self.damaged = self.damaged or note.damage
        self._note(note)

    def _outcome(self, outcome: Outcome) -> None:
        if self._filter is None or self._filter.outcome_passes(outcome):
            self._emit(outcome)
        self.end_lsn = outcome.end_lsn
