"""Which message may follow which, and the resulting events, written as tuples."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any

import pytest

from pgtail.changes.assembler import Assembler, State
from pgtail.changes.events import (
    Ended,
    Event,
    LogicalMessage,
    Note,
    Outcome,
    RowChange,
    SchemaChange,
    Started,
    TableTruncate,
    UndecodedRows,
)
from pgtail.changes.stream_buffer import StreamBuffer
from pgtail.errors import AssemblyError
from pgtail.pgoutput.decoder import AnyFrame, Decoder, FromClient, Unknown
from pgtail.pgoutput.rows import Delete, Insert, Truncate, Update
from pgtail.pgoutput.schema import Relation, RelationColumn, Type
from pgtail.pgoutput.streaming import StreamAbort, StreamCommit, StreamStart, StreamStop
from pgtail.pgoutput.transaction import Begin, Commit, Message, Origin
from pgtail.pgoutput.two_phase import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared, StreamPrepare
from pgtail.pgoutput.walsender import Keepalive, StandbyStatusUpdate, UnknownFrame
from pgtail.values import Types
from tests.support.corpus import capture

T, U = 100, 200


def table(oid: int = T, *names: str, xid: int | None = None) -> Relation:
    columns = [RelationColumn(int(i == 0), name, 25, -1) for i, name in enumerate(names or ("id",))]
    return Relation(xid, oid, "public", f"t{oid}", "d", tuple(columns))


def begin(xid: int = 7) -> Begin:
    return Begin(xid * 16, 5, xid)


def commit(xid: int = 7) -> Commit:
    return Commit(0, xid * 16, xid * 16 + 8, 5)


def insert(value: bytes = b"v", oid: int = T, xid: int | None = None) -> Insert:
    return Insert(xid, oid, (value,))


def start(xid: int = 7, first: int = 1) -> StreamStart:
    return StreamStart(xid, first)


def stream_commit(xid: int = 7) -> StreamCommit:
    return StreamCommit(xid, 0, xid * 16, xid * 16 + 8, 5)


def prepared(xid: int = 7, gid: str = "g") -> tuple[BeginPrepare, Prepare]:
    return BeginPrepare(xid * 16, xid * 16 + 8, 5, xid, gid), Prepare(0, xid * 16, xid * 16 + 8, 5, xid, gid)


STOP = StreamStop()
NOT_TRANSACTIONAL = Message(None, 0, 9, "p", b"now")
TRANSACTIONAL = Message(None, 1, 9, "p", b"later")


def shown(event: Event) -> tuple[Any, ...]:
    """An event as a tuple of the parts that the tests compare."""
    match event:
        case Started(transaction):
            return "started", transaction.xid
        case Ended(transaction, complete):
            return "ended", transaction.xid, "complete" if complete else "broken off"
        case RowChange():
            cells = event.new if event.new is not None else event.old
            return event.op, event.seq, *([] if cells is None else cells)
        case TableTruncate():
            return "truncate", event.seq, event.relation.oid, event.cascade, event.restart_identity
        case LogicalMessage():
            return "message", event.content, None if event.transaction is None else event.transaction.xid
        case Outcome():
            return event.op, event.gid
        case SchemaChange():
            return "described", event.now.oid, len(event.now.columns)
        case UndecodedRows():
            raise AssertionError("only the pipeline leaves rows undecoded")
        case Note():
            return "note", event.text
        case FromClient():
            return "client", type(event.message).__name__


class Collector:
    """Feeds an assembler and collects its events."""

    def __init__(self, *, strict: bool = False, limit: int = 10**9) -> None:
        self.assembler = Assembler(Types(), strict=strict, buffer=StreamBuffer(limit))
        self.events: list[Event] = []

    def feed(self, *messages: AnyFrame) -> Collector:
        for message in messages:
            self.events += self.assembler.feed(message, None, 40)
        return self

    def end(self) -> list[tuple[Any, ...]]:
        with closing(self.assembler):
            self.events += self.assembler.finish()
        return [shown(event) for event in self.events]


def events_of(*messages: AnyFrame, **options: Any) -> list[tuple[Any, ...]]:
    """The events of these messages, without schema changes."""
    return [event for event in Collector(**options).feed(*messages).end() if event[0] != "described"]


def notes(events: Iterable[tuple[Any, ...]]) -> list[str]:
    return [event[1] for event in events if event[0] == "note"]


# -- transactions that are not streamed -------------------------------------------------------------------------------


def test_transaction_gives_its_events() -> None:
    deleted = Delete(None, T, "K", (b"3",))
    updated = Update(None, T, "K", (b"1",), (b"2",))
    assert events_of(table(), begin(), insert(b"1"), updated, deleted, Truncate(None, 3, (T,)), commit()) == [
        ("started", 7),
        ("insert", 1, b"1"),
        ("update", 2, b"2"),
        ("delete", 3, b"3"),
        ("truncate", 4, T, True, True),
        ("ended", 7, "complete"),
    ]


def test_every_truncated_table_has_its_seq_and_messages_have_none() -> None:
    messages = (
        table(T),
        table(U),
        begin(),
        TRANSACTIONAL,
        Truncate(None, 1, (T, U)),
        TRANSACTIONAL,
        insert(),
        commit(),
    )
    assert events_of(*messages) == [
        ("started", 7),
        ("message", b"later", 7),
        ("truncate", 1, T, True, False),
        ("truncate", 2, U, True, False),
        ("message", b"later", 7),
        ("insert", 3, b"v"),
        ("ended", 7, "complete"),
    ]


def test_empty_transaction_is_reported() -> None:
    assert events_of(begin(), commit()) == [("started", 7), ("ended", 7, "complete")]


def test_transaction_fields_at_its_start_and_end() -> None:
    assembler = Assembler(Types())
    assert list(assembler.feed(begin(), None)) == []
    assert list(assembler.feed(Origin(77, "node_b"), None)) == []
    list(assembler.feed(table(), None))
    started, change = assembler.feed(insert(), 1234)
    assert isinstance(started, Started)
    transaction = started.transaction
    assert (transaction.xid, transaction.commit_lsn, transaction.commit_ts, transaction.origin) == (7, 112, 5, "node_b")
    assert transaction.end_lsn is None
    assert isinstance(change, RowChange)
    assert change.lsn == 1234
    [ended] = assembler.feed(commit(), None)
    assert isinstance(ended, Ended)
    assert ended.transaction is transaction
    assert ended.transaction.end_lsn == 120
    assert ended.transaction.changes == 1


def test_origin_after_the_first_change_is_ignored() -> None:
    collector = Collector().feed(table(), begin(), insert(b"1"), Origin(0, "n"), insert(b"2"), commit())
    assert [shown(event) for event in collector.events if not isinstance(event, Note | SchemaChange)] == [
        ("started", 7),
        ("insert", 1, b"1"),
        ("insert", 2, b"2"),
        ("ended", 7, "complete"),
    ]
    assert [event.text for event in collector.events if isinstance(event, Note)] == [
        "Origin 'n' inside a transaction, after its first change: ignored"
    ]
    assert {event.transaction.origin for event in collector.events if isinstance(event, RowChange)} == {None}


def test_nontransactional_message_has_no_transaction() -> None:
    assert events_of(NOT_TRANSACTIONAL, begin(), NOT_TRANSACTIONAL, commit()) == [
        ("message", b"now", None),
        ("started", 7),
        ("message", b"now", None),
        ("ended", 7, "complete"),
    ]


def test_unknown_message_flags_do_not_make_it_transactional() -> None:
    assert events_of(Message(None, 2, 9, "p", b"x")) == [("message", b"x", None)]
    assert events_of(begin(), Message(None, 3, 9, "p", b"x"), commit())[1] == ("message", b"x", 7)


def test_relation_inside_a_transaction_applies_from_there() -> None:
    collector = Collector().feed(table(T, "a"), begin(), Insert(None, T, (b"1",)), table(T, "a", "b"))
    collector.feed(Insert(None, T, (b"1", b"2")), commit())
    changes = [event for event in collector.events if isinstance(event, RowChange)]
    assert [[column.name for column in change.relation.columns] for change in changes] == [["a"], ["a", "b"]]
    assert notes(collector.end()) == []


# -- rows that do not fit ----------------------------------------------------------------------------------------------


def test_undescribed_table_is_noted_once() -> None:
    events = events_of(begin(), insert(b"1"), insert(b"2"), Truncate(None, 0, (U,)), commit())
    assert notes(events) == [
        "relation 100 was never described: its columns are shown as ?1, ?2, ...",
        "relation 200 was never described: its columns are shown as ?1, ?2, ...",
    ]
    assert [event[:2] for event in events if event[0] != "note"] == [
        ("started", 7),
        ("insert", 1),
        ("insert", 2),
        ("truncate", 3),
        ("ended", 7),
    ]


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        ((b"1", b"2", b"3"), "a row of public.t100 has 3 columns, its Relation 2"),
        ((b"1",), "a row of public.t100 has only 1 of 2 columns"),
    ],
)
def test_row_with_a_wrong_column_count_is_noted_once_and_shown(cells: tuple[bytes, ...], note: str) -> None:
    for messages in (
        (begin(), Insert(None, T, cells), Insert(None, T, cells), commit()),
        (begin(), Delete(None, T, "O", cells), commit()),
        (begin(), Update(None, T, "", None, cells), commit()),
        (start(), Insert(7, T, cells), STOP, stream_commit()),
    ):
        events = events_of(table(T, "a", "b"), *messages)
        assert notes(events) == [note]
        assert any(event[0] in ("insert", "update", "delete") for event in events)


# -- streams -----------------------------------------------------------------------------------------------------------


def test_streams_are_emitted_at_commit_in_commit_order() -> None:
    assert events_of(
        table(),
        *(start(7), insert(b"7a", xid=7), STOP),
        *(start(8), insert(b"8a", xid=8), STOP),
        *(start(7, 0), insert(b"7b", xid=7), STOP),
        stream_commit(8),
        *(begin(9), insert(b"9a"), commit(9)),
        stream_commit(7),
    ) == [
        ("started", 8),
        ("insert", 1, b"8a"),
        ("ended", 8, "complete"),
        ("started", 9),
        ("insert", 1, b"9a"),
        ("ended", 9, "complete"),
        ("started", 7),
        ("insert", 1, b"7a"),
        ("insert", 2, b"7b"),
        ("ended", 7, "complete"),
    ]


def test_fields_of_a_streamed_transaction() -> None:
    assembler = Assembler(Types())
    for message in (start(), Origin(0, "node_b"), insert(xid=7), STOP):
        assert [event for event in assembler.feed(message, 55) if not isinstance(event, Note)] == []
    events = [event for event in assembler.feed(stream_commit(), None) if not isinstance(event, Note)]
    started, change, ended = events
    assert isinstance(started, Started)
    assert isinstance(change, RowChange)
    assert isinstance(ended, Ended)
    transaction = started.transaction
    assert (transaction.xid, transaction.commit_lsn, transaction.end_lsn, transaction.commit_ts) == (7, 112, 120, 5)
    assert (transaction.origin, transaction.streamed, transaction.state) == ("node_b", True, None)
    assert (change.lsn, change.transaction is transaction) == (55, True)


def test_rolled_back_savepoints_drop_only_their_own_changes() -> None:
    assert events_of(
        table(),
        start(7),
        insert(b"1", xid=7),
        insert(b"in 70", xid=70),
        insert(b"in 71, inside 70", xid=71),
        STOP,
        StreamAbort(7, 71, None, None),
        *(start(7, 0), insert(b"in 72, inside 70", xid=72), STOP),
        StreamAbort(7, 70, 1, 1),
        *(start(7, 0), insert(b"2", xid=7), STOP),
        stream_commit(7),
    ) == [("started", 7), ("insert", 1, b"1"), ("insert", 2, b"2"), ("ended", 7, "complete")]


def test_streamed_message_belongs_to_the_top_transaction() -> None:
    """The server writes the top transaction's xid even inside a savepoint: it outlives the savepoint's rollback."""
    assert events_of(
        *(start(7), Message(7, 1, 9, "p", b"stays"), insert(b"goes", xid=70), STOP),
        StreamAbort(7, 70, None, None),
        stream_commit(7),
    )[:2] == [("started", 7), ("message", b"stays", 7)]


def test_rolled_back_stream_gives_no_events() -> None:
    messages = (start(7), insert(b"1", xid=7), insert(b"2", xid=70), STOP)
    aborts = (StreamAbort(7, 70, None, None), StreamAbort(7, 7, None, None))
    assert events_of(table(), *messages, *aborts) == []


def test_abort_of_an_unknown_transaction_is_a_note_even_if_strict() -> None:
    for strict in (False, True):
        events = events_of(StreamAbort(7, 7, None, None), begin(), commit(), strict=strict)
        assert notes(events) == ["Stream Abort of unknown transaction 7: ignored"]
        assert ("ended", 7, "complete") in events


def test_a_savepoint_without_changes_may_be_rolled_back() -> None:
    assert events_of(table(), start(7), insert(xid=7), STOP, StreamAbort(7, 70, None, None), stream_commit(7)) == [
        ("started", 7),
        ("insert", 1, b"v"),
        ("ended", 7, "complete"),
    ]


def test_relation_in_a_stream_applies_to_others_after_its_commit() -> None:
    collector = Collector().feed(table(T, "a"))
    collector.feed(start(7), table(T, "a", "b", xid=7), Insert(7, T, (b"1", b"2")), STOP)
    collector.feed(begin(8), Insert(None, T, (b"1",)), commit(8))
    collector.feed(stream_commit(7))
    collector.feed(begin(9), Insert(None, T, (b"1", b"2")), commit(9))
    assert [(e.transaction.xid, len(e.relation.columns)) for e in collector.events if isinstance(e, RowChange)] == [
        (8, 1),
        (7, 2),
        (9, 2),
    ]
    assert notes(collector.end()) == []


def test_a_table_described_in_a_rolled_back_stream_is_forgotten() -> None:
    collector = Collector().feed(
        table(T, "a"), start(7), table(T, "a", "b", xid=7), STOP, StreamAbort(7, 7, None, None)
    )
    collector.feed(begin(8), Insert(None, T, (b"1",)), commit(8))
    assert notes(collector.end()) == []


def test_streamed_changes_keep_their_version_of_the_table() -> None:
    collector = Collector().feed(start(7), table(T, "a", xid=7), Insert(7, T, (b"1",)), table(T, "a", "b", xid=7))
    collector.feed(Insert(7, T, (b"1", b"2")), STOP, stream_commit(7))
    assert [len(e.relation.columns) for e in collector.events if isinstance(e, RowChange)] == [1, 2]
    assert notes(collector.end()) == []


@pytest.mark.parametrize("name", ["p2_stream_msg", "p2_stream_bin"])
def test_stream_spilled_to_disk_gives_the_same_events(name: str) -> None:
    results = []
    for limit in (0, 10_000, 10**9):
        decoder, collector = Decoder(), Collector(limit=limit)
        for raw in capture("C_stream", name).messages():
            message = decoder.message(raw.data, 0, len(raw.data))
            collector.events += collector.assembler.feed(message, raw.lsn, 0)
        lsns = [
            event.lsn for event in collector.events if isinstance(event, RowChange | TableTruncate | LogicalMessage)
        ]
        results.append((lsns, collector.end()))
    assert results[0] == results[1] == results[2]
    assert len(results[0][1]) > 500


# -- two-phase commit --------------------------------------------------------------------------------------------------


def test_a_prepared_transaction_and_its_outcomes() -> None:
    for outcome, name in (
        (CommitPrepared(0, 300, 310, 6, 7, "g"), "commit_prepared"),
        (RollbackPrepared(0, 120, 310, 5, 6, 7, "g"), "rollback_prepared"),
    ):
        first, last = prepared()
        assert events_of(table(), first, insert(), last, outcome) == [
            ("started", 7),
            ("insert", 1, b"v"),
            ("ended", 7, "complete"),
            (name, "g"),
        ]


def test_fields_of_a_prepared_transaction() -> None:
    for messages in (prepared(), (start(), STOP, StreamPrepare(*prepared()[1]))):
        events = Collector().feed(*messages).events
        [transaction] = [event.transaction for event in events if isinstance(event, Started)]
        assert (transaction.state, transaction.gid, transaction.xid) == ("prepared", "g", 7)
        assert (transaction.prepare_lsn, transaction.prepare_ts, transaction.end_lsn) == (112, 5, 120)
        assert (transaction.commit_lsn, transaction.commit_ts) == (None, None)


def test_outcome_without_its_prepare_is_a_note_even_if_strict() -> None:
    """Its Prepare may belong to an earlier session, or be missing because of a server bug."""
    commit_it, roll_back = CommitPrepared(0, 300, 310, 6, 7, "g"), RollbackPrepared(0, 120, 310, 5, 6, 7, "g")
    for strict in (False, True):
        assert events_of(commit_it, roll_back, strict=strict) == [
            ("note", "CommitPrepared of 'g', whose Prepare is not in this input"),
            ("commit_prepared", "g"),
            ("note", "RollbackPrepared of 'g', whose Prepare is not in this input"),
            ("rollback_prepared", "g"),
        ]


def test_a_gid_may_be_used_again() -> None:
    outcome = CommitPrepared(0, 300, 310, 6, 7, "g")
    assert notes(events_of(*prepared(), outcome, *prepared(8), outcome)) == []
    assert len(notes(events_of(*prepared(), outcome, outcome))) == 1


def test_a_streamed_transaction_may_be_prepared() -> None:
    last = StreamPrepare(*prepared()[1])
    assert events_of(table(), start(), insert(xid=7), STOP, last, CommitPrepared(0, 300, 310, 6, 7, "g")) == [
        ("started", 7),
        ("insert", 1, b"v"),
        ("ended", 7, "complete"),
        ("commit_prepared", "g"),
    ]


# -- inputs that start, end or break off in the middle -----------------------------------------------------------------


def test_changes_without_a_begin_have_no_seq() -> None:
    events = events_of(table(), insert(b"1"), insert(b"2"), commit(), begin(8), insert(b"3"), commit(8))
    assert events == [
        ("note", "no Begin before this Insert: its transaction is unknown, its changes have no seq"),
        ("started", None),
        ("insert", None, b"1"),
        ("insert", None, b"2"),
        ("ended", None, "complete"),
        ("started", 8),
        ("insert", 1, b"3"),
        ("ended", 8, "complete"),
    ]


@pytest.mark.parametrize("first", [insert(), Update(None, T, "", None, (b"v",)), Delete(None, T, "K", (b"v",)),
                                   Truncate(None, 0, (T,)), TRANSACTIONAL])  # fmt: skip
def test_first_change_without_a_begin_is_noted(first: AnyFrame) -> None:
    events = events_of(table(), first, prepared()[1])
    assert [event[0] for event in events] == ["note", "started", events[2][0], "ended"]
    assert events[2][0] != "note"
    with pytest.raises(AssemblyError, match="byte 40: no Begin before this"):
        events_of(table(), first, strict=True)


def test_a_stream_whose_beginning_is_missing_has_no_seq() -> None:
    events = events_of(table(), start(7, 0), insert(xid=7), STOP, stream_commit())
    assert events == [
        ("note", "the first segments of streamed transaction 7 are missing"),
        ("started", 7),
        ("insert", None, b"v"),
        ("ended", 7, "complete"),
    ]


def test_end_of_an_unseen_stream_is_noted() -> None:
    for last in (stream_commit(), StreamPrepare(*prepared()[1])):
        assert events_of(last) == [
            ("note", "the end of streamed transaction 7, which has no changes in this input"),
            ("started", 7),
            ("ended", 7, "complete"),
        ]


def test_an_input_may_end_inside_a_transaction() -> None:
    assert events_of(table(), begin(), insert()) == [
        ("started", 7),
        ("insert", 1, b"v"),
        ("ended", 7, "broken off"),
        ("note", "the input ends inside transaction 7"),
    ]
    assert events_of(begin()) == [
        ("started", 7),
        ("ended", 7, "broken off"),
        ("note", "the input ends inside transaction 7"),
    ]


def test_an_input_may_end_with_open_streams() -> None:
    note = "the input ends inside streamed transaction 7, 8: it is not shown"
    assert events_of(start(7), STOP, start(8)) == [("note", note)]


@pytest.mark.parametrize("messages", [(begin(),), (table(), begin(), insert()), (start(7), STOP), (start(7),)])
def test_incomplete_input_is_an_error_if_strict(messages: tuple[AnyFrame, ...]) -> None:
    with pytest.raises(AssemblyError, match="the input ends"):
        events_of(*messages, strict=True)


def test_reader_restarts_inside_a_transaction() -> None:
    """As in G_restart: complete transactions are repeated and shown again."""
    events = events_of(table(), begin(), insert(b"1"), table(), begin(), insert(b"1"), insert(b"2"), commit())
    assert events == [
        ("started", 7),
        ("insert", 1, b"1"),
        ("ended", 7, "broken off"),
        ("note", "Begin inside a transaction, which ends incomplete; a reader may have restarted here"),
        ("started", 7),
        ("insert", 1, b"1"),
        ("insert", 2, b"2"),
        ("ended", 7, "complete"),
    ]


def test_reader_restarts_inside_a_segment() -> None:
    events = events_of(
        table(),
        *(start(7), insert(b"old", xid=7)),
        *(start(7), insert(b"new", xid=7), STOP),
        stream_commit(),
    )
    assert events == [
        ("note", "StreamStart inside a stream segment, which ends incomplete; a reader may have restarted here"),
        ("started", 7),
        ("insert", 1, b"new"),
        ("ended", 7, "complete"),
    ]


def test_reader_restarts_between_segments() -> None:
    first = (start(7), insert(b"old", xid=7), STOP)
    assert events_of(table(), *first, start(7), insert(b"new", xid=7), STOP, stream_commit()) == [
        ("started", 7),
        ("insert", 1, b"new"),
        ("ended", 7, "complete"),
    ]


def test_the_end_of_another_transaction_does_not_end_this_one() -> None:
    """As in a dump whose middle was cut out."""
    events = events_of(table(), begin(7), insert(), commit(8))
    assert events == [
        ("started", 7),
        ("insert", 1, b"v"),
        ("ended", 7, "broken off"),
        ("note", "Commit inside a transaction, which ends incomplete; a reader may have restarted here"),
        ("note", "Commit outside a transaction: its beginning is missing"),
    ]
    for first, last in ((prepared(7)[0], commit(7)), (begin(7), prepared(7)[1]), (prepared(7)[0], prepared(8)[1])):
        events = events_of(table(), first, insert(), last)
        assert ("ended", 7, "broken off") in events
        assert len(notes(events)) == 2


def test_seqs_are_unknown_after_lost_messages() -> None:
    collector = Collector().feed(table(), start(8), insert(b"8", xid=8), STOP, begin(7), insert(b"1"))
    collector.events += collector.assembler.lost()
    collector.feed(insert(b"2"), commit(7), stream_commit(8))
    events = [event for event in collector.end() if event[0] != "described"]
    assert events == [
        ("started", 7),
        ("insert", 1, b"1"),
        ("ended", 7, "broken off"),
        ("note", "no Begin before this Insert: its transaction is unknown, its changes have no seq"),
        ("started", None),
        ("insert", None, b"2"),
        ("ended", None, "complete"),
        ("started", 8),
        ("insert", None, b"8"),
        ("ended", 8, "complete"),
    ]


# -- every message in every state --------------------------------------------------------------------------------------

LEADING_MESSAGES: dict[State, tuple[AnyFrame, ...]] = {
    State.OUTSIDE: (),
    State.BEGUN: (begin(),),
    State.INSIDE: (begin(), TRANSACTIONAL),
    State.SEGMENT: (start(),),
}
ONE_OF_EACH: list[AnyFrame] = [
    begin(),
    commit(),
    Origin(1, "n"),
    table(),
    Type(None, 20000, "", "int4"),
    insert(),
    Update(None, T, "K", (b"1",), (b"2",)),
    Delete(None, T, "K", (b"1",)),
    Truncate(None, 0, (T,)),
    NOT_TRANSACTIONAL,
    TRANSACTIONAL,
    start(),
    STOP,
    stream_commit(),
    StreamAbort(7, 7, None, None),
    *prepared(),
    CommitPrepared(0, 300, 310, 6, 7, "g"),
    RollbackPrepared(0, 120, 310, 5, 6, 7, "g"),
    StreamPrepare(*prepared()[1]),
    Unknown(0xFE, b"body"),
    Keepalive(1, 2, 0),
    StandbyStatusUpdate(1, 2, 3, 4, 0),
    UnknownFrame(0x73, b"body"),
]
EXPECTED: dict[State, set[type]] = {
    State.OUTSIDE: {Begin, BeginPrepare, StreamStart},
    State.BEGUN: {Insert, Update, Delete, Truncate, Message, Commit, Origin},
    State.INSIDE: {Insert, Update, Delete, Truncate, Message, Commit},
    State.SEGMENT: {Insert, Update, Delete, Truncate, Message, Origin, StreamStop},
}
ALWAYS = {Relation, Type, Keepalive, StandbyStatusUpdate}
ALWAYS_NOTED = {Unknown, UnknownFrame}


@pytest.mark.parametrize("message", ONE_OF_EACH, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_unexpected_message_is_noted_in_every_state(state: State, message: AnyFrame) -> None:
    def fed(*, strict: bool) -> list[str]:
        collector = Collector(strict=strict).feed(table(), *LEADING_MESSAGES[state])
        with closing(collector.assembler):
            return [event.text for event in collector.assembler.feed(message, None, 40) if isinstance(event, Note)]

    kind = type(message)
    standalone = state is State.OUTSIDE and message is NOT_TRANSACTIONAL
    expected = kind in EXPECTED[state] | ALWAYS or standalone
    assert (fed(strict=False) == []) == expected
    server_may_send = state is State.OUTSIDE and kind in {StreamAbort, CommitPrepared, RollbackPrepared}
    if expected or kind in ALWAYS_NOTED or server_may_send:
        assert fed(strict=True) == fed(strict=False)
    else:
        with pytest.raises(AssemblyError):
            fed(strict=True)


def test_unknown_flags_are_a_note() -> None:
    texts = notes(
        events_of(
            *(begin(), commit()._replace(flags=1)),
            *(prepared()[0], prepared()[1]._replace(flags=2)),
            CommitPrepared(4, 300, 310, 6, 7, "g"),
            RollbackPrepared(8, 120, 310, 5, 6, 7, "g"),
            *(start(), STOP, stream_commit()._replace(flags=16)),
            *(start(), STOP, StreamPrepare(*prepared()[1])._replace(flags=32)),
            strict=True,
        )
    )
    assert [text for text in texts if "flags" in text] == [
        "Commit has unknown flags 0x01",
        "Prepare has unknown flags 0x02",
        "CommitPrepared has unknown flags 0x04",
        "RollbackPrepared has unknown flags 0x08",
        "StreamCommit has unknown flags 0x10",
        "StreamPrepare has unknown flags 0x20",
    ]


def test_unknown_messages_are_noted_with_their_offset() -> None:
    collector = Collector().feed(Unknown(0xFE, b"body"), UnknownFrame(ord("s"), b"xy"))
    first, second = collector.events
    assert first == Note("a message of unknown kind 'þ', 4 bytes: not shown", 40, damage=True)
    assert second == Note("a frame of unknown kind 's', 2 bytes", 40, damage=False)
