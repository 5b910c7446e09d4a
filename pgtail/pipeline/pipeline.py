"""Messages to output: assembler, filter and output in one pass, in order and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pgtail.changes.assembler import Assembler
from pgtail.changes.events import (
    Change,
    Ended,
    Event,
    LogicalMessage,
    Note,
    Outcome,
    RowChange,
    SchemaChange,
    Started,
    Transaction,
)
from pgtail.changes.filters import Filter
from pgtail.changes.kept_rows import KeptRows
from pgtail.changes.relations import Relation
from pgtail.outputs.base import Output
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import AnyFrame, Decoder, FromClient
from pgtail.pipeline.fast_path import fast_path


class Pipeline:
    """Renders the changes that pass the filter.

    `note` is called with warnings. With a filter, a transaction is shown only if one of its changes passes. `shown`
    counts the shown transactions; `damaged` says that a warning reported lost input.

    The caller stops after `limit` shown transactions or at the LSN `until`. The fast path leaves the message that
    reaches one of them to feed().
    """

    def __init__(
        self,
        assembler: Assembler,
        output: Output,
        *,
        filter_: Filter | None = None,
        note: Callable[[Note], None],
        limit: int | None = None,
        until: int | None = None,
    ) -> None:
        self._assembler = assembler
        self._output = output
        self._filter = filter_ if filter_ is not None and filter_.active else None
        self._note = note
        self._waiting: Started | None = None
        self._interrupted: Transaction | None = None
        self._limit, self._until = limit, until
        self._fast_path = fast_path(assembler, output, self._filter)
        self._decoder: Decoder | None = None
        self._emit = output.event
        self.shown = 0
        self.rows = 0
        """How many rows were processed, shown or not."""
        self.messages = self.kept = 0
        """How many messages the fast path processed, and how many runs of streamed rows were buffered."""
        self.damaged = False
        self.end_lsn: int | None = None
        """Where to resume: the end LSN of the last transaction or outcome that was rendered or filtered."""

    @property
    def inside(self) -> bool:
        """Whether the stream is inside a transaction that is not streamed."""
        return self._assembler.open_transaction

    @property
    def commits_at(self) -> int | None:
        """The commit LSN of that transaction, or None."""
        return self._assembler.commits_at

    @property
    def unfinished(self) -> tuple[int | None, int] | None:
        """The xid of the open transaction with the most changes so far, and how many; any thread may ask."""
        found: list[tuple[int | None, int]] = list(self._assembler.streams.received.items())
        whole = self._assembler.whole
        if whole is not None:
            found.append((whole.xid, whole.changes))
        return max(found, key=lambda one: one[1], default=None)

    def attach_fast_path(self, decoder: Decoder) -> None:
        """Use the fast path for this decoder, if the output has one."""
        self._decoder = decoder
        fast = None if self._interrupted is not None else self._fast_path
        decoder.rows = None if fast is None else self._take_rows
        decoder.segment_rows = self._keep_rows
        self._assembler.take_kept = None if fast is None else self._take_kept

    def _take_rows(self, buf: Buffer, pos: int, end: int, framing: int) -> int:
        fast = self._fast_path
        assert fast is not None
        limit = None if self._limit is None else self._limit - self.shown
        pos = fast.take(buf, pos, end, framing, started=self._waiting is None, limit=limit, until=self._until)
        self.shown += fast.shown
        self.rows += fast.rows
        self.messages += fast.messages
        self.end_lsn = fast.end_lsn or self.end_lsn
        whole = self._assembler.whole
        # Inside an unstarted transaction or a stream segment the fast path did nothing.
        if self._filter is not None and (whole is not None or self._assembler.outside):
            self._waiting = None if whole is None or fast.started else Started(whole)
        return pos

    def _keep_rows(self, buf: Buffer, pos: int, end: int, framing: int) -> int:
        after = self._assembler.keep_rows(buf, pos, end, framing)
        self.kept += after > pos
        return after

    def _take_kept(self, transaction: Transaction, rows: KeptRows, tables: dict[int, Relation], pos: int) -> int:
        fast = self._fast_path
        assert fast is not None
        pos = fast.take_kept(transaction, rows, tables, pos, started=self._waiting is None)
        self.rows += fast.rows
        if fast.started:
            self._waiting = None
        return pos

    def feed(self, message: AnyFrame, lsn: int | None, offset: int | None = None) -> None:
        """One decoded message. Raises AssemblyError when strict, OutputError."""
        events = self._assembler.feed(message, lsn, offset)
        self._take(events if self._interrupted is None else self._skip_rendered(events))

    def restart(self, *, gap: bool) -> None:
        """The stream restarts, and the server repeats unfinished transactions.

        Changes of an interrupted transaction that were already rendered are skipped when they are repeated. After a
        `gap` nothing is repeated.
        """
        if gap:
            self.lost()
        self._take(self._assembler.streams.stop(complete=False))
        interrupted = self._assembler.restart()
        if interrupted is None:
            return
        if self._interrupted is not None:
            # Interrupted a second time, possibly earlier than the first time. Outputs use the first object.
            self._interrupted.changes = max(interrupted.changes, self._interrupted.changes)
            self._interrupted.messages = max(interrupted.messages, self._interrupted.messages)
            interrupted = self._interrupted
        self._set_interrupted(interrupted)

    def _set_interrupted(self, transaction: Transaction | None) -> None:
        """Skip the rendered part of this transaction when it is repeated; until then the fast path is off."""
        self._interrupted = transaction
        if self._decoder is not None:
            self.attach_fast_path(self._decoder)

    def lost(self) -> None:
        """Messages are missing here."""
        events = [*self._assembler.lost()]
        if self._interrupted is not None and not any(isinstance(event, Ended) for event in events):
            events.append(Ended(self._interrupted, complete=False))
        self._set_interrupted(None)
        self._take(events)

    def finish(self) -> None:
        """The source ended. Raises AssemblyError if strict and a transaction is open."""
        try:
            self._take(self._assembler.finish())
        finally:
            self._output.finish()

    def break_off(self) -> None:
        """The source failed: complete the output so that it is well formed."""
        self.lost()
        self._output.finish()

    def _skip_rendered(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events that were not rendered before the stream restarted.

        Changes are identified by (commit LSN, seq), logical messages by their number. Outputs continue with the
        Transaction object that they already have.
        """
        for event in events:
            interrupted = self._interrupted
            if interrupted is None or isinstance(event, Note | SchemaChange | Outcome | FromClient):
                yield event
            elif event.transaction is not None and not event.transaction.settled:
                continue  # outputs are still inside the interrupted transaction
            elif isinstance(event, Started):
                if event.transaction.lsn == interrupted.lsn:
                    continue
                self._set_interrupted(None)
                yield Ended(interrupted, complete=False)
                yield event
            elif isinstance(event, Ended):
                self._set_interrupted(None)
                interrupted.take_over(event.transaction)
                yield Ended(interrupted, complete=event.complete)
            elif event.transaction is None:
                yield event
            else:
                now = event.transaction
                if isinstance(event, LogicalMessage):
                    new = now.messages > interrupted.messages
                else:
                    new = now.changes > interrupted.changes
                if new:
                    event.transaction = interrupted
                    yield event

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.__class__ is RowChange:
                self.rows += 1
                if self._filter is None:
                    self._emit(event)
                else:
                    self._filtered(self._filter, event)
            elif isinstance(event, Ended):
                self._end(event)
            elif isinstance(event, Note):
                self._warn(event)
            elif isinstance(event, Outcome):
                self._outcome(event)
            elif self._filter is None or isinstance(event, FromClient):
                self._emit(event)
            else:
                self._filtered(self._filter, event)

    def _filtered(self, filter_: Filter, event: Started | Change | SchemaChange) -> None:
        if isinstance(event, Started):
            self._waiting = event
        elif isinstance(event, SchemaChange):
            if filter_.described(event):
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

    def _warn(self, note: Note) -> None:
        self.damaged = self.damaged or note.damage
        self._note(note)

    def _outcome(self, outcome: Outcome) -> None:
        if self._filter is None or self._filter.outcome_passes(outcome):
            self._emit(outcome)
        self.end_lsn = outcome.end_lsn
