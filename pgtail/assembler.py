"""Floor 3, messages -> transactions: the only place that knows which message may follow which; no bytes, no output.

The rules are the table STEPS at the end: (state, message) -> what to do. A message without an entry is out of place:
a note and a best effort, or an AssemblyError where `strict`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final, TypeAlias

from pgtail.errors import AssemblyError
from pgtail.relations import Relation, Relations
from pgtail.streambuffer import StreamBuffer
from pgtail.transaction import (
    Ended,
    Event,
    LogicalMessage,
    Note,
    Outcome,
    RowChange,
    SchemaChange,
    Started,
    TableTruncate,
    Transaction,
)
from pgtail.values import Types
from pgtail.wire.cells import TupleData
from pgtail.wire.decoder import AnyFrame, Taken, Unknown
from pgtail.wire.rows import Delete, Insert, Truncate, Update
from pgtail.wire.schema import Relation as RelationMessage
from pgtail.wire.schema import Type as TypeMessage
from pgtail.wire.stream import StreamAbort, StreamCommit, StreamStart, StreamStop
from pgtail.wire.transaction import Begin, Commit, Message, Origin
from pgtail.wire.two_phase import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared, StreamPrepare
from pgtail.wire.walsender import Keepalive, StandbyStatusUpdate, UnknownFrame


class State(enum.Enum):
    """Where in the stream of messages we are."""

    OUTSIDE = "outside of a transaction"
    BEGUN = "at the start of a transaction"
    INSIDE = "inside a transaction"
    SEGMENT = "inside a stream segment"


Events: TypeAlias = Iterable[Event]
_NOTHING: Final[tuple[Event, ...]] = ()
_ENTRY_OVERHEAD = 200
"""Bytes that a buffered change takes beside its values, roughly."""


class Assembler:
    """Turns the messages of one stream into events, in bounded memory.

    `whole` is the transaction that comes whole and whose Started was told, while the stream is inside of it; `tables`
    are those in force outside of stream segments.

    `types` learns the types that the stream names. Raises AssemblyError where `strict` and a message is out of
    place, OutputError where a streamed transaction cannot be kept on disk.
    """

    def __init__(self, types: Types, *, strict: bool = False, buffer: StreamBuffer | None = None) -> None:
        self.relations = Relations(types)
        self.tables = self.relations.current
        self._strict = strict
        self._buffer = buffer or StreamBuffer()
        self._streams: dict[int, Transaction] = {}
        self._prepared: set[str] = set()
        self._noted: set[int] = set()
        self._transaction = Transaction(None, begun=False)
        self._stream = 0
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
        for transaction in self._streams.values():
            transaction.begun = False
        return events

    def restart(self) -> Transaction | None:
        """The stream begins again, and what is not finished comes once more: it is forgotten, tables stay known.

        Returns the transaction of which events were told already, or None.
        """
        half = self._transaction if self._state is State.INSIDE else None
        for xid in self._streams:
            self._buffer.drop(xid)
            self.relations.drop(xid)
        self._streams.clear()
        self._enter(State.OUTSIDE)
        return half

    def finish(self) -> Events:
        """The source has ended: what is still open is named. Raises AssemblyError where `strict`."""
        open_, xid = self.open_transaction, self._transaction.xid
        events = self._break_off()
        if open_:
            events += self._doubt(f"the input ends inside transaction {_known(xid)}, before its end")
        if self._streams:
            xids = ", ".join(map(str, self._streams))
            events += self._doubt(f"the input ends before the end of streamed transaction {xids}: it is not shown")
        return events

    def close(self) -> None:
        """Give back the temporary file."""
        self._buffer.close()

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
            where = self._state.value
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
            self._streams[self._stream].begun = False
        self._enter(State.OUTSIDE)
        return events

    def _doubt(self, text: str) -> list[Event]:
        if self._strict:
            raise AssemblyError(text, offset=self._offset)
        return [Note(text, self._offset)]

    def _once(self, key: int, text: str) -> Events:
        """A note that is worth saying once for each relation version."""
        if key in self._noted:
            return _NOTHING
        self._noted.add(key)
        return self._doubt(text)

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

    def _first(self, message: AnyFrame, lsn: int | None) -> Events:
        """The first message after Begin and Origin."""
        return [*self.start(), *self.feed(message, lsn, self._offset)]

    def start(self) -> Events:
        """What belongs to the transaction that has just begun is about to come."""
        if self._state is not State.BEGUN:
            return _NOTHING
        self._enter(State.INSIDE)
        return (Started(self._transaction),)

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
        _fill_prepared(self._transaction, message)
        self._prepared.add(message.gid)
        self._enter(State.OUTSIDE)
        return [*self._flags(message), Ended(self._transaction)]

    def _insert(self, message: Insert, lsn: int | None) -> Events:
        relation = self.relations.get(message.relation)
        change = _row("insert", self._transaction, lsn, relation, "", None, message.new)
        if len(message.new) != len(relation.columns):
            return [*self._odd_tuple(relation, message.new), change]
        return (change,)

    def _update(self, message: Update, lsn: int | None) -> Events:
        relation = self.relations.get(message.relation)
        change = _row("update", self._transaction, lsn, relation, message.old_kind, message.old, message.new)
        if len(message.new) != len(relation.columns):
            return [*self._odd_tuple(relation, message.new), change]
        return (change,)

    def _delete(self, message: Delete, lsn: int | None) -> Events:
        relation = self.relations.get(message.relation)
        change = _row("delete", self._transaction, lsn, relation, message.old_kind, message.old, None)
        if len(message.old) != len(relation.columns):
            return [*self._odd_tuple(relation, message.old), change]
        return (change,)

    def _truncate(self, message: Truncate, lsn: int | None) -> Events:
        events: list[Event] = []
        for oid in message.relations:
            relation = self.relations.get(oid)
            if not relation.seen:
                events += self._odd_tuple(relation, ())
            events.append(_table_truncate(self._transaction, lsn, relation, message.options))
        return events

    def _message(self, message: Message, lsn: int | None) -> Events:
        return (_logical_message(self._transaction if message.transactional else None, message, lsn),)

    def _outside_message(self, message: Message, lsn: int | None) -> Events:
        return self._out_of_place(message, lsn) if message.transactional else self._message(message, lsn)

    def _odd_tuple(self, relation: Relation, cells: TupleData) -> Events:
        if not relation.seen:
            text = f"relation {relation.oid} was never described: its columns are shown as ?1, ?2, ..."
        elif len(cells) > len(relation.columns):
            text = f"a row of {relation.qualified} has {len(cells)} columns, its Relation {len(relation.columns)}"
        else:
            text = f"a row of {relation.qualified} has only {len(cells)} of {len(relation.columns)} columns"
        return self._once(relation.version, text)

    # -- streamed transactions ---------------------------------------------------------------------------------

    def _stream_start(self, message: StreamStart, lsn: int | None) -> Events:
        xid, events = message.xid, list[Event]()
        if message.first_segment or xid not in self._streams:
            self._streams[xid] = Transaction(xid, streamed=True, begun=bool(message.first_segment))
            self._buffer.start(xid)
            if not message.first_segment:
                events = self._doubt(f"the first segments of streamed transaction {xid} were never seen")
        self._stream = xid
        self._enter(State.SEGMENT)
        return events

    def _stream_stop(self, message: StreamStop, lsn: int | None) -> Events:
        self._enter(State.OUTSIDE)
        return _NOTHING

    def _stream_origin(self, message: Origin, lsn: int | None) -> Events:
        self._streams[self._stream].origin = message.name
        return _NOTHING

    def _keep(self, message: Insert | Update | Delete | Truncate | Message, lsn: int | None) -> Events:
        """A change inside a segment waits for its transaction's end, with the tables as they are now."""
        versions, size, subxid = [], _ENTRY_OVERHEAD, self._stream
        if isinstance(message, Truncate):
            versions = [self.relations.get(oid, self._stream).version for oid in message.relations]
        elif isinstance(message, Message):
            if not message.transactional:
                return self._message(message, lsn)
            size += len(message.content)
        else:
            versions = [self.relations.get(message.relation, self._stream).version]
            size += _weight(message)
        if message.xid is not None:
            subxid = message.xid
        self._buffer.add(self._stream, subxid, (message, lsn, versions), size)
        return _NOTHING

    def _stream_abort(self, message: StreamAbort, lsn: int | None) -> Events:
        if message.xid not in self._streams:
            text = f"Stream Abort of transaction {message.xid}, of which nothing was seen: ignored"
            return [Note(text, self._offset)]
        if message.subxid == message.xid:
            del self._streams[message.xid]
            self._buffer.drop(message.xid)
            self.relations.drop(message.xid)
        else:
            self._buffer.abort(message.xid, message.subxid)
        return _NOTHING

    def _stream_commit(self, message: StreamCommit, lsn: int | None) -> Iterator[Event]:
        yield from self._flags(message)
        transaction = yield from self._stream_of(message.xid)
        transaction.commit_lsn, transaction.commit_ts = message.commit_lsn, message.commit_time
        transaction.end_lsn = message.end_lsn
        yield from self._replay(transaction)

    def _stream_prepare(self, message: StreamPrepare, lsn: int | None) -> Iterator[Event]:
        yield from self._flags(message)
        transaction = yield from self._stream_of(message.xid)
        _fill_prepared(transaction, message)
        self._prepared.add(message.gid)
        yield from self._replay(transaction)

    def _stream_of(self, xid: int) -> Generator[Event, None, Transaction]:
        transaction = self._streams.pop(xid, None)
        if transaction is None:
            yield from self._doubt(f"the end of streamed transaction {xid}, of which nothing was seen")
            transaction = Transaction(xid, streamed=True, begun=False)
            self._buffer.start(xid)
        self.relations.keep(xid)
        return transaction

    def _replay(self, transaction: Transaction) -> Iterator[Event]:
        assert transaction.xid is not None
        yield Started(transaction)
        for message, lsn, versions in self._buffer.take(transaction.xid):
            relations = [self.relations.versions[version] for version in versions]
            yield from self._kept(transaction, message, lsn, relations)
        yield Ended(transaction)

    def _kept(
        self, transaction: Transaction, message: Any, lsn: int | None, relations: list[Relation]
    ) -> Iterator[Event]:
        if isinstance(message, Message):
            yield _logical_message(transaction, message, lsn)
        elif isinstance(message, Truncate):
            for relation in relations:
                yield _table_truncate(transaction, lsn, relation, message.options)
        else:
            (relation,) = relations
            new = None if isinstance(message, Delete) else message.new
            old_kind, old = ("", None) if isinstance(message, Insert) else (message.old_kind, message.old)
            cells = new if new is not None else old
            if cells is not None and len(cells) != len(relation.columns):
                yield from self._odd_tuple(relation, cells)
            yield _row(type(message).__name__.lower(), transaction, lsn, relation, old_kind, old, new)

    # -- outcomes of prepared transactions ---------------------------------------------------------------------

    def _commit_prepared(self, message: CommitPrepared, lsn: int | None) -> Events:
        outcome = Outcome(
            "commit_prepared", message.xid, message.gid, message.commit_lsn, message.end_lsn, message.commit_time
        )
        return [*self._flags(message), *self._unpaired(message.gid, "Commit Prepared"), outcome]

    def _rollback_prepared(self, message: RollbackPrepared, lsn: int | None) -> Events:
        outcome = Outcome(
            "rollback_prepared",
            message.xid,
            message.gid,
            message.prepare_end_lsn,
            message.rollback_end_lsn,
            message.rollback_time,
            message.prepare_time,
        )
        return [*self._flags(message), *self._unpaired(message.gid, "Rollback Prepared"), outcome]

    def _unpaired(self, gid: str, kind: str) -> list[Event]:
        """Its Prepare may lie in an earlier session, or be a server's bug: never an error."""
        if gid in self._prepared:
            self._prepared.discard(gid)
            return []
        return [Note(f"{kind} of {gid!r}, whose Prepare is not in this input", self._offset)]


def _row(
    op: str,
    transaction: Transaction,
    lsn: int | None,
    relation: Relation,
    old_kind: str,
    old: TupleData | None,
    new: TupleData | None,
) -> RowChange:
    transaction.changes = seq = transaction.changes + 1
    return RowChange(op, transaction, seq if transaction.begun else None, lsn, relation, old_kind, old, new)


def _table_truncate(transaction: Transaction, lsn: int | None, relation: Relation, options: int) -> TableTruncate:
    transaction.changes = seq = transaction.changes + 1
    seq_shown = seq if transaction.begun else None
    return TableTruncate(transaction, seq_shown, lsn, relation, bool(options & 1), bool(options & 2))


def _logical_message(transaction: Transaction | None, message: Message, lsn: int | None) -> LogicalMessage:
    if transaction is not None:
        transaction.messages += 1
    return LogicalMessage(transaction, lsn, message.prefix, message.content, message.transactional)


def _fill_prepared(transaction: Transaction, message: Prepare) -> None:
    transaction.xid, transaction.gid, transaction.state = message.xid, message.gid, "prepared"
    transaction.prepare_lsn, transaction.prepare_ts = message.prepare_lsn, message.prepare_time
    transaction.end_lsn = message.end_lsn


def _weight(message: Insert | Update | Delete) -> int:
    """About how many bytes a row message takes in memory."""
    old = None if isinstance(message, Insert) else message.old
    new = None if isinstance(message, Delete) else message.new
    cells = [*(old or ()), *(new or ())]
    return 40 * len(cells) + sum([len(cell) for cell in cells if isinstance(cell, bytes)])


def _known(xid: int | None) -> str:
    return "of unknown xid" if xid is None else str(xid)


Step: TypeAlias = Callable[[Assembler, Any, int | None], Events]

_ALWAYS: dict[type, Step] = {
    RelationMessage: Assembler._relation,
    TypeMessage: Assembler._type,
    Keepalive: Assembler._nothing,
    StandbyStatusUpdate: Assembler._nothing,
    UnknownFrame: Assembler._unknown_frame,
    Taken: Assembler._nothing,
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
        CommitPrepared: Assembler._commit_prepared,
        RollbackPrepared: Assembler._rollback_prepared,
    },
    State.BEGUN: {
        **_ALWAYS,
        **dict.fromkeys((*HEADLESS, Commit, Prepare), Assembler._first),
        Origin: Assembler._origin,
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
