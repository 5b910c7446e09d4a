"""The events of transactions that are not streamed, and of rows that do not fit, written as tuples."""

from __future__ import annotations

from pgtail.pgoutput.rows import Delete, Truncate, Update
from pgtail.pgoutput.transaction import Message
from tests.support.assembled import (
    T,
    begin,
    commit,
    events_of,
    insert,
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


# -- rows that do not fit ----------------------------------------------------------------------------------------------
