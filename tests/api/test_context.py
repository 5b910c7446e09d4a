"""`context=` of the library: what is kept of a change has the context of its place, not a later one."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

import pgtail
from pgtail.changes.ddl import PREFIX
from pgtail.changes.stream_buffer import MEMORY
from tests.changes.test_context import ADA, BOB, DUMP, EMIT
from tests.support.encode import (
    STREAM_STOP,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    insert,
    lengths,
    message,
    prepare,
    relation,
    rollback_prepared,
    stream_abort,
    stream_commit,
    stream_start,
)
from tests.support.limits import within
from tests.support.run import decode
from tests.support.servers import Database, since
from tests.support.tail import wait_until_received

ADAS, BOBS = {"user": "ada", "app": "psql", "level": 7}, {"user": "bob"}


def kept(data: bytes, **arguments: Any) -> list[pgtail.Change]:
    """All changes, read only after the last one was taken."""
    return [change for transaction in pgtail.read(data, context="who", **arguments) for change in transaction]


def contexts(changes: list[pgtail.Change]) -> list[tuple[Any, Any]]:
    """The id of each row, or the operation of what has none, and its context."""
    return [(change.op if change.new is None else change.new["id"], change.context) for change in changes]


def test_each_change_keeps_the_context_of_its_place() -> None:
    changes = kept(DUMP)
    assert contexts(changes) == [
        *[(1, None), ("message", None), (2, ADAS), ("message", ADAS), (3, ADAS), ("message", None), (3, ADAS)],
        *[("message", ADAS), ("truncate", BOBS), (4, None), (5, None)],
        *[("message", None), (6, "it's\n\x1bme"), ("message", None), (7, b"\xff\x00"), (8, b"\xff\x00")],
    ]
    lines = [json.loads(change.json()) for change in changes]
    assert lines == decode("--context", "who", input=DUMP).objects


def test_without_the_argument_there_is_none() -> None:
    changes = [change for transaction in pgtail.read(DUMP) for change in transaction]
    assert {change.context for change in changes} == {None}
    assert not any("context" in change.json() for change in changes)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"amount": 1.10, "n": 10000000000000000000, "of": {"x": null}}', {"amount": Decimal("1.10")}),
        (b'{"amount": NaN}', '{"amount": NaN}'),
        (b"[1]", "[1]"),
        (b"null", "null"),
        (b"", ""),
    ],
)
def test_what_is_no_object_is_text(content: bytes, expected: Any) -> None:
    [_, change] = kept(lengths(relation(), begin(), message(content, "who"), insert("1", "x"), commit()))
    if isinstance(expected, dict):
        expected |= {"n": 10**19, "of": {"x": None}}
        assert isinstance(change.context, dict)
        assert isinstance(change.context["amount"], Decimal)
    assert change.context == expected


@pytest.mark.parametrize(
    "condition", ["context.user = 'ada'", "context is null", "context.level > 6.5 and id = 3", "context like 'it''s%'"]
)
def test_conditions_are_those_of_the_command(condition: str) -> None:
    lines = [json.loads(change.json()) for change in kept(DUMP, where=condition)]
    assert lines == decode("--context", "who", "--where", condition, input=DUMP).objects
    assert lines


def test_arrow_is_selected_by_it() -> None:
    found = pgtail.read_arrow(DUMP, table="t", context="who", where="context.user = 'ada'", op="insert").read_all()
    assert found["id"].to_pylist() == [2, 3]


def test_masks() -> None:
    found = dict(contexts(kept(DUMP, op="insert", redact="user")))
    assert found[2] == {"user": "(redacted)", "app": "psql", "level": 7}
    assert found[6] == "it's\n\x1bme"


def test_the_message_itself_need_not_pass() -> None:
    assert contexts(kept(DUMP, tables="t", xid=5)) == [(1, None), (2, ADAS), (3, ADAS), (3, ADAS), ("truncate", BOBS)]


def test_a_streamed_transaction() -> None:
    data = lengths(
        *[relation(), stream_start(5), insert("1", "x", xid=5), message(ADA, "who", xid=5), insert("2", "x", xid=6)],
        *[message(b"lost", "who", xid=6), insert("3", "x", xid=6), STREAM_STOP, stream_abort(5, 6)],
        *[stream_start(9), insert("9", "x", xid=9), STREAM_STOP],
        *[stream_start(5, first=0), insert("4", "x", xid=5), message(BOB, "who", xid=5), insert("5", "x", xid=5)],
        *[STREAM_STOP, stream_commit(5, lsn=0x200, end=0x208), stream_commit(9)],
    )
    assert contexts(kept(data, op="insert")) == [(1, None), (4, ADAS), (5, BOBS), (9, None)]


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize("filters", [{}, {"op": ["insert", "ddl"]}], ids=str)
def test_prepared_transactions_that_wait(size: int, filters: dict[str, Any]) -> None:
    """Of several, and in the temporary file, too: the context of the place, and a schema change as what it is."""
    drop = {"version": 1, "tag": "DROP TABLE", "oid": 7, "schema": "public", "name": "gone", "dropped": True}
    count, value = 500 if size > 1 else 2, "x" * size

    def prepared(xid: int, first: bytes, second: bytes) -> list[bytes]:
        rows = [insert(str(xid), value) for _ in range(count)]
        return [
            *[begin_prepare(xid, f"g{xid}"), insert("0", "x"), message(first, "who"), *rows, message(second, "who")],
            *[message(json.dumps(drop).encode(), PREFIX), *rows, prepare(xid, f"g{xid}")],
        ]

    assert size == 1 or 4 * count * size > MEMORY
    data = lengths(
        *[relation(), *prepared(7, ADA, BOB), *prepared(8, b"x", b"y"), *prepared(9, BOB, ADA)],
        *[begin(10), message(b"other", "who"), insert("10", "x"), commit()],
        *[rollback_prepared(8, "g8"), commit_prepared(9, "g9", lsn=0x300), commit_prepared(7, "g7", lsn=0x400)],
    )
    found = [one for one in contexts(kept(data, **filters)) if one[0] != "message"]
    assert found == [
        *[(10, "other")],
        *[(0, None), *[(9, BOBS)] * count, ("ddl", ADAS), *[(9, ADAS)] * count],
        *[(0, None), *[(7, ADAS)] * count, ("ddl", BOBS), *[(7, BOBS)] * count],
    ]
    lines = [json.loads(change.json()) for change in kept(data, **filters)]
    assert {(line["xid"], line["commit_lsn"]) for line in lines} == {(10, "0/100"), (9, "0/300"), (7, "0/400")}


# -- servers ---------------------------------------------------------------------------------------------------------


@since(14)
def test_a_slot_is_followed_with_it(database: Database) -> None:
    """Two contexts in one transaction, also in one that is larger than logical_decoding_work_mem."""
    fill = "INSERT INTO t SELECT i, repeat('x', 300) FROM generate_series({}, {}) i"
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR TABLE t")
    database.execute(f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'")
    with pgtail.follow(database.conninfo(), context="context", tables="t") as stream:
        database.execute(
            *["BEGIN", "INSERT INTO t VALUES (1)", EMIT.format("ada"), "INSERT INTO t VALUES (2)"],
            *[EMIT.format("bob"), "INSERT INTO t VALUES (3)", "COMMIT"],
            *[
                "BEGIN",
                EMIT.format("ada"),
                fill.format(11, 2000),
                EMIT.format("eve"),
                fill.format(2001, 4000),
                "COMMIT",
            ],
        )
        small, large = [contexts([*(stream.next(within(30)) or ())]) for _ in range(2)]
    assert small == [(1, None), (2, {"user": "ada"}), (3, {"user": "bob"})]
    assert large == [(id_, {"user": "ada" if id_ <= 2000 else "eve"}) for id_ in range(11, 4001)]


@since(14)
def test_a_change_is_expected_by_it(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    both = [EMIT.format("ada"), "INSERT INTO t VALUES (1)", EMIT.format("bob"), "INSERT INTO t VALUES (2)", "COMMIT"]
    where = "context.user = 'bob' and op = insert"
    with pgtail.expect(database.conninfo(), context="context", where=where) as expected:
        database.execute("BEGIN", *both)
    assert contexts(expected.changes) == [(2, {"user": "bob"})]

    def wait() -> None:
        with pgtail.expect(database.conninfo(), context="context", tables="t", where="context.user = eve", timeout=0.1):
            database.execute("DELETE FROM t", "BEGIN", "INSERT INTO t VALUES (0)", *both)
            wait_until_received(database)

    with pytest.raises(pgtail.NotAsExpected) as raised:
        wait()
    rows = [json.loads(line) for line in str(raised.value).splitlines() if line.startswith("{")]
    users = {row["new"]["id"]: row.get("context", {}).get("user") for row in rows if row["op"] == "insert"}
    assert users == {0: None, 1: "ada", 2: "bob"}


def test_old_servers_send_no_messages(database: Database) -> None:
    if database.version >= 14:
        pytest.skip("this server sends logical messages")
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    with (
        pytest.raises(pgtail.OptionError, match="context needs logical messages"),
        pgtail.follow(database.conninfo(), context="context"),
    ):
        pass
