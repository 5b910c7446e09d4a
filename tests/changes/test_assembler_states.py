"""Which message may follow which, and inputs that start, end or break off in the middle."""

from __future__ import annotations

from contextlib import closing

import pytest

from pgtail.changes.assembler import State
from pgtail.changes.events import Note
from pgtail.errors import AssemblyError
from pgtail.pgoutput.decoder import AnyFrame, Unknown
from pgtail.pgoutput.rows import Delete, Insert, Truncate, Update
from pgtail.pgoutput.schema import Relation, Type
from pgtail.pgoutput.streaming import StreamAbort, StreamStart, StreamStop
from pgtail.pgoutput.transaction import Begin, Commit, Message, Origin
from pgtail.pgoutput.two_phase import BeginPrepare, CommitPrepared, RollbackPrepared, StreamPrepare
from pgtail.pgoutput.walsender import Keepalive, StandbyStatusUpdate, UnknownFrame
from tests.support.assembled import (
    NOT_TRANSACTIONAL,
    RESTART,
    STOP,
    TRANSACTIONAL,
    Collector,
    Restart,
    T,
    U,
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


RESTARTED = "which ends incomplete; a reader may have restarted here"
OLD, NEW = (start(7), insert(b"old", xid=7)), (start(7), insert(b"new", xid=7), STOP, stream_commit())
STREAMED = [("started", 7), ("insert", 1, b"new"), ("ended", 7, "complete")]


@pytest.mark.parametrize(
    ("messages", "events"),
    [
        # As in G_restart: complete transactions are repeated and shown again.
        (
            (begin(), insert(b"1"), table(), begin(), insert(b"1"), insert(b"2"), commit()),
            [
                *[("started", 7), ("insert", 1, b"1"), ("ended", 7, "broken off")],
                ("note", f"Begin inside a transaction, {RESTARTED}"),
                *[("started", 7), ("insert", 1, b"1"), ("insert", 2, b"2"), ("ended", 7, "complete")],
            ],
        ),
        ((*OLD, *NEW), [("note", f"StreamStart inside a stream segment, {RESTARTED}"), *STREAMED]),
        ((*OLD, STOP, *NEW), STREAMED),
    ],
    ids=["inside a transaction", "inside a segment", "between segments"],
)
def test_reader_restarts(messages: tuple[AnyFrame, ...], events: list[tuple[object, ...]]) -> None:
    assert events_of(table(), *messages) == events


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


# -- restarts ----------------------------------------------------------------------------------------------------------


def test_a_repeated_transaction_goes_on_after_what_was_sent() -> None:
    sent = (begin(), insert(b"1"), TRANSACTIONAL, Truncate(None, 0, (T,)))
    half = (begin(), Origin(1, "n"), insert(b"1"), TRANSACTIONAL)
    truncated = Truncate(None, 0, (T, U))  # a publication may have got a table meanwhile
    repeated = (begin(), insert(b"1"), TRANSACTIONAL, truncated, insert(b"2"), commit())
    assert events_of(table(T), table(U), *sent, RESTART, *half, RESTART, *repeated)[4:] == [
        ("truncate", 3, U, False, False),
        ("insert", 4, b"2"),
        ("ended", 7, "complete"),
    ]


def test_a_repeated_transaction_that_is_streamed_now_goes_on_after_what_was_sent() -> None:
    sent = (begin(), insert(b"1"), TRANSACTIONAL)
    later = Message(7, 1, 9, "p", b"later")
    rows = [insert(value, xid=7) for value in (b"1", b"2")]
    streamed = (start(), table(xid=7), rows[0], later, rows[1], later, STOP, stream_commit())
    assert events_of(table(), *sent, RESTART, *streamed)[3:] == [
        ("insert", 2, b"2"),
        ("message", b"later", 7),
        ("ended", 7, "complete"),
    ]


def test_what_was_left_out_on_purpose_is_not_missing() -> None:
    collector = Collector(strict=True).feed(table(), begin(), insert(b"1"))
    collector.assembler.skip(prepared=["g", "done"], outcomes=["done"])
    assert collector.assembler.outside
    assert [collector.assembler.is_prepared(gid) for gid in ("g", "done")] == [True, False]
    collector.feed(begin(8), insert(b"8"), commit(8))
    assert collector.end()[-3:] == [("started", 8), ("insert", 1, b"8"), ("ended", 8, "complete")]


@pytest.mark.parametrize("other", [(begin(8), commit(8)), (start(8), STOP, stream_commit(8)), (insert(), commit())])
def test_a_transaction_that_is_not_repeated_ends_before_the_next(other: tuple[AnyFrame, ...]) -> None:
    events = [event for event in events_of(table(), begin(), insert(b"1"), RESTART, *other) if event[0] != "note"]
    assert events[2] == ("ended", 7, "broken off")
    assert events[3][0] == "started"
    assert events_of(table(), begin(), insert(b"1"), RESTART)[2:] == [("ended", 7, "broken off")]


# -- every message in every state --------------------------------------------------------------------------------------

LEADING_MESSAGES: dict[State, tuple[AnyFrame | Restart, ...]] = {
    State.OUTSIDE: (),
    State.BEGUN: (begin(),),
    State.INSIDE: (begin(), TRANSACTIONAL),
    State.REPEATED: (begin(), TRANSACTIONAL, RESTART, begin()),
    State.SNAPSHOT: (begin()._replace(xid=0), insert()),
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
    State.REPEATED: {Insert, Update, Delete, Truncate, Message, Commit, Origin},
    State.SNAPSHOT: {Insert, Commit},
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


def test_an_end_whose_time_is_not_that_of_the_beginning_is_damage() -> None:
    messages: list[AnyFrame] = [begin(), insert(), commit()._replace(commit_time=6)]
    messages += [prepared()[0], insert(), prepared()[1]._replace(prepare_time=7)]
    found = [event for event in Collector().feed(table(), *messages).events if isinstance(event, Note)]
    assert [note.damage for note in found] == [True, True]
    begun = "but 2000-01-01T00:00:00.000005Z of its Begin, which the changes have: one of them is damaged"
    assert found[0].text == f"time 2000-01-01T00:00:00.000006Z of Commit, {begun}"
    assert found[1].text == f"time 2000-01-01T00:00:00.000007Z of Prepare, {begun}"


def test_unknown_messages_are_noted_with_their_offset() -> None:
    collector = Collector().feed(Unknown(0xFE, b"body"), UnknownFrame(ord("s"), b"xy"))
    first, second = collector.events
    assert first == Note("a message of unknown kind 'þ', 4 bytes: not shown", 40, damage=True)
    assert second == Note("a frame of unknown kind 's', 2 bytes", 40, damage=False)
