"""The server's own decoding fails: pgtail ends with advice, and the advice works on a real server.

A hostile server sends the errors, because a real one cannot be made to fail in this way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from pgtail.postgres.errors import Unreachable
from pgtail.replication import decoding_errors
from tests.support.hostile_server import Change, HostileServer, Reply, failure
from tests.support.run import here
from tests.support.servers import Database
from tests.support.tail import stream

NO_FILENUMBER = b'could not map filenumber "base/16384/16402" to relation OID'
NO_CHUNK = b"got sequence entry 1 for toast chunk 16422 instead of seq 0"
_TAG = 25


@pytest.fixture
def orders(database: Database) -> Database:
    """Four transactions wait in slot s."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE t",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        *[f"INSERT INTO t VALUES ({number})" for number in range(1, 5)],
    )
    return database


@pytest.fixture
def hostile(orders: Database) -> Iterator[HostileServer]:
    server = HostileServer("127.0.0.1", orders.server.port)
    yield server
    server.close()


def through(orders: Database, hostile: HostileServer) -> str:
    return orders.conninfo(tcp=True).replace(f"port={orders.server.port}", f"port={hostile.port}")


def fails_at(tag: bytes, number: int, answer: bytes | None) -> Change:
    """Replace the message with this number of its kind with `answer`, and drop the rest."""
    left = number

    def change(reply: Reply) -> bytes | None:
        nonlocal left
        if reply.kind == b"d" and reply.body[:1] == b"w" and reply.body[_TAG : _TAG + 1] == tag:
            left -= 1
            if left == 0:
                return answer
        return reply.whole if left > 0 else b""

    return change


def ids(database: Database, *arguments: str) -> list[str]:
    return [line["new"]["id"] for line in stream(database, "-S", "s", "--until", "now", *arguments)[0]]


def confirmed(database: Database) -> str:
    return str(database.value("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 's'"))


def test_a_transaction_that_has_begun_is_skipped_exactly(orders: Database, hostile: HostileServer) -> None:
    hostile.change = fails_at(b"I", 2, failure(NO_CHUNK))
    lines, words = stream(through(orders, hostile), "-S", "s", "--until", "now", status=3)
    assert [line["new"]["id"] for line in lines] == ["1"]
    assert NO_CHUNK.decode() in words
    assert "The server's own decoding failed in the transaction that commits at " in words
    assert "pgsql-bugs@lists.postgresql.org" in words
    [looked] = re.findall(r"pgtail stream --slot s --startpos (\S+)", words)
    [skipped] = re.findall(r"pgtail slot advance s (\S+)", words)
    assert looked == skipped
    before = confirmed(orders)
    assert ids(orders, "--from", looked) == ["3", "4"]
    assert confirmed(orders) == before
    assert words.index("--startpos") < words.index("slot advance"), "the advice that loses nothing comes first"
    assert "The slot's consumer then loses that transaction" in words
    advanced = here("slot", "advance", "s", skipped, orders.conninfo(), "--yes")
    if orders.version < 11:
        assert "PostgreSQL can advance slots since version 11" in advanced.stderr
        return
    assert advanced.status == 0
    assert ids(orders) == ["3", "4"]


def test_a_transaction_that_has_not_begun_is_found_in_the_wal(orders: Database, hostile: HostileServer) -> None:
    hostile.change = fails_at(b"B", 2, failure(NO_FILENUMBER))
    lines, words = stream(through(orders, hostile), "-S", "s", "--until", "now", status=3)
    assert [line["new"]["id"] for line in lines] == ["1"]
    assert "in the first transaction that commits after " in words
    [search] = re.findall(r"SELECT end_lsn .*;", words)
    if orders.version < 15 or not orders.query("SELECT 1 FROM pg_available_extensions WHERE name = 'pg_walinspect'"):
        pytest.skip("this server comes without pg_walinspect")
    orders.execute("CREATE EXTENSION pg_walinspect")
    end_lsn = str(orders.value(search))
    assert ids(orders, "--from", end_lsn) == ["3", "4"]
    assert "pgtail slot advance s END_LSN" in words
    assert here("slot", "advance", "s", end_lsn, orders.conninfo(), "--yes").status == 0
    assert ids(orders) == ["3", "4"]


def test_a_new_temporary_slot_starts_after_it(orders: Database, hostile: HostileServer) -> None:
    hostile.change = lambda reply: failure(NO_FILENUMBER) if reply.kind == b"d" else reply.whole
    _, words = stream(through(orders, hostile), status=3)
    assert "A new temporary slot starts after this transaction" in words
    assert "slot advance" not in words


def test_no_reconnection_after_repeated_failures_at_one_position(orders: Database, hostile: HostileServer) -> None:
    sessions = 0

    def change(reply: Reply) -> bytes | None:
        nonlocal sessions
        if reply.kind == b"W":
            sessions += 1
        return None if reply.kind == b"d" and reply.body[_TAG : _TAG + 1] == b"B" else reply.whole

    hostile.change = change
    lines, words = stream(through(orders, hostile), "-S", "s", status=3)
    assert lines == []
    assert sessions == decoding_errors.MAX_REPEATS
    assert f"{sessions} times in a row" in words
    assert "pgtail does not connect again" in words
    assert "pgtail slot advance s END_LSN" in words


def test_other_failures_do_not_count() -> None:
    repeated, cut = decoding_errors.RepeatedFailure(), Unreachable("the connection broke: cut")

    def broke(why: Unreachable, delivered: int, *, caught_up: bool = False) -> bool:
        return repeated.add(why, delivered, caught_up=caught_up, option="", slot="s") is not None

    most = decoding_errors.MAX_REPEATS
    assert not any(broke(cut, 7, caught_up=True) for _ in range(2 * most)), "a broken idle connection"
    assert not any(broke(cut, position) for position in range(2 * most)), "each session made progress"
    assert not any(broke(Unreachable(f"reason {number}"), 7) for number in range(2 * most))
    assert [broke(cut, 7) for _ in range(most)] == [False] * (most - 1) + [True]
