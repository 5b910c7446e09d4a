"""Messages to transactions: the order in which messages may come.

The rules are in the table STEPS at the end: (state, message) -> method. A message without an entry is out of place:
a Note and a best effort, or an AssemblyError if `strict`.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final, TypeAlias

from pgtail.changes.events import (
    Change,
    ChangeMessage,
    Described,
    Ended,
    Event,
    LogicalMessage,
    Note,
    Rows,
    SchemaChange,
    SnapshotEnded,
    Started,
    Transaction,
    UndecodedRows,
    begun,
    changes_of,
    outcome_of,
    row_change,
    tables_of,
    time_damage,
    tuple_mismatch,
    unknown_flags,
)
from pgtail.changes.relations import Relation, Relations
from pgtail.changes.stream_buffer import StreamBuffer
from pgtail.changes.streaming import Show, Streams
from pgtail.errors import AssemblyError
from pgtail.files.stopping import stop_if_asked
from pgtail.native.batch import Batches, Slice
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import AnyFrame, Continued, FromClient, PartitionOf, Unknown
from pgtail.pgoutput.rows import Delete, Insert, Truncate, Update
from pgtail.pgoutput.schema import Relation as RelationMessage
from pgtail.pgoutput.schema import Type as TypeMessage
from pgtail.pgoutput.streaming import StreamAbort, StreamCommit, StreamStart, StreamStop
from pgtail.pgoutput.transaction import Begin, Commit, Message, Origin
from pgtail.pgoutput.two_phase import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared, StreamPrepare
from pgtail.pgoutput.walsender import Keepalive, StandbyStatusUpdate, UnknownFrame
from pgtail.values import Types


class State(enum.StrEnum):
    """The position in the stream of messages."""

    OUTSIDE = "outside a transaction"
    BEGUN = "at the start of a transaction"
    INSIDE = "inside a transaction"
    REPEATED = "inside a transaction that is repeated"
    SNAPSHOT = "inside a snapshot"
    SEGMENT = "inside a stream segment"


_STARTED: Final = (State.INSIDE, State.SNAPSHOT)
"""The states inside a transaction that is not streamed, after its start was sent."""
_OPEN: Final = (State.BEGUN, State.REPEATED, *_STARTED)
"""The states inside a transaction that is not streamed."""

Events: TypeAlias = Iterable[Event]
_MOST_NAMED: Final = 10
"""Transactions in a message."""
_NOTHING: Final[tuple[Event, ...]] = ()


class Assembler:
    """Turns the messages of one stream into events, in bounded memory.

    `tables` are the current tables outside stream segments, `streams` the open streamed transactions.
    `open_transaction` is the current transaction that is not streamed, `commits_at` its commit LSN;
    `started_transaction` is the same once its Started was sent. The types that the stream declares are added to
    `types`. If `tells_descriptions`, each description of a table is also sent as Described.

    Raises AssemblyError if `strict` and a message is out of place, OutputError if a streamed transaction cannot be
    written to disk.
    """

    def __init__(
        self,
        types: Types,
        *,
        strict: bool = False,
        buffer: StreamBuffer | None = None,
        show: Show | None = None,
        tells_descriptions: bool = False,
    ) -> None:
        self._tells_descriptions = tells_descriptions
        self.relations = Relations(types)
        self.tables = self.relations.current
        self._strict = strict
        self.streams = Streams(self.relations, buffer or StreamBuffer(), show or Show())
        self._gids: set[str] = set()
        """The prepared transactions that have no outcome yet."""
        self._noted: set[int] = set()
        self._transaction = Transaction(None, begun=False)
        self._copied: int | None = None
        """The LSN of the snapshot whose tables were sent last, until it is known that no more of them follow."""
        self._described: Relation | None = None
        """The table that was described since the last transaction ended: an empty snapshot is of this one."""
        self.interrupted: Transaction | None = None
        """The transaction whose start was sent before a restart, until it is repeated."""
        self._to_skip = (0, 0)
        """How many changes and logical messages of the repeated transaction are still to be skipped."""
        self._stream = 0
        self._offset: int | None = None
        self._state = State.OUTSIDE
        self._enter(State.OUTSIDE)

    def feed(self, message: AnyFrame, lsn: int | None, offset: int | None = None) -> Events:
        """The events of one message. Consume them before the next call."""
        self._offset = offset
        if self.relations.adjacent is not None and not isinstance(message, RelationMessage):
            changed = self.relations.follow(message, self._open_stream)
            if changed:
                return [*(SchemaChange(*one) for one in changed), *self.feed(message, lsn, offset)]
        if self._copied is not None and not self._is_of_snapshot(message):
            self._copied = None
            return [SnapshotEnded(), *self.feed(message, lsn, offset)]
        step = self._steps.get(type(message))
        if step is None:
            return self._out_of_place(message, lsn)
        return step(self, message, lsn)

    def lost(self) -> Events:
        """Messages are missing here: end the open transaction as incomplete, keep the tables."""
        events = [*self._break_off(), *self._end_snapshot(complete=False)]
        self.relations.adjacent = None
        self.streams.gap()
        return events

    def restart(self) -> Events:
        """The stream restarts, and the server repeats unfinished transactions: forget them, keep the tables.

        A transaction whose start was sent continues when it is repeated: changes that were sent are skipped. A snapshot
        is not repeated.
        """
        snapshot = self._break_off() if self._state is State.SNAPSHOT else self._end_snapshot(complete=False)
        if self._state in (State.INSIDE, State.REPEATED):
            self.interrupted = self._transaction
        events = self._uncommitted(self.streams.stop(complete=False))
        self.streams.clear()
        self.relations.adjacent = None
        self._enter(State.OUTSIDE)
        return [*snapshot, *events]

    def describe(self, message: AnyFrame, lsn: int | None) -> list[SchemaChange]:
        """The tables in a message; the rows around it are left out."""
        found = [event for event in self.feed(message, lsn) if isinstance(event, SchemaChange)]
        self.relations.adjacent = None
        return found

    def skip(self, prepared: Iterable[str], outcomes: Iterable[str]) -> None:
        """Messages are left out on purpose: forget the open transaction, keep the tables.

        The gids are those of the transactions that were prepared or had their outcome there.
        """
        self._enter(State.OUTSIDE)
        self._gids.update(prepared)
        self._gids.difference_update(outcomes)

    def finish(self) -> Iterator[Event]:
        """The source ended: report what is still open. Raises AssemblyError if `strict`."""
        open_, self._offset = self.open_transaction, None
        yield from self._break_off()
        yield from self._end_snapshot(complete=True)
        if open_:
            yield from self._warn_or_raise(f"the input ends inside {_named(open_)}")
        if self.streams.open:
            found = list(self.streams.open)
            more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
            xids = ", ".join(map(str, found[:_MOST_NAMED])) + more
            yield from self._warn_or_raise(f"the input ends inside streamed transaction {xids}: it is not shown")

    def close(self) -> None:
        """Delete the temporary file."""
        self.streams.close()

    @property
    def outside(self) -> bool:
        """Whether the stream, and what was sent of it, is outside any transaction, stream segment and snapshot."""
        return self._state is State.OUTSIDE and self.interrupted is None and not self.in_snapshot

    @property
    def decodes_next(self) -> bool:
        """Whether the next message must be decoded: it identifies which of the tables described last it belongs to."""
        return self.relations.expects_row

    @property
    def settled(self) -> bool:
        """Whether messages after the open transaction depend on nothing before it, except the tables.

        This requires: no open streamed transaction, no prepared one without an outcome, and no rows that do not fit.
        """
        return not (self.streams.open or self._gids or self._noted or self.relations.incomplete)

    @property
    def in_snapshot(self) -> bool:
        """Whether a table of a snapshot was read, and others of it may follow."""
        return self._copied is not None

    def next_slice(self, batches: Batches, buf: Buffer, pos: int, end: int, framing: int) -> Slice | None:
        """The messages from `pos` on that follow, for take_slice(); None if the one at `pos` must be decoded."""
        transaction = self.started_transaction
        if pos >= end or self.decodes_next or (transaction is None and not self.outside):
            return None
        slice_ = batches.at(buf, pos, end, framing).slice(pos, self.tables, transaction)
        return slice_ if slice_ is not None and slice_.stop > pos else None

    def take_slice(self, slice_: Slice) -> Rows:
        """The next messages of the stream, which were not decoded."""
        totals = slice_.totals()
        before = self.started_transaction if slice_.continues else None
        after = None if not slice_.goes_on else before if totals.opened is None else begun(totals.opened)
        if totals.messages:
            self._described = self.relations.adjacent = None
        if after is not None:
            self._transaction = after
            after.changes = totals.changes
        self._enter(State.OUTSIDE if after is None else self._inside)
        return Rows(slice_, totals, before, after)

    def is_prepared(self, gid: str) -> bool:
        """Whether a transaction was prepared and has no outcome yet."""
        return gid in self._gids

    def keep_rows(self, buf: Buffer, pos: int, end: int, framing: int) -> int:
        """Buffer rows of a stream segment undecoded until the end of their transaction.

        Returns where the first message starts that must be decoded.
        """
        if self._state is not State.SEGMENT or self.decodes_next:
            return pos
        after = self.streams.keep_rows(self._stream, buf, pos, end, framing)
        if after > pos:
            self.relations.adjacent = None
        return after

    # -- messages out of place ---------------------------------------------------------------------------------

    def _out_of_place(self, message: AnyFrame, lsn: int | None) -> Events:
        kind = type(message).__name__
        if isinstance(message, Unknown):
            text = f"a message of unknown kind {chr(message.tag_byte)!r}, {len(message.body)} bytes: not shown"
            return [Note(text, self._offset, damage=True)]
        if self._state is not State.OUTSIDE:
            where = self._state
            text = f"{kind} {where}, which ends incomplete; a reader may have restarted here"
            return self._restarted(text, message, lsn)
        step = HEADLESS.get(type(message))
        if step is None:
            return self._warn_or_raise(f"{kind} outside a transaction: its beginning is missing")
        self._transaction = Transaction(None, begun=False)
        self._enter(State.BEGUN)
        text = f"no Begin before this {kind}: its transaction is unknown, its changes have no seq"
        return [*self._warn_or_raise(text), *self.feed(message, lsn, self._offset)]

    def _restarted(self, text: str, message: AnyFrame, lsn: int | None) -> Iterator[Event]:
        """Send the events before an error: they determine what outputs must end."""
        yield from self._break_off()
        yield from self._warn_or_raise(text)
        yield from self.feed(message, lsn, self._offset)

    def _break_off(self) -> list[Event]:
        """Leave the current transaction or segment; a transaction ends incomplete."""
        events: list[Event] = []
        if self._state is State.SEGMENT:
            self.streams.open[self._stream].begun = False
            events += self._uncommitted(self.streams.stop(complete=False))
        events += self._start(self._transaction) if self._state is State.BEGUN else self._end_interrupted()
        if self.open_transaction:
            events.append(Ended(self._transaction, complete=False))
            events += [SnapshotEnded(complete=False)] if self._transaction.snapshot else []
        self._enter(State.OUTSIDE)
        return events

    def _end_interrupted(self) -> list[Event]:
        """The interrupted transaction is not repeated: it ends incomplete."""
        interrupted, self.interrupted = self.interrupted, None
        return [] if interrupted is None else [Ended(interrupted, complete=False)]

    def _uncommitted(self, events: Events) -> Events:
        """Events of a streamed transaction that is not committed or prepared, unless they are repeated.

        What comes before the interrupted transaction was sent before its start.
        """
        if self.interrupted is None:
            return events
        deque(events, maxlen=0)
        return _NOTHING

    def _warn_or_raise(self, text: str) -> list[Event]:
        if self._strict:
            raise AssemblyError(f"{text} (--strict stops here)", offset=self._offset)
        return [Note(text, self._offset)]

    def _enter(self, state: State) -> None:
        if state is State.OUTSIDE and self._state is not state:
            self._described = None
        self._state = state
        self._steps = STEPS[state]
        self.started_transaction = self._transaction if state in _STARTED and self._transaction.begun else None
        self.open_transaction = self._transaction if state in _OPEN else None
        self.commits_at = None if self.open_transaction is None else self._transaction.commit_lsn

    # -- tables and types --------------------------------------------------------------------------------------

    @property
    def _open_stream(self) -> int | None:
        """The streamed transaction whose segment is open."""
        return self._stream if self._state is State.SEGMENT else None

    def _relation(self, message: RelationMessage, lsn: int | None) -> Events:
        again = self.relations.partition_of(message)
        changes = self.relations.follow(message, self._open_stream)
        before, now = self.relations.see(message, self._open_stream)
        events: list[Event] = [SchemaChange(*one) for one in (*changes, (before, now)) if one[0] is not one[1]]
        if self._state is not State.SEGMENT:
            self._described = now
        elif self._tells_descriptions:
            self.streams.describe(self._stream, now.oid)
        if self._tells_descriptions and again is None:
            events.append(Described(now.oid, commits_at=self.commits_at, lsn=lsn))
        return events

    def _partition(self, message: PartitionOf, lsn: int | None) -> Events:
        return [SchemaChange(*one) for one in self.relations.set_partition(message, self._open_stream)]

    def _type(self, message: TypeMessage, lsn: int | None) -> Events:
        self.relations.see_type(message)
        return _NOTHING

    def _unknown_frame(self, message: UnknownFrame, lsn: int | None) -> Events:
        return [Note(f"a frame of unknown kind {chr(message.tag_byte)!r}, {len(message.body)} bytes", self._offset)]

    # -- transactions that are not streamed --------------------------------------------------------------------

    def _begin(self, message: Begin, lsn: int | None) -> Events:
        transaction = Transaction(message.xid, commit_lsn=message.final_lsn, commit_ts=message.commit_time)
        return self._open(transaction) if message.xid else self._begin_snapshot(transaction)

    def _begin_snapshot(self, transaction: Transaction) -> Events:
        """The rows of a table follow: no server sends an xid of 0. They are numbered after those of other tables."""
        before = self._transaction
        if before.snapshot and before.commit_lsn == transaction.commit_lsn:
            transaction.changes = transaction.skipped = before.changes
        transaction.xid, transaction.snapshot = None, True
        self._transaction, self._copied = transaction, None
        self._enter(State.BEGUN)
        return _NOTHING

    def _is_of_snapshot(self, message: AnyFrame) -> bool:
        """Whether a message belongs to another table of the snapshot that was sent last."""
        if isinstance(message, Begin):
            return (message.xid, message.final_lsn) == (0, self._copied)
        return isinstance(message, RelationMessage | TypeMessage)

    def _end_snapshot(self, *, complete: bool) -> list[Event]:
        """No more tables of a snapshot follow, if one was sent last."""
        copied, self._copied = self._copied, None
        return [] if copied is None else [SnapshotEnded(complete)]

    @property
    def _inside(self) -> State:
        return State.SNAPSHOT if self._transaction.snapshot else State.INSIDE

    def _begin_prepare(self, message: BeginPrepare, lsn: int | None) -> Events:
        return self._open(
            Transaction(
                message.xid,
                prepare_lsn=message.prepare_lsn,
                prepare_ts=message.prepare_time,
                gid=message.gid,
                state="prepared",
            )
        )

    def _open(self, transaction: Transaction) -> Events:
        """A transaction begins, or the interrupted one is repeated."""
        interrupted = self._sent_before(transaction.xid, transaction.lsn)
        if interrupted is None:
            self._transaction = transaction
            self._enter(State.BEGUN)
        else:
            self._transaction, self.interrupted = interrupted, None
            self._to_skip = interrupted.changes, interrupted.messages
            self._enter(State.REPEATED)
        return _NOTHING

    def _sent_before(self, xid: int | None, lsn: int | None) -> Transaction | None:
        """The interrupted transaction, if it has this xid and LSN: it is repeated."""
        interrupted = self.interrupted
        return interrupted if interrupted is not None and (interrupted.xid, interrupted.lsn) == (xid, lsn) else None

    def _start(self, transaction: Transaction) -> list[Event]:
        """The start of a transaction that was not interrupted."""
        if transaction.snapshot and transaction.table is None:
            transaction.table = self._described
        return [*self._end_interrupted(), Started(transaction)]

    def _repeated(self, message: ChangeMessage, lsn: int | None) -> Iterator[Event]:
        """A change of a transaction that is repeated: skipped if it was sent before the restart."""
        changes, messages = self._to_skip
        if isinstance(message, Message):
            skipped = min(messages, int(message.transactional))
            messages -= skipped
        else:
            skipped = min(changes, len(tables_of(message)))
            changes -= skipped
        self._to_skip = changes, messages
        if not (changes or messages):
            self._enter(State.INSIDE)
        if isinstance(message, Truncate):
            message = message._replace(relations=message.relations[skipped:])
        elif skipped:
            return
        yield from HEADLESS[type(message)](self, message, lsn)

    def _origin(self, message: Origin, lsn: int | None) -> Events:
        self._transaction.origin = message.name
        return _NOTHING

    def _late_origin(self, message: Origin, lsn: int | None) -> Events:
        """Servers send Origin before the first change; worker.c, apply_handle_origin, rejects it here too."""
        return self._warn_or_raise(f"Origin {message.name!r} {self._state}, after its first change: ignored")

    def _continued(self, message: Continued, lsn: int | None) -> Events:
        transaction = self._transaction
        if transaction.snapshot:
            transaction.skipped += message.changes - transaction.changes
        transaction.changes, transaction.messages = message
        return _NOTHING

    def _first(self, message: AnyFrame, lsn: int | None) -> Iterator[Event]:
        """The first message after Begin and Origin."""
        if self._transaction.snapshot and isinstance(message, Insert):
            self._transaction.table = self.relations.get(message.relation)
        self._enter(self._inside)
        yield from self._start(self._transaction)
        yield from self.feed(message, lsn, self._offset)

    def _commit(self, message: Commit, lsn: int | None) -> Events:
        transaction = self._transaction
        if transaction.begun and transaction.commit_lsn != message.commit_lsn:
            return self._out_of_place(message, lsn)
        notes = time_damage(message, transaction.commit_ts, self._offset)
        transaction.commit_lsn, transaction.commit_ts = message.commit_lsn, message.commit_time
        transaction.end_lsn = message.end_lsn
        self._enter(State.OUTSIDE)
        self._copied = transaction.commit_lsn if transaction.snapshot else None
        return [*unknown_flags(message, self._offset), *notes, Ended(transaction)]

    def _prepare(self, message: Prepare, lsn: int | None) -> Events:
        if self._transaction.begun and self._transaction.prepare_lsn != message.prepare_lsn:
            return self._out_of_place(message, lsn)
        notes = time_damage(message, self._transaction.prepare_ts, self._offset)
        self._prepared(self._transaction, message)
        self._enter(State.OUTSIDE)
        return [*unknown_flags(message, self._offset), *notes, Ended(self._transaction)]

    def _row(self, message: Insert | Update | Delete, lsn: int | None) -> Events:
        relation = self.relations.get(message.relation)
        change = row_change(self._transaction, message, lsn, relation)
        columns = len(relation.columns)
        new, old = change.new, change.old
        if (new is None or len(new) == columns) and (old is None or len(old) == columns):
            return (change,)
        return self._checked(change)

    def _changes(self, message: Truncate | Message, lsn: int | None) -> Iterator[Event]:
        relations = [self.relations.get(oid) for oid in tables_of(message)]
        for change in changes_of(self._transaction, message, lsn, relations):
            yield from self._checked(change)

    def _outside_message(self, message: Message, lsn: int | None) -> Events:
        return self._out_of_place(message, lsn) if message.transactional else self._changes(message, lsn)

    def _checked(self, change: Change) -> Iterator[Event]:
        """The change, after a warning if it does not fit its table: one for each version of a table."""
        text = tuple_mismatch(change)
        if text is not None and not isinstance(change, LogicalMessage) and change.relation.version not in self._noted:
            self._noted.add(change.relation.version)
            yield from self._warn_or_raise(text)
        yield change

    # -- streamed transactions ---------------------------------------------------------------------------------

    def _stream_start(self, message: StreamStart, lsn: int | None) -> Events:
        known = self.streams.start(message)
        self._stream = message.xid
        self._enter(State.SEGMENT)
        missing = f"the first segments of streamed transaction {message.xid} are missing"
        return _NOTHING if known else self._warn_or_raise(missing)

    def _stream_stop(self, message: StreamStop, lsn: int | None) -> Events:
        self._enter(State.OUTSIDE)
        return self._uncommitted(self.streams.stop())

    def _stream_origin(self, message: Origin, lsn: int | None) -> Events:
        self.streams.origin(self._stream, message.name)
        return _NOTHING

    def _keep(self, message: ChangeMessage, lsn: int | None) -> Events:
        """Buffer a change inside a segment until its transaction ends; non-transactional messages are sent at once."""
        if isinstance(message, Message) and not message.transactional:
            return self._changes(message, lsn)
        return self._uncommitted(self.streams.keep(self._stream, message, lsn))

    def _stream_abort(self, message: StreamAbort, lsn: int | None) -> Events:
        events = self.streams.abort(message)
        if events is not None:
            return self._uncommitted(events)
        return [Note(f"Stream Abort of unknown transaction {message.xid}: ignored", self._offset)]

    def _stream_commit(self, message: StreamCommit, lsn: int | None) -> Iterator[Event]:
        yield from unknown_flags(message, self._offset)
        transaction = yield from self._stream_of(message.xid, message.commit_lsn)
        transaction.commit_lsn, transaction.commit_ts = message.commit_lsn, message.commit_time
        transaction.end_lsn = message.end_lsn
        yield from self._replay(transaction)

    def _stream_prepare(self, message: StreamPrepare, lsn: int | None) -> Iterator[Event]:
        yield from unknown_flags(message, self._offset)
        transaction = yield from self._stream_of(message.xid, message.prepare_lsn)
        self._prepared(transaction, message)
        yield from self._replay(transaction)

    def _stream_of(self, xid: int, lsn: int) -> Generator[Event, None, Transaction]:
        """The streamed transaction that ends at this LSN."""
        transaction = self.streams.end(xid)
        if transaction is None:
            yield from self._warn_or_raise(f"the end of streamed transaction {xid}, which has no changes in this input")
            transaction = Transaction(xid, begun=False, streamed=True)
        return (transaction.begun and self._sent_before(xid, lsn)) or transaction

    def _replay(self, transaction: Transaction) -> Iterator[Event]:
        """Send a streamed transaction, without the changes sent before an interruption in which it was not streamed."""
        changes = messages = 0
        if transaction is self.interrupted:
            self.interrupted = None
            changes, messages = transaction.changes, transaction.messages
            transaction.changes = transaction.messages = 0
        else:
            transaction.context = None  # its parts were shown before
            yield from self._start(transaction)
        for event in self.streams.changes(transaction):
            stop_if_asked()
            if isinstance(event, Described):
                yield event
                continue
            if isinstance(event, UndecodedRows):
                yield from (event,) if transaction.changes >= changes else ()
                continue
            if event.aborted:
                is_new = transaction.changes >= changes
            elif isinstance(event, LogicalMessage):
                is_new = transaction.messages > messages
            else:
                is_new = transaction.changes > changes
            if is_new:
                yield from self._checked(event)
        yield Ended(transaction)

    # -- prepared transactions ---------------------------------------------------------------------------------

    def _prepared(self, transaction: Transaction, message: Prepare) -> None:
        """A transaction was prepared."""
        transaction.xid, transaction.gid, transaction.state = message.xid, message.gid, "prepared"
        transaction.prepare_lsn, transaction.prepare_ts = message.prepare_lsn, message.prepare_time
        transaction.end_lsn = message.end_lsn
        self._gids.add(message.gid)

    def _outcome(self, message: CommitPrepared | RollbackPrepared, lsn: int | None) -> Events:
        """Its Prepare may be missing without an error: in an earlier session, or omitted by some server versions."""
        events: list[Event] = [*unknown_flags(message, self._offset)]
        if message.gid not in self._gids:
            text = f"{type(message).__name__} of {message.gid!r}, whose Prepare is not in this input"
            events.append(Note(text, self._offset))
        self._gids.discard(message.gid)
        return [*events, outcome_of(message)]


def _named(transaction: Transaction) -> str:
    """A transaction in a warning."""
    if transaction.snapshot:
        return "a snapshot" if transaction.table is None else f"the snapshot of {transaction.table.qualified}"
    return f"transaction {'of unknown xid' if transaction.xid is None else transaction.xid}"


Step: TypeAlias = Callable[[Assembler, Any, int | None], Events]

_ALWAYS: dict[type, Step] = {
    RelationMessage: Assembler._relation,
    TypeMessage: Assembler._type,
    **dict.fromkeys((Keepalive, StandbyStatusUpdate), lambda self, message, lsn: _NOTHING),
    UnknownFrame: Assembler._unknown_frame,
    FromClient: lambda self, message, lsn: (message,),
    PartitionOf: Assembler._partition,
}
HEADLESS: Final[dict[type, Step]] = {
    **dict.fromkeys((Insert, Update, Delete), Assembler._row),
    **dict.fromkeys((Truncate, Message), Assembler._changes),
}
"""Messages that are part of a transaction even if its Begin is missing."""

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
        Origin: Assembler._late_origin,
        Commit: Assembler._commit,
        Prepare: Assembler._prepare,
    },
    State.REPEATED: {
        **_ALWAYS,
        **dict.fromkeys(HEADLESS, Assembler._repeated),
        Origin: Assembler._origin,
        Commit: Assembler._commit,
        Prepare: Assembler._prepare,
    },
    State.SNAPSHOT: {
        **_ALWAYS,
        Insert: Assembler._row,
        Commit: Assembler._commit,
        Continued: Assembler._continued,
    },
    State.SEGMENT: {
        **_ALWAYS,
        **dict.fromkeys(HEADLESS, Assembler._keep),
        Origin: Assembler._stream_origin,
        StreamStop: Assembler._stream_stop,
    },
}
