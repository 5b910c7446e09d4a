"""The events of transactions that are not streamed, and of rows that do not fit, written as tuples."""

from __future__ import annotations

import pytest

from pgtail.changes.assembler import Assembler
from pgtail.changes.events import Ended, Note, RowChange, SchemaChange, Started
from pgtail.pgoutput.rows import Delete, Insert, Truncate, Update
from pgtail.pgoutput.transaction import Message, Origin
from pgtail.values import Types
from tests.support.assembled import (
    NOT_TRANSACTIONAL,
    STOP,
    TRANSACTIONAL,
    Collector,
    T,
    U,
    begin,
    commit,
    events_of,
    insert,
    notes,
    shown,
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
