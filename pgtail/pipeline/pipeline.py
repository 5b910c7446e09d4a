"""Messages to output: assembler, filter and output in one pass, in order and in bounded memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from pgtail.changes.assembler import Assembler
from pgtail.changes.ddl import PREFIX, DdlReader
from pgtail.changes.events import (
    Change,
    Described,
    Ended,
    Event,
    LogicalMessage,
    Note,
    Outcome,
    RowChange,
    Rows,
    SchemaChange,
    SnapshotEnded,
    Started,
    Transaction,
    UndecodedRows,
)
from pgtail.changes.filters import Filter
from pgtail.native import compiled
from pgtail.native.batch import Batches, RowFilter, SeenFiller, Slice
from pgtail.outputs.base import Output
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import AnyFrame, FromClient
from pgtail.pipeline.stop import Stop

if TYPE_CHECKING:
    from pgtail.capture.contents import SegmentContents
    from pgtail.changes.redaction import Redaction
    from pgtail.changes.seen_rows import SeenRows
    from pgtail.pipeline.table_rows import TableRowCounter
    from pgtail.service.progress import TableRows

MOST_PREPARED: Final = 1 << 18
"""Prepared transactions that are remembered: more than a server can have (MAX_BACKENDS), so others were lost."""


_PART: Final = 256
"""Events of a transaction that are processed at once."""


class Seen(NamedTuple):
    """How many transactions ended, the least and the greatest time of their commits, and whether no filter passed any.

    `past` is the commit time of the transaction before which --until ended, `contexts` how many logical messages gave
    the changes after them a context. Times are in microseconds since 2000-01-01 UTC; None if none is known.
    """

    transactions: int = 0
    times: tuple[int, int] | None = None
    nothing_passed: bool = True
    past: int | None = None
    contexts: int = 0


class Pipeline:
    """Renders the changes that pass the filter, with the values masked that `redaction` covers.

    `note` is called with warnings. With a filter, a transaction is shown only if one of its changes passes, and a
    snapshot if its table does. `shown` counts the shown transactions, not snapshots, and prepared ones when they are
    committed if the output needs outcomes. `damaged` says that a warning reported lost input, or that the output lacks
    changes. `seen_rows` fill in unsent values of old rows, also for the filter; the assembler then sends descriptions.
    A `counter` is for rows_by_table(). With `one_by_one` take_buffer() returns after each shown transaction.
    `context` is the prefix of the logical messages that give it to the changes after them.

    Pass the bytes to take_buffer() first, then the message that it leaves to feed(). The caller asks `stop` before and
    after each message whether to continue; take_buffer() leaves the message that reaches `limit` or `until`.
    """

    def __init__(
        self,
        assembler: Assembler,
        output: Output,
        *,
        filter_: Filter | None = None,
        redaction: Redaction | None = None,
        note: Callable[[Note], None],
        limit: int | None = None,
        until: int | None = None,
        seen_rows: SeenRows | None = None,
        counter: TableRowCounter | None = None,
        one_by_one: bool = False,
        context: str | None = None,
    ) -> None:
        self._assembler = assembler
        self._output = output
        output.seen_rows = seen_rows
        self._filter = filter_ if filter_ is not None and filter_.active else None
        self._redaction = redaction
        self._context = context
        self._contexts = 0
        self._note = note
        self._counter = counter
        self.seen_rows = seen_rows
        self._waiting: Started | None = None
        self._prepared: dict[int | None, bool] = {}
        """The selected prepared transactions without an outcome, by xid, oldest first: whether a change was shown."""
        self._counts = limit is not None or one_by_one
        """Whether the caller needs to know how many were shown."""
        self.stop = Stop(filter_ or Filter(), limit=limit, until=until, one_by_one=one_by_one)
        output.mask = None if redaction is None else redaction.shown
        needs_events = not output.takes_slices or (self._filter is not None and self._filter.needs_events)
        module = None if needs_events else compiled()
        self._batches: Batches | None = None
        """None: every message is decoded."""
        self._row_filter: RowFilter | None = None
        self._seen_filler: SeenFiller | None = None
        if module is not None:
            self._batches = Batches(module.index)
            self._row_filter = None if self._filter is None else module.RowFilter(self._filter)
            self._seen_filler = None if seen_rows is None else module.SeenFiller(seen_rows)
        self._emit: Callable[[Event], None] = output.event
        if redaction is not None:
            self._emit = lambda event: output.event(redaction.event(event))
        self._in_parts = False
        self.shown = 0
        self.rows = self.left_out = 0
        """How many rows were processed, and how many of them did not pass the filter."""
        self.transactions = 0
        """How many transactions ended, shown or not; snapshots are none."""
        self.times: tuple[int, int] | None = None
        """The least and the greatest time of their commits, as far as these are known."""
        self._ddl = DdlReader()
        self._ddl_noted = False
        self._passed = False
        self.messages = self.kept = 0
        """How many messages take_buffer() processed, and how many runs of streamed rows it buffered."""
        self.damaged = False
        self.gap = False
        """Whether changes between two sessions were not read."""
        self.broken_off: Transaction | None = None
        """The transaction in which break_off() came, if changes of it were shown."""
        self.end_lsn: int | None = None
        """Where to resume: the end LSN of the last transaction or outcome that was rendered or filtered."""

    @property
    def seen(self) -> Seen:
        """The transactions read so far."""
        nothing = self._filter is not None and not self._passed and self.rows == self.left_out
        return Seen(self.transactions, self.times, nothing, self.stop.past, self._contexts)

    def rows_by_table(self) -> list[TableRows] | None:
        """How many rows of each table were processed; None if they are not counted. Any thread may ask."""
        if self._counter is None:
            return None
        return self._counter.rows()

    @property
    def inside(self) -> bool:
        """Whether the stream is inside a transaction that is not streamed, or between two tables of a snapshot; also
        while feed_in_parts() is inside a streamed one."""
        return self._in_parts or self._assembler.open_transaction is not None or self._assembler.in_snapshot

    @property
    def commits_at(self) -> int | None:
        """The commit LSN of that transaction, or None."""
        return self._assembler.commits_at

    @property
    def unfinished(self) -> tuple[int | None, int] | None:
        """The xid of the open transaction with the most changes so far, and how many; any thread may ask."""
        found: list[tuple[int | None, int]] = list(self._assembler.streams.received.items())
        open_ = self._assembler.open_transaction
        if open_ is not None and open_.begun and not open_.snapshot:
            found.append((open_.xid, open_.changes))
        return max(found, key=lambda one: one[1], default=None)

    def take_buffer(self, buf: Buffer, pos: int, end: int, framing: int, in_stream: bool | None) -> int:
        """Process messages of buf[pos:end] undecoded; returns where the first one starts that must be decoded.

        `in_stream` is that of the decoder.
        """
        assembler = self._assembler
        if in_stream:
            after = assembler.keep_rows(buf, pos, end, framing)
            self.kept += after > pos
            return after
        if self._batches is None or in_stream is None:
            return pos
        while True:
            transaction = assembler.started_transaction
            if not (self._takes(transaction) if transaction else self._output.takes_whole):
                return pos
            slice_ = assembler.next_slice(self._batches, buf, pos, end, framing)
            if slice_ is None:
                return pos
            self._prepare(slice_, transaction)
            if slice_.stop == pos:
                return pos
            pos, shown = slice_.stop, self.shown
            self._take_rows(assembler.take_slice(slice_))
            if self.stop.one_by_one and self.shown > shown:
                return pos

    def _takes(self, transaction: Transaction) -> bool:
        """Whether rows of this transaction, which has begun, need not be decoded."""
        if transaction.messages and not transaction.changes:
            return False  # it is shown for its logical messages, which a slice does not count
        if transaction.context is not None and self._filter is not None and self._filter.tests_context:
            return False
        # The rows of a prepared transaction are not remembered yet.
        return self._output.takes(transaction) and (self.seen_rows is None or transaction.state is None)

    def _prepare(self, slice_: Slice, transaction: Transaction | None) -> None:
        """Cut a slice that follows, inside this transaction; fill in old rows and mark the rows that are shown."""
        self.stop.cut(slice_)
        if not self._output.takes_whole or (self._counts and self._seen_filler is not None):
            slice_.end_inside()  # what is remembered must be taken, so cut_shown() comes too late
        if self._seen_filler is not None:
            self._seen_filler.fill(slice_)
        if self._row_filter is not None:
            self._row_filter.mark(slice_, transaction, self._waiting is None)
        self.stop.cut_shown(slice_, self.shown)

    def _take_rows(self, rows: Rows) -> None:
        totals = rows.totals
        self.rows += totals.rows
        self.left_out += totals.left_out
        if self._filter is not None:
            self._filter.not_sent += totals.not_sent
            self._waiting = None if rows.open is None or totals.started else Started(rows.open)
        self.messages += totals.messages
        self.shown += totals.shown
        if totals.times is not None:
            self._count(totals.transactions, *totals.times)
        if self._counter is not None:
            self._counter.take_slice(rows.slice)
        self._output.write_rows(rows)
        self.end_lsn = totals.end_lsn or self.end_lsn

    def _take_buffered(self, rows: UndecodedRows) -> None:
        """Process rows of a streamed transaction undecoded, up to the first one that must be decoded."""
        transaction, end = rows.transaction, len(rows.data)
        if self._batches is None or not transaction.begun or not self._takes(transaction):
            return
        while rows.pos < end:
            batch = self._batches.at(rows.data, rows.pos, end, rows.framing, in_stream=True)
            slice_ = batch.slice(rows.pos, rows.tables, transaction)
            if slice_ is None:
                return
            self._prepare(slice_, transaction)
            if slice_.stop == rows.pos:
                return
            totals = slice_.totals()
            transaction.changes, rows.pos = totals.changes, slice_.stop
            self._take_rows(Rows(slice_, totals._replace(messages=0), transaction, transaction))
            if slice_.stop < batch.stop:
                return

    def feed(self, message: AnyFrame, lsn: int | None, offset: int | None = None) -> None:
        """One decoded message. Raises AssemblyError when strict, OutputError."""
        self._take_events(self._assembler.feed(message, lsn, offset))

    def feed_in_parts(self, message: AnyFrame, lsn: int | None, offset: int | None = None) -> Iterator[None]:
        """As feed(), for a message after which a whole transaction may come; yields after each part of it."""
        events = iter(self._assembler.feed(message, lsn, offset))
        self._in_parts = True
        try:
            for event in events:
                self._take_events(itertools.chain((event,), itertools.islice(events, _PART - 1)))
                yield
        finally:
            self._in_parts = False

    def describe(self, message: AnyFrame, lsn: int | None) -> None:
        """Process a description that precedes the messages to show; write nothing."""
        for event in self._assembler.describe(message, lsn):
            if self._redaction is not None:
                self._redaction.learn(event.before, event.now)
            if self._filter is not None:
                self._filter.described(event)

    @property
    def settled(self) -> bool:
        """Whether the stream is outside of transactions, and the rest depends only on its tables."""
        assembler = self._assembler
        return assembler.outside and assembler.settled and not self._prepared and self._output.settled

    def add_seen(self, seen: Seen) -> None:
        """Count what another pipeline has seen of the same stream."""
        self._count(seen.transactions, *(seen.times or (None, None)))
        self._passed = self._passed or not seen.nothing_passed
        self._contexts += seen.contexts

    @property
    def may_skip(self) -> bool:
        """Whether skips() may say yes."""
        return self._filter is not None and self._filter.may_skip and self.seen_rows is None

    def skips(self, contents: SegmentContents) -> bool:
        """Whether the next segment of a capture can be skipped, as nothing of it would be shown.

        Its tables and prepared transactions are then noted as if it had been read. Call this after everything before
        it was processed.
        """
        filter_, tables = self._filter, contents.tables
        if filter_ is None or tables is None or self._is_shown or self._needs(filter_, contents):
            return False
        if self._context is not None and contents.messages:
            return False
        described = {(table.schema, table.table): table.descriptions > 0 for table in tables}
        if not filter_.skips(described, contents.messages, contents.ddl, contents.xids, contents.times):
            return False
        self._assembler.skip([one.gid for one in contents.prepared], [one.gid for one in contents.outcomes])
        self._waiting = None
        for transaction in contents.prepared:
            if not filter_.xids or transaction.xid in filter_.xids:
                self._remember(transaction.xid, shown=False)
        for outcome in contents.outcomes:
            self._prepared.pop(outcome.xid, None)
        return True

    @property
    def _is_shown(self) -> bool:
        """Whether the stream is inside a transaction or snapshot whose end may be shown."""
        assembler, open_ = self._assembler, self._assembler.open_transaction
        if open_ is None:
            return not assembler.outside or bool(assembler.streams.open)
        started = assembler.started_transaction is not None
        if open_.snapshot or not open_.begun:
            return True
        return started and self._waiting is None and (self._output.needs_end or self._counts)

    def _needs(self, filter_: Filter, contents: SegmentContents) -> bool:
        """Whether a segment may have the end of a selected transaction, or an outcome to show or note."""
        last = None if contents.times is None else contents.times[1]
        if filter_.commits.is_past(contents.position, last):
            return True
        if (contents.prepared or contents.outcomes) and (filter_.commits.active or filter_.ops):
            return True
        return any(
            not self._assembler.is_prepared(one.gid)
            or not (self._prepared.get(one.xid) is False or (filter_.xids and one.xid not in filter_.xids))
            for one in contents.outcomes
        )

    def restart(self, *, gap: bool) -> None:
        """The stream restarts, and the server repeats unfinished transactions; after a `gap` it repeats nothing."""
        if gap:
            self.gap = True
            self.lost()
        if self.seen_rows is not None:
            self.seen_rows.restart()
        self._take_events(self._assembler.restart())

    def lost(self) -> None:
        """Messages are missing here."""
        self.forget_rows("messages are missing there")
        self._take_events(self._assembler.lost())

    def forget_rows(self, why: str) -> None:
        """The next messages may not follow the previous ones: forget the seen rows."""
        if self.seen_rows is not None:
            self.seen_rows.forget_all(why)

    def new_file(self) -> None:
        """The following output goes to another file."""
        self._output.new_file()

    def finish(self) -> None:
        """The source ended. Raises AssemblyError if strict and a transaction is open."""
        try:
            self._take_events(self._assembler.finish())
        finally:
            self._output.finish()
            self.damaged = self.damaged or self._output.lacks_changes

    def break_off(self) -> None:
        """The source failed: complete the output so that it is well formed."""
        open_ = self._assembler.interrupted or self._assembler.open_transaction
        shown = open_ is not None and open_.begun and open_.count > 0 and self._waiting is None
        self.broken_off = open_ if shown else None
        self.lost()
        self._output.finish()
        self.damaged = self.damaged or self._output.lacks_changes

    def _take_events(self, events: Iterable[Event]) -> None:
        seen_rows, counter = self.seen_rows, self._counter
        for event in events:
            if seen_rows is not None:
                seen_rows.take_event(event)
            if counter is not None:
                counter.take_event(event)
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
            elif isinstance(event, UndecodedRows):
                self._take_buffered(event)
            elif not isinstance(event, Described):
                self._show(event)

    def _schema_change(self, message: LogicalMessage) -> LogicalMessage:
        """The schema change in a logical message, or the message itself if it has another form."""
        try:
            return self._ddl.read(message)
        except ValueError as error:
            if not self._ddl_noted:
                self._ddl_noted = True
                self._warn(Note(f"a logical message {message.prefix} is shown as it is: {error}"))
            return message

    def _show(self, event: Started | Change | SchemaChange | FromClient | SnapshotEnded) -> None:
        if isinstance(event, LogicalMessage) and event.prefix == PREFIX:
            event = self._schema_change(event)
        if self._filter is None or isinstance(event, FromClient | SnapshotEnded):
            self._emit(event)
        else:
            self._filtered(self._filter, event)
        if isinstance(event, LogicalMessage) and event.prefix == self._context:
            self._take_context(event)

    def _take_context(self, message: LogicalMessage) -> None:
        """The context of the changes after this message in its transaction, unless it alone was rolled back."""
        from pgtail.changes.context import Context  # it loads json

        transaction, content, redaction = message.transaction, message.content, self._redaction
        if transaction is not None and message.aborted is transaction.aborted:
            self._contexts += 1
            shown = content if redaction is None else redaction.masked_context(content)
            transaction.context = Context(content, shown)

    def _filtered(self, filter_: Filter, event: Started | Change | SchemaChange) -> None:
        if isinstance(event, Started):
            if event.transaction.snapshot and filter_.snapshot_passes(event.transaction):
                self._emit(event)
            else:
                self._waiting = event
        elif isinstance(event, SchemaChange):
            if filter_.described(event):
                self._emit(event)
        elif filter_.passes(event):
            self._passed = True
            if self._waiting is not None and event.transaction is not None:
                self._emit(self._waiting)
                self._waiting = None
            self._emit(event)
        elif isinstance(event, RowChange):
            self.left_out += 1

    def _count(self, transactions: int, first: int | None, last: int | None) -> None:
        """Count transactions that ended, from their first to their last time."""
        self.transactions += transactions
        if first is not None and last is not None:
            low, high = self.times or (first, last)
            self.times = min(low, first), max(high, last)

    def _end(self, event: Ended) -> None:
        transaction = event.transaction
        if not transaction.snapshot:
            self._count(1, transaction.time, transaction.time)
        shown = self._waiting is None and bool(transaction.count or transaction.messages)
        if self._waiting is None:
            self._emit(event)
        self._waiting = None
        if transaction.state == "prepared" and (self._filter is None or self._filter.selects(transaction)):
            self._remember(transaction.xid, shown=shown and event.complete)
        if transaction.state != "prepared" or not self._output.needs_outcomes:
            self.shown += shown and not transaction.snapshot
        if event.complete and transaction.end_lsn is not None:
            self.end_lsn = transaction.end_lsn

    def _remember(self, xid: int | None, *, shown: bool) -> None:
        """A transaction was prepared."""
        self._prepared.pop(xid, None)
        self._prepared[xid] = shown
        if len(self._prepared) > MOST_PREPARED:
            del self._prepared[next(iter(self._prepared))]

    def _warn(self, note: Note) -> None:
        self.damaged = self.damaged or note.damage
        self._note(note)

    def _outcome(self, outcome: Outcome) -> None:
        filter_, needed = self._filter, self._output.needs_outcomes
        shown = self._prepared.pop(outcome.xid, None)
        passes = filter_ is None or filter_.outcome_passes(outcome, shown)
        if filter_ is not None and needed:
            passes = filter_.selects_outcome(outcome) and shown is not False
        if passes:
            self._passed = True
            self._emit(outcome)
            self.shown += needed and shown is True and outcome.op == "commit_prepared"
        self.end_lsn = outcome.end_lsn
