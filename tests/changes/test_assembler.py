"""The events of transactions: plain, streamed and prepared ones, written as tuples."""

from __future__ import annotations

from pgtail.changes.events import RowChange
from pgtail.pgoutput.rows import Delete, Insert, Truncate, Update
from pgtail.pgoutput.streaming import StreamAbort
from pgtail.pgoutput.transaction import Message
from pgtail.pgoutput.two_phase import CommitPrepared, RollbackPrepared
from tests.support.assembled import (
    STOP,
    Collector,
    T,
    begin,
    commit,
    events_of,
    insert,
    notes,
    prepared,
    start,
    stream_commit,
    table,
)

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


def test_unknown_message_flags_do_not_make_it_transactional() -> None:
    assert events_of(Message(None, 2, 9, "p", b"x")) == [("message", b"x", None)]
    assert events_of(begin(), Message(None, 3, 9, "p", b"x"), commit())[1] == ("message", b"x", 7)


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


def test_streamed_changes_keep_their_version_of_the_table() -> None:
    collector = Collector().feed(start(7), table(T, "a", xid=7), Insert(7, T, (b"1",)), table(T, "a", "b", xid=7))
    collector.feed(Insert(7, T, (b"1", b"2")), STOP, stream_commit(7))
    assert [len(e.relation.columns) for e in collector.events if isinstance(e, RowChange)] == [1, 2]
    assert notes(collector.end()) == []


# -- two-phase commit --------------------------------------------------------------------------------------------------


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
