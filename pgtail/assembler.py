"""Floor 3, messages -> transactions: the only place that knows which message may follow which; no bytes, no output.

The rules are the table STEPS at the end: (state, message) -> what to do. A message without an entry is out of place:
a note and a best effort, or an AssemblyError where `strict`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final, TypeAlias

from pgtail import changes
from pgtail.changes import ChangeMessage, logical_message, odd_tuple, outcome_of, row_change, table_truncate
from pgtail.errors import AssemblyError
from pgtail.relations import Relations
from pgtail.streambuffer import StreamBuffer
from pgtail.streams import Streams, TakeKept
from pgtail.transaction import Change, Ended, Event, LogicalMessage, Note, SchemaChange, Started, Transaction
from pgtail.uncommitted import Show
from pgtail.values import Types
from pgtail.wire.capture import Continued
from pgtail.wire.cursor import Buffer
from pgtail.wire.decoder import AnyFrame, Unknown
from pgtail.wire.rows import Delete, Insert, Truncate, Update
from pgtail.wire.schema import Relation as RelationMessage
from pgtail.wire.schema import Type as TypeMessage
from pgtail.wire.stream import StreamAbort, StreamCommit, StreamStart, StreamStop
from pgtail.wire.transaction import Begin, Commit, Message, Origin
from pgtail.wire.two_phase import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared, StreamPrepare
from pgtail.wire.walsender import Keepalive, StandbyStatusUpdate, UnknownFrame


class State(enum.StrEnum):
    """Where in the stream of messages we are."""

    OUTSIDE = "outside of a transaction"
    BEGUN = "at the start of a transaction"
    INSIDE = "inside a transaction"
    SEGMENT = "inside a stream segment"


Events: TypeAlias = Iterable[Event]
_NOTHING: Final[tuple[Event, ...]] = ()


class Assembler:
    """Turns the messages of one stream into events, in bounded memory.

    `whole` is the transaction that comes whole and whose Started was told, while the stream is inside of it; `tables`
    are those in force outside of stream segments, `streams` those that are open.

    `types` learns the types that the stream names. Raises AssemblyError where `strict` and a message is out of
    place, OutputError where a streamed transaction cannot be kept on disk.
    """

    def __init__(
        self, types: Types, *, strict: bool = False, buffer: StreamBuffer | None = None, show: Show | None = None
    ) -> None:
        self.relations = Relations(types)
        self.tables = self.relations.current
        self._strict = strict
        self.streams = Streams(self.relations, buffer or StreamBuffer(), show or Show())
        self._prepared: set[str] = set()
        self._noted: set[int] = set()
        self._transaction = Transaction(None, begun=False)
        self._stream = 0
        self.take_kept: TakeKept | None = None
        self._offset: int | None = None
        self._enter(State.OUTSIDE)

    def feed(self, message: AnyFrame, lsn: int | None, offset: int | None = None) -> Events:
        """What one message tells: events, all to be taken before the next message is fed."""
        self._offset = offset
        step = self._steps.get(type(message))
        if step is None:
            return self._out_of_place(message, lsn)
        return step(self, message, lsn)

    def lost(self) -> Events:
        """Messages were skipped here: what is under way is broken off, tables stay known."""
        events = self._break_off()
        self.streams.gap()
        return events

    def restart(self) -> Transaction | None:
        """The stream begins again, and what is not finished comes once more: it is forgotten, tables stay known.

        Returns the transaction of which events were told already, or None.
        """
        half = self._transaction if self._state is State.INSIDE else None
        self.streams.clear()
        self._enter(State.OUTSIDE)
        return half

    def finish(self) -> Events:
        """The source has ended: what is still open is named. Raises AssemblyError where `strict`."""
        open_, xid, self._offset = self.open_transaction, self._transaction.xid, None
        events = self._break_off()
        if open_:
            events += self._doubt(
                f"the input ends inside transaction {'of unknown xid' if xid is None else xid}, before its end"
            )
        if self.streams.open:
            xids = ", ".join(map(str, self.streams.open))
            events += self._doubt(f"the input ends before the end of streamed transaction {xids}: it is not shown")
        return events

    def close(self) -> None:
        """Give back the temporary file."""
        self.streams.close()

    @property
    def outside(self) -> bool:
        """Whether no transaction is under way, and no segment of one."""
        return self._state is State.OUTSIDE

    def go_on(self, transaction: Transaction | None) -> None:
        """Messages were taken without being fed: the stream is inside this transaction now, or outside of any."""
        self._transaction = transaction or self._transaction
        self._enter(State.OUTSIDE if transaction is None else State.INSIDE)

    def keep_rows(self, buf: Buffer, pos: int, end: int, framing: int) -> int:
        """A RowTaker for stream segments: rows wait as they are for their transaction's end."""
        return self.streams.keep_rows(self._stream, buf, pos, end, framing) if self._state is State.SEGMENT else pos

    @property
    def open_transaction(self) -> bool:
        """Whether a transaction is under way that is not streamed."""
        return self._state in (State.BEGUN, State.INSIDE)

    # -- what is out of place ----------------------------------------------------------------------------------

    def _out_of_place(self, message: AnyFrame, lsn: int | None) -> Events:
        kind = type(message).__name__
        if isinstance(message, Unknown):
            text = f"a message of unknown kind {chr(message.tag_byte)!r}, {len(message.body)} bytes: not shown"
            return [Note(text, self._offset, damage=True)]
        if self._state is not State.OUTSIDE:
            where = self._state
            events = self._break_off()
            events += self._doubt(f"{kind} {where}: that was broken off, a reader may have started again here")
            return [*events, *self.feed(message, lsn, self._offset)]
        step = HEADLESS.get(type(message))
        if step is None:
            return self._doubt(f"{kind} outside of a transaction: its beginning was never seen")
        self._transaction = Transaction(None, begun=False)
        self._enter(State.BEGUN)
        events = self._doubt(f"no Begin before this {kind}: its transaction is unknown, and its changes have no seq")
        return [*events, *self.feed(message, lsn, self._offset)]

    def _break_off(self) -> list[Event]:
        """Leave whatever is under way; a transaction that outputs know of ends incomplete."""
        events: list[Event] = []
        if self._state is State.BEGUN:
            events.append(Started(self._transaction))
        if self.open_transaction:
            events.append(Ended(self._transaction, complete=False))
        if self._state is State.SEGMENT:
            self.streams.open[self._stream].begun = False
            events += self.streams.stop(complete=False)
        self._enter(State.OUTSIDE)
        return events

    def _doubt(self, text: str) -> list[Event]:
        if self._strict:
            raise AssemblyError(f"{text} (--strict stops here)", offset=self._offset)
        return [Note(text, self._offset)]

    def _flags(self, message: Commit | Prepare | CommitPrepared | RollbackPrepared | StreamCommit) -> list[Event]:
        if not message.flags:
            return []
        return [Note(f"{type(message).__name__} has unknown flags 0x{message.flags:02x}", self._offset)]

    def _enter(self, state: State) -> None:
        self._state = state
        self._steps = STEPS[state]
        self.whole = self._transaction if state is State.INSIDE and self._transaction.begun else None

    # -- tables and types --------------------------------------------------------------------------------------

    def _relation(self, message: RelationMessage, lsn: int | None) -> Events:
        before, now = self.relations.see(message, self._stream if self._state is State.SEGMENT else None)
        return _NOTHING if now is before else (SchemaChange(before, now),)

    def _type(self, message: TypeMessage, lsn: int | None) -> Events:
        self.relations.see_type(message)
        return _NOTHING

    def _nothing(self, message: AnyFrame, lsn: int | None) -> Events:
        return _NOTHING

    def _unknown_frame(self, message: UnknownFrame, lsn: int | None) -> Events:
        return [Note(f"a frame of unknown kind {chr(message.tag_byte)!r}, {len(message.body)} bytes", self._offset)]

    # -- a transaction that comes whole ------------------------------------------------------------------------

    def _begin(self, message: Begin, lsn: int | None) -> Events:
        self._transaction = Transaction(message.xid, commit_lsn=message.final_lsn, commit_ts=message.commit_time)
        self._enter(State.BEGUN)
        return _NOTHING

    def _begin_prepare(self, message: BeginPrepare, lsn: int | None) -> Events:
        self._transaction = Transaction(
            message.xid,
            prepare_lsn=message.prepare_lsn,
            prepare_ts=message.prepare_time,
            gid=message.gid,
            state="prepared",
        )
        self._enter(State.BEGUN)
        return _NOTHING

    def _origin(self, message: Origin, lsn: int | None) -> Events:
        self._transaction.origin = message.name
        return _NOTHING

    def _continued(self, message: Continued, lsn: int | None) -> Events:
        self._transaction.changes, self._transaction.messages = message
        return _NOTHING

    def _first(self, message: AnyFrame, lsn: int | None) -> Events:
        """The first message after Begin and Origin."""
        self._enter(State.INSIDE)
        return [Started(self._transaction), *self.feed(message, lsn, self._offset)]

    def _commit(self, message: Commit, lsn: int | None) -> Events:
        transaction = self._transaction
        if transaction.begun and transaction.commit_lsn != message.commit_lsn:
            return self._out_of_place(message, lsn)
        transaction.commit_lsn, transaction.commit_ts = message.commit_lsn, message.commit_time
        transaction.end_lsn = message.end_lsn
        self._enter(State.OUTSIDE)
        return [*self._flags(message), Ended(transaction)]

    def _prepare(self, message: Prepare, lsn: int | None) -> Events:
        if self._transaction.begun and self._transaction.prepare_lsn != message.prepare_lsn:
            return self._out_of_place(message, lsn)
        changes.fill_prepared(self._transaction, message)
        self._prepared.add(message.gid)
        self._enter(State.OUTSIDE)
        return [*self._flags(message), Ended(self._transaction)]

    def _insert(self, message: Insert, lsn: int | None) -> Events:
        relation = self.relations.get(message.relation)
        change = row_change("insert", self._transaction, lsn, relation, "", None, message.new)
        return (change,) if len(message.new) == len(relation.columns) else self._odd(change)

    def _update(self, message: Update, lsn: int | None) -> Events:
        relation = self.relations.get(message.relation)
        change = row_change("update", self._transaction, lsn, relation, message.old_kind, message.old, message.new)
        if len(message.new) != len(relation.columns) or len(message.old or message.new) != len(relation.columns):
            return self._odd(change)
        return (change,)

    def _delete(self, message: Delete, lsn: int | None) -> Events:
        relation = self.relations.get(message.relation)
        change = row_change("delete", self._transaction, lsn, relation, message.old_kind, message.old, None)
        return (change,) if len(message.old) == len(relation.columns) else self._odd(change)

    def _truncate(self, message: Truncate, lsn: int | None) -> Events:
        for oid in message.relations:
            yield from self._odd(table_truncate(self._transaction, lsn, self.relations.get(oid), message.options))

    def _message(self, message: Message, lsn: int | None) -> Events:
        return (logical_message(self._transaction if message.transactional else None, message, lsn),)

    def _outside_message(self, message: Message, lsn: int | None) -> Events:
        return self._out_of_place(message, lsn) if message.transactional else self._message(message, lsn)

    def _odd(self, change: Change) -> Iterator[Event]:
        """A change, and before it a word where it does not fit its table: one for each version of a table."""
        text = odd_tuple(change)
        if text is not None and not isinstance(change, LogicalMessage) and change.relation.version not in self._noted:
            self._noted.add(change.relation.version)
            yield from self._doubt(text)
        yield change

    # -- streamed transactions ---------------------------------------------------------------------------------

    def _stream_start(self, message: StreamStart, lsn: int | None) -> Events:
        known = self.streams.start(message)
        self._stream = message.xid
        self._enter(State.SEGMENT)
        return (
            _NOTHING if known else self._doubt(f"the first segments of streamed transaction {message.xid} are missing")
        )

    def _stream_stop(self, message: StreamStop, lsn: int | None) -> Events:
        self._enter(State.OUTSIDE)
        return self.streams.stop()

    def _stream_origin(self, message: Origin, lsn: int | None) -> Events:
        self.streams.origin(self._stream, message.name)
        return _NOTHING

    def _keep(self, message: ChangeMessage, lsn: int | None) -> Events:
        """A change inside a segment waits for its transaction's end; a message that belongs to none does not."""
        if isinstance(message, Message) and not message.transactional:
            return self._message(message, lsn)
        return self.streams.keep(self._stream, message, lsn)

    def _stream_abort(self, message: StreamAbort, lsn: int | None) -> Events:
        events = self.streams.abort(message)
        if events is not None:
            return events
        return [Note(f"Stream Abort of transaction {message.xid}, of which nothing was seen: ignored", self._offset)]

    def _stream_commit(self, message: StreamCommit, lsn: int | None) -> Iterator[Event]:
        yield from self._flags(message)
        transaction = yield from self._stream_of(message.xid)
        transaction.commit_lsn, transaction.commit_ts = message.commit_lsn, message.commit_time
        transaction.end_lsn = message.end_lsn
        yield from self._replay(transaction)

    def _stream_prepare(self, message: StreamPrepare, lsn: int | None) -> Iterator[Event]:
        yield from self._flags(message)
        transaction = yield from self._stream_of(message.xid)
        changes.fill_prepared(transaction, message)
        self._prepared.add(message.gid)
        yield from self._replay(transaction)

    def _stream_of(self, xid: int) -> Generator[Event, None, Transaction]:
        transaction = self.streams.end(xid)
        if transaction is None:
            yield from self._doubt(f"the end of streamed transaction {xid}, of which nothing was seen")
            transaction = Transaction(xid, streamed=True, begun=False)
        return transaction

    def _replay(self, transaction: Transaction) -> Iterator[Event]:
        yield Started(transaction)
        for change in self.streams.changes(transaction, self.take_kept):
            yield from self._odd(change)
        yield Ended(transaction)

    # -- outcomes of prepared transactions ---------------------------------------------------------------------

    def _outcome(self, message: CommitPrepared | RollbackPrepared, lsn: int | None) -> Events:
        return [*self._flags(message), *self._unpaired(message), outcome_of(message)]

    def _unpaired(self, message: CommitPrepared | RollbackPrepared) -> list[Event]:
        """Its Prepare may lie in an earlier session, or be a server's bug: never an error."""
        if message.gid in self._prepared:
            self._prepared.discard(message.gid)
            return []
        return [Note(f"{type(message).__name__} of {message.gid!r}, whose Prepare is not in this input", self._offset)]


Step: TypeAlias = Callable[[Assembler, Any, int | None], Events]

_ALWAYS: dict[type, Step] = {
    RelationMessage: Assembler._relation,
    TypeMessage: Assembler._type,
    Keepalive: Assembler._nothing,
    StandbyStatusUpdate: Assembler._nothing,
    UnknownFrame: Assembler._unknown_frame,
}
HEADLESS: Final[dict[type, Step]] = {
    Insert: Assembler._insert,
    Update: Assembler._update,
    Delete: Assembler._delete,
    Truncate: Assembler._truncate,
    Message: Assembler._message,
}
"""What belongs to a transaction even where its Begin was never seen."""

STEPS: Final[dict[State, dict[type, Step]]] = {
    State.OUTSIDE: {
        **_ALWAYS,
        Begin: Assembler._begin,
        BeginPrepare: Assembler._begin_prepare,
        Message: Assembler._outside_message,
        StreamStart: Assembler._stream_start,
        StreamCommit: Assembler._stream_commit,
        StreamPrepare: Assembler._stream_prepare,
        StreamAbort: Assembler._stream_abort,
        CommitPrepared: Assembler._outcome,
        RollbackPrepared: Assembler._outcome,
    },
    State.BEGUN: {
        **_ALWAYS,
        **dict.fromkeys((*HEADLESS, Commit, Prepare), Assembler._first),
        Origin: Assembler._origin,
        Continued: Assembler._continued,
    },
    State.INSIDE: {
        **_ALWAYS,
        **HEADLESS,
        Origin: Assembler._origin,
        Commit: Assembler._commit,
        Prepare: Assembler._prepare,
    },
    State.SEGMENT: {
        **_ALWAYS,
        **dict.fromkeys(HEADLESS, Assembler._keep),
        Origin: Assembler._stream_origin,
        StreamStop: Assembler._stream_stop,
    },
}
