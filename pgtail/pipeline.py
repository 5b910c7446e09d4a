"""Floor 6, frames -> decoder -> assembler -> filter -> output: one pass, in order, in bounded memory; opens nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pgtail.assembler import Assembler
from pgtail.filters import Filter
from pgtail.keptrows import KeptRows
from pgtail.outputs.base import Output
from pgtail.relations import Relation
from pgtail.shortway import Ahead, short_way
from pgtail.transaction import (
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
from pgtail.wire.cursor import Buffer
from pgtail.wire.decoder import AnyFrame, Decoder


class Pipeline:
    """Takes decoded messages and renders what passes the filter.

    `note` is told what is worth a word. A transaction of which nothing passes is not shown; without a filter every
    transaction is. `shown` counts the transactions that were, `damaged` says that a note told of lost input.

    `limit` and `until` say where the caller will stop: at so many transactions shown, at this position. The message
    that reaches them is always fed.
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
        self._half: Transaction | None = None
        self._limit, self._until = limit, until
        self._short = short_way(assembler, output, self._filter)
        self._decoder: Decoder | None = None
        self._emit = output.event
        self.shown = 0
        self.rows = 0
        """How many rows there were, shown or not."""
        self.damaged = False
        self.end_lsn: int | None = None
        """The end LSN of the last transaction, outcome or message that was rendered or filtered: where to resume."""

    @property
    def inside(self) -> bool:
        """Whether a transaction is under way that is not streamed."""
        return self._assembler.open_transaction

    def shorten(self, decoder: Decoder) -> None:
        """Let the output take ordinary rows of this decoder straight from the bytes, where it can."""
        self._decoder = decoder
        short = None if self._half is not None else self._short
        decoder.rows = None if short is None else self._take_rows
        decoder.segment_rows = self._assembler.keep_rows
        self._assembler.take_kept = None if short is None else self._take_kept

    def ahead(self, write: Callable[[bytes], object]) -> Ahead | None:
        """What takes rows ahead of feeding them, where those of a transaction that begins now go to `write`."""
        short, decoder = self._short, self._decoder
        if short is None or decoder is None or decoder.rows is None or decoder.in_stream is not False:
            return None
        return None if self._limit is not None else short.ahead(write, self._until)

    def _take_rows(self, buf: Buffer, pos: int, end: int, framing: int) -> int:
        short = self._short
        assert short is not None
        most = None if self._limit is None else self._limit - self.shown
        pos = short.take(buf, pos, end, framing, passed=self._waiting is None, most=most, until=self._until)
        self.shown += short.shown
        self.rows += short.rows
        self.end_lsn = short.end_lsn or self.end_lsn
        whole = self._assembler.whole
        if self._filter is not None:
            self._waiting = None if whole is None or short.passed else Started(whole)
        return pos

    def _take_kept(self, transaction: Transaction, rows: KeptRows, tables: dict[int, Relation], pos: int) -> int:
        short = self._short
        assert short is not None
        pos = short.take_kept(transaction, rows, tables, pos, passed=self._waiting is None)
        self.rows += short.rows
        if short.passed:
            self._waiting = None
        return pos

    def feed(self, message: AnyFrame, lsn: int | None, offset: int | None = None) -> None:
        """One decoded message. Raises AssemblyError when strict, OutputError."""
        events = self._assembler.feed(message, lsn, offset)
        self._take(events if self._half is None else self._not_seen(events))

    def restart(self, *, gap: bool) -> None:
        """The stream begins again, with whatever was not finished.

        What was rendered of a transaction that was cut off is passed over when it comes again; behind a `gap` nothing
        comes again.
        """
        if gap:
            self.lost()
        self._take(self._assembler.streams.stop(complete=False))
        half = self._assembler.restart()
        if half is None:
            return
        if self._half is not None:
            # It was cut off a second time, perhaps earlier than the first time. Outputs know the first object.
            self._half.changes = max(half.changes, self._half.changes)
            self._half.messages = max(half.messages, self._half.messages)
            half = self._half
        self._pass_over(half)

    def _pass_over(self, half: Transaction | None) -> None:
        """Pass over what was rendered of this transaction, when it comes again; no short way meanwhile."""
        self._half = half
        if self._decoder is not None:
            self.shorten(self._decoder)

    def lost(self) -> None:
        """Messages were skipped here."""
        events = [*self._assembler.lost()]
        if self._half is not None and not any(isinstance(event, Ended) for event in events):
            events.append(Ended(self._half, complete=False))
        self._pass_over(None)
        self._take(events)

    def finish(self) -> None:
        """The source ended; raises AssemblyError when strict and something was left open."""
        try:
            self._take(self._assembler.finish())
        finally:
            self._output.finish()

    def break_off(self) -> None:
        """The source broke off with an error: what was rendered is closed well formed."""
        self.lost()
        self._output.finish()

    def _not_seen(self, events: Iterable[Event]) -> Iterator[Event]:
        """Events without those that were rendered before the stream began again.

        (commit LSN, seq) tells which, of messages their number. Outputs go on with the Transaction that they know.
        """
        for event in events:
            half = self._half
            if half is None or isinstance(event, Note | SchemaChange | Outcome):
                yield event
            elif event.transaction is not None and not event.transaction.settled:
                continue  # outputs are inside of the transaction that is awaited
            elif isinstance(event, Started):
                if event.transaction.lsn == half.lsn:
                    continue
                self._pass_over(None)
                yield Ended(half, complete=False)
                yield event
            elif isinstance(event, Ended):
                self._pass_over(None)
                half.take_over(event.transaction)
                yield Ended(half, complete=event.complete)
            elif event.transaction is None:
                yield event
            else:
                now = event.transaction
                new = now.messages > half.messages if isinstance(event, LogicalMessage) else now.changes > half.changes
                if new:
                    event.transaction = half
                    yield event

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            self.rows += isinstance(event, RowChange)
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

    def _tell(self, note: Note) -> None:
        self.damaged = self.damaged or note.damage
        self._note(note)

    def _outcome(self, outcome: Outcome) -> None:
        if self._filter is None or self._filter.outcome_passes(outcome):
            self._emit(outcome)
        self.end_lsn = outcome.end_lsn
