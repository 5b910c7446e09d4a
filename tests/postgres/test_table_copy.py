"""Copying a table: changes of the table meanwhile, errors with their cures, requests to stop."""

from __future__ import annotations

import hashlib
import threading
import time
from contextlib import closing

import psycopg
import pytest
from msgspec.structs import replace

from pgtail.errors import ServerError
from pgtail.pgoutput.frames import COPY_DATA, LENGTHS, walk
from pgtail.pgoutput.walsender import XLogData
from pgtail.postgres.copy_rows import copy_functions
from pgtail.postgres.errors import Unreachable
from pgtail.postgres.snapshot_plan import snapshot_plan
from pgtail.postgres.table_copy import BATCH, CopyForm, CopyStopped, TableChanged, copy_part
from tests.support.copied_tables import copied, snapshot_of
from tests.support.limits import within
from tests.support.render import WAYS, rows_by
from tests.support.servers import Database, since

TABLE = (
    "CREATE TABLE t (id int PRIMARY KEY, v text, w text)",
    "INSERT INTO t SELECT n, 'v' || n, 'w' FROM generate_series(1, 100) n",
    "CREATE TABLE other (id int)",
    "INSERT INTO other VALUES (1)",
    "CREATE PUBLICATION pub FOR TABLE t, other",
)
FORM = CopyForm(False, XLogData(1, 2, 3), LENGTHS)


@pytest.mark.parametrize(
    ("statements", "how"),
    [
        (("TRUNCATE t",), "truncated or rewritten"),
        (("DROP PUBLICATION pub", "ALTER TABLE t SET UNLOGGED"), "truncated or rewritten"),
        (("ALTER TABLE t ALTER v TYPE varchar(4) USING 'x'",), "altered"),
        (("VACUUM FULL t",), "truncated or rewritten"),
        (("REPACK (CONCURRENTLY) t",), "truncated or rewritten"),
        (("ALTER TABLE t RENAME v TO x",), "altered or dropped"),
        (("ALTER TABLE t RENAME v TO x", "ALTER TABLE t RENAME w TO v", "ALTER TABLE t RENAME x TO w"), "altered"),
        (("ALTER TABLE t DROP v", "ALTER TABLE t ADD v text"), "altered"),
        (("DROP TABLE t",), "dropped"),
        (("DROP TABLE t", "CREATE TABLE t (id int, v text, w text)"), "dropped"),
    ],
)
def test_a_table_that_has_changed(database: Database, statements: tuple[str, ...], how: str) -> None:
    """It must be copied again; the session still has its snapshot, and copies other tables."""
    if database.version < 19 and "REPACK" in statements[0]:
        pytest.skip(f"PostgreSQL {database.version} has no REPACK")
    database.execute(*TABLE)
    with snapshot_of(database) as (session, _):
        tables = {table.name: table for table in snapshot_plan(session, ["pub"])}
        database.execute(*statements)
        for _ in range(2):
            with pytest.raises(TableChanged, match=rf"^table public.t has changed since the snapshot \(.*{how}"):
                copied(session, tables["t"])
        assert len(copied(session, tables["other"])) == 1


@pytest.mark.parametrize(
    "statements",
    [
        ("ALTER TABLE t RENAME TO renamed",),
        ("CREATE SCHEMA s", "ALTER TABLE t SET SCHEMA s"),
        ("ALTER TABLE t RENAME TO x", "ALTER TABLE other RENAME TO t"),
        ("ALTER TABLE t ADD x int", "ALTER TABLE t ADD y int NOT NULL DEFAULT 3", "DELETE FROM t", "VACUUM t"),
        ("CREATE TABLE late (q int) INHERITS (t)", "INSERT INTO late VALUES (1000, 'v', 'w', 1)"),
    ],
)
def test_a_table_that_is_the_same(database: Database, statements: tuple[str, ...]) -> None:
    database.execute(*TABLE)
    with snapshot_of(database) as (session, _):
        table = next(table for table in snapshot_plan(session, ["pub"]) if table.name == "t")
        before = copied(session, table)
        if database.version < 11:  # it rewrites the table for a default
            statements = tuple(one for one in statements if "DEFAULT" not in one)
        database.execute(*statements)
        assert copied(session, table) == before
        assert len(before) == 100


def test_the_lock_ends_with_the_part(newest_database: Database) -> None:
    newest_database.execute(*TABLE)
    with snapshot_of(newest_database) as (session, _):
        table = next(table for table in snapshot_plan(session, ["pub"]) if table.name == "t")
        batches = copy_part(session, table, table.parts[0], FORM, stop=threading.Event(), batch_bytes=1)
        next(batches)
        query = "SELECT mode FROM pg_locks WHERE relation = 't'::regclass"
        assert newest_database.query(query) == [("AccessShareLock",)]
        batches.close()
        assert newest_database.query(query) == []
        assert len(copied(session, table)) == 100


@pytest.mark.parametrize("framing", [LENGTHS, COPY_DATA])
def test_batches(newest_database: Database, framing: int) -> None:
    newest_database.execute(
        "CREATE TABLE t (id int, v text)",
        "INSERT INTO t SELECT n, repeat('x', 50) FROM generate_series(1, 20000) n",
        "INSERT INTO t VALUES (0, repeat('y', 3000000))",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    form = CopyForm(False, XLogData(1, 2, 3), framing)
    with snapshot_of(newest_database) as (session, _):
        [table] = snapshot_plan(session, ["pub"])
        batches = list(copy_part(session, table, table.parts[0], form, stop=threading.Event()))
    sizes = [len(batch.frames) for batch in batches]
    assert all(BATCH <= size < BATCH + 3_100_000 for size in sizes[:-1])
    assert sum(size < BATCH + 200 for size in sizes) == len(sizes) - 1 >= 1
    assert [len(list(walk(batch.frames, 0, framing))) for batch in batches] == [batch.rows for batch in batches]
    assert sum(batch.rows for batch in batches) == 20_001


@pytest.mark.parametrize("binary", [False, True])
def test_every_way_of_reading_gives_the_same(newest_database: Database, binary: bool) -> None:
    """By libpq's functions and by psycopg's, also a row that is larger than libpq's buffer, and than a batch."""
    newest_database.execute(
        "CREATE TABLE t (id int, v text)",
        r"INSERT INTO t SELECT n, nullif(repeat(E'\t\\\n', n % 30), '') FROM generate_series(1, 5000) n",
        "INSERT INTO t VALUES (0, repeat('y', 3000000))",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    assert copy_functions() is not None or psycopg.pq.__impl__ == "python"
    found = []
    with snapshot_of(newest_database) as (session, _):
        [table] = snapshot_plan(session, ["pub"])
        for way in WAYS:
            with rows_by(way):
                found.append(copied(session, table, binary=binary))
    assert len(found[0]) == 5001
    assert all(one == found[0] for one in found)


def test_a_sample_is_by_the_md5_of_the_keys_texts(database: Database) -> None:
    """Of the texts that the stream has: a cast to text gives others of boolean and char(n)."""
    key = "a char(6), b boolean, c timestamptz, d text, PRIMARY KEY (d, c, b, a)"
    values = "'x' || n, n % 2 = 0, timestamptz 'epoch' + n * interval '1 day', E'ä,\\t' || n"
    database.execute(
        f"CREATE TABLE t (v text, {key})",
        f"INSERT INTO t SELECT 'v', {values} FROM generate_series(1, 500) n",
        "CREATE TABLE bag AS SELECT v FROM t",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "CREATE PUBLICATION pub FOR TABLE t, bag",
    )

    def in_sample(message: bytes) -> bool:
        cells, at = [], 8  # after I, the OID, N, and the number of columns
        while at < len(message):
            size = int.from_bytes(message[at + 1 : at + 5])
            cells.append(message[at + 5 : at + 5 + size])
            at += 5 + size
        number = int(hashlib.md5(b",".join(cells[1:]), usedforsecurity=False).hexdigest()[:8], 16)
        return number * 1_000_000 < 200_000 << 32

    with snapshot_of(database) as (session, _):
        tables = {table.name: table for table in snapshot_plan(session, ["pub"])}
        expected = [message for message in copied(session, tables["t"]) if in_sample(message)]
        assert 50 < len(expected) < 150
        for binary in (False, True)[: 1 + (database.version >= 14)]:
            assert len(copied(session, tables["t"], binary=binary, sample=200_000)) == len(expected)
        assert copied(session, tables["t"], sample=200_000) == expected
        assert len(copied(session, tables["bag"], sample=200_000)) == 500


def in_another_role(database: Database, *statements: str) -> str:
    """Create a role for one test; returns its name."""
    role = f"reader_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN", f"GRANT USAGE ON SCHEMA public TO {role}")
    database.execute(*[one.format(role=role) for one in statements])
    return role


def error_for(database: Database, role: str) -> str:
    with snapshot_of(database, user=role) as (session, _):
        tables = {table.name: table for table in snapshot_plan(session, ["pub"])}
        with pytest.raises(ServerError) as caught:
            copied(session, tables["t"])
        assert not isinstance(caught.value, TableChanged | Unreachable)
        assert len(copied(session, tables["other"])) == 1
    return str(caught.value)


def test_a_role_that_may_not_select(database: Database) -> None:
    database.execute(*TABLE)
    role = in_another_role(database, "GRANT SELECT ON other TO {role}")
    try:
        lines = error_for(database, role).splitlines()
        assert lines[0].startswith("table public.t cannot be copied: permission denied for ")
        assert lines[1:3] == ["Let the role read it:", f'    GRANT SELECT ON "public"."t" TO {role};']
    finally:
        database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_row_level_security(database: Database) -> None:
    database.execute(*TABLE, "ALTER TABLE t ENABLE ROW LEVEL SECURITY", "CREATE POLICY p ON t USING (id < 5)")
    role = in_another_role(database, "GRANT SELECT ON other, t TO {role}")
    try:
        text = error_for(database, role)
        assert text.startswith("table public.t cannot be copied: query would be affected by row-level security policy")
        assert f"ALTER ROLE {role} BYPASSRLS;" in text
        database.execute(f"ALTER ROLE {role} BYPASSRLS")
        with snapshot_of(database, user=role) as (session, _):
            assert {len(copied(session, table)) for table in snapshot_plan(session, ["pub"])} == {1, 100}
    finally:
        database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@since(15)
def test_a_right_to_the_published_columns_suffices(database: Database) -> None:
    database.execute(*TABLE, "ALTER PUBLICATION pub SET TABLE t (id, v)")
    role = in_another_role(database, "GRANT SELECT (v, id) ON t TO {role}")
    try:
        with snapshot_of(database, user=role) as (session, _):
            [table] = snapshot_plan(session, ["pub"])
            assert len(copied(session, table)) == 100
    finally:
        database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def stopped_within(database: Database, before: str = "SELECT 1") -> float:
    """Seconds until the copy of table t ends after a request to stop."""
    stop = threading.Event()
    with snapshot_of(database) as (session, _), closing(database.connect()) as other:
        table = next(table for table in snapshot_plan(session, ["pub"]) if table.name == "t")
        other.execute("BEGIN")
        other.execute(before.encode())
        threading.Timer(0.5, stop.set).start()
        with pytest.raises(CopyStopped):
            copied(session, table, stop=stop)
        started = time.monotonic() + 0.5
        other.execute("ROLLBACK")
        assert session.connection.execute("SELECT 1").fetchone() == (1,)
    return time.monotonic() - started


def test_a_request_to_stop(database: Database) -> None:
    """Also while the copy waits for a lock, or the server has nothing to send."""
    database.execute(*TABLE)
    assert stopped_within(database, "LOCK TABLE t") < within(60)


@since(15)
def test_a_request_to_stop_while_nothing_is_sent(database: Database) -> None:
    database.execute(
        *TABLE,
        "ALTER PUBLICATION pub SET TABLE t WHERE (id < 0)",
        "INSERT INTO t SELECT n, '', '' FROM generate_series(101, 3000) n",
    )
    slow = "CREATE FUNCTION slow() RETURNS bool LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN false; END'"
    database.execute(slow)
    stop = threading.Event()
    with snapshot_of(database) as (session, _):
        [table] = snapshot_plan(session, ["pub"])
        parts = copy_part(session, replace(table, row_filter="public.slow()"), table.parts[0], FORM, stop=stop)
        threading.Timer(0.5, stop.set).start()
        started = time.monotonic()
        with pytest.raises(CopyStopped):
            next(parts)
        assert time.monotonic() - started < within(60)
        assert session.connection.execute("SELECT 1").fetchone() == (1,)


def test_a_connection_that_breaks(newest_database: Database) -> None:
    newest_database.execute(*TABLE, "INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(101, 40000) n")
    with snapshot_of(newest_database) as (session, _):
        table = next(table for table in snapshot_plan(session, ["pub"]) if table.name == "t")
        batches = copy_part(session, table, table.parts[0], FORM, stop=threading.Event(), batch_bytes=1)
        next(batches)
        newest_database.query(f"SELECT pg_terminate_backend({session.connection.pgconn.backend_pid})")
        with pytest.raises(Unreachable):
            list(batches)
