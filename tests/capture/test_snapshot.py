"""`pgtail record --snapshot` on real servers: what is copied, when, and what it says."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pgtail.capture.snapshot_writer import SnapshotWriter
from pgtail.demo.server import EmbeddedServer
from pgtail.postgres import table_copy
from pgtail.replication.snapshot_report import SnapshotReport
from tests.conftest import StartServer
from tests.support.refused import role
from tests.support.replay import Replica, Snapshots
from tests.support.run import Result, here
from tests.support.servers import Database, fresh_database, since
from tests.support.standbys import standby_of
from tests.support.tail import parse, wait_for
from tests.support.threads import meanwhile
from tests.torture.snapshot_histories import small_parts, try_history

_CURE = "; --snapshot-table '*' copies the tables again"


def record(database: Database | str, directory: Path, *options: str) -> Result:
    conninfo = database if isinstance(database, str) else database.conninfo()
    return here("record", conninfo, "-S", "cap", "-D", directory, "--until", "now", "--snapshot", *options)


def recorded(database: Database, directory: Path, *options: str) -> str:
    """Standard error of a run that succeeds."""
    ran = record(database, directory, *options)
    assert ran.status == 0, ran.stderr
    return ran.stderr


def refused(database: Database | str, directory: Path, *options: str, status: int = 3) -> str:
    """Standard error of a run that fails."""
    ran = record(database, directory, *options)
    assert ran.status == status, (ran.status, ran.stderr)
    assert "Traceback" not in ran.stderr
    return ran.stderr


def listed(directory: Path) -> list[tuple[str, int]]:
    """The tables of the snapshots in a capture, with their rows, in order."""
    return [(one["table"], one["rows"]) for one in _snapshots(directory)]


def _snapshots(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((directory / "capture.json").read_text()).get("snapshots", [])
    return found


def replayed(directory: Path) -> Replica:
    """The tables that the capture has."""
    found = here("decode", "-o", "json", directory)
    assert (found.status, found.stderr) == (0, "")
    snapshots = Snapshots(_snapshots(directory))
    replica = Replica(snapshots)
    replica.apply([parse(line) for line in found.lines])
    replica.reach(1 << 64)
    snapshots.check_all_rows_were_there()
    return replica


def rows(directory: Path, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a table in the capture, in order of their text."""
    found = replayed(directory).rows(f"public.{table}")
    return sorted([tuple([row[column] for column in columns or row]) for row in found])


def equal(database: Database, directory: Path, *tables: str) -> None:
    """Check that these tables (id, v) are as on the server."""
    for table in tables:
        assert rows(directory, table, "id", "v") == sorted(database.query(f"SELECT id::text, v FROM {table}")), table


def make(database: Database, *tables: str, count: int = 20) -> None:
    """Tables with rows, and a publication of all tables."""
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    for table in tables:
        add(database, table, count)


def add(database: Database, table: str, count: int = 20) -> None:
    database.execute(
        f"CREATE TABLE {table} (id int PRIMARY KEY, v text)",
        f"INSERT INTO {table} SELECT i, repeat(md5(i::text), 20) FROM generate_series(1, {count}) i",
    )


@contextlib.contextmanager
def at_first_part(action: Any) -> Iterator[None]:
    """Run `action` under the snapshot of the first copy, before a row of it is read."""
    target, done = SnapshotReport.begin, list[bool]()

    def begin(self: Any, tables: Any, lsn: int) -> None:
        target(self, tables, lsn)
        if not done:
            done.append(True)
            action()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SnapshotReport, "begin", begin)
        yield
    assert done


# -- which tables, and when ----------------------------------------------------------------------------------------


def test_a_new_slot_has_the_rows_and_then_the_stream(database: Database, tmp_path: Path) -> None:
    make(database, "t", "u")
    database.execute("CREATE TABLE none (id int PRIMARY KEY, v text)")
    with small_parts(1):
        said = recorded(database, tmp_path / "c")
    assert "copying 3 tables" in said
    assert "3 tables copied: 40 rows" in said
    database.execute("UPDATE t SET v = 'new' WHERE id = 3", "DELETE FROM u", "INSERT INTO none VALUES (1, 'x')")
    assert "the capture has a copy of every published table; none is copied" in recorded(database, tmp_path / "c")
    equal(database, tmp_path / "c", "t", "u", "none")
    assert listed(tmp_path / "c") == [("t", 20), ("u", 20), ("none", 0)]


def test_a_slot_and_capture_that_exist_get_the_rows_in_their_place(database: Database, tmp_path: Path) -> None:
    make(database, "t")
    assert here("record", database.conninfo(), "-S", "cap", "-D", tmp_path / "c", "--until", "now").status == 0
    database.execute("INSERT INTO t VALUES (100, 'before')")
    database.execute("UPDATE t SET id = 200 WHERE id = 2")
    recorded(database, tmp_path / "c")
    database.execute("INSERT INTO t VALUES (101, 'after')")
    recorded(database, tmp_path / "c")
    equal(database, tmp_path / "c", "t")
    ops = [one["op"] for one in here("decode", "-o", "json", tmp_path / "c").objects]
    assert ops == ["insert", "update", *["snapshot"] * 21, "insert"]
    assert database.query("SELECT slot_name FROM pg_replication_slots") == [("cap",)]


def test_a_table_added_later_is_copied_and_the_others_are_not(newest_database: Database, tmp_path: Path) -> None:
    make(newest_database, "t")
    recorded(newest_database, tmp_path / "c")
    add(newest_database, "u", 5)
    assert "1 table copied: 5 rows" in recorded(newest_database, tmp_path / "c")
    newest_database.execute("DROP TABLE t")
    add(newest_database, "t", 3)
    assert "1 table copied: 3 rows" in recorded(newest_database, tmp_path / "c")
    equal(newest_database, tmp_path / "c", "t", "u")
    assert listed(tmp_path / "c") == [("t", 20), ("u", 5), ("t", 3)]


def test_a_gap_after_copies_names_their_cure(newest_database: Database, tmp_path: Path) -> None:
    database = newest_database
    make(database, "t")
    recorded(database, tmp_path / "c")
    _lose(database)
    assert _CURE in recorded(database, tmp_path / "c", "--allow-gap")
    _lose(database)
    told = recorded(database, tmp_path / "c", "--allow-gap", "--snapshot-table", "*")
    assert "the capture has a gap" in told
    assert _CURE not in told
    found = here("decode", "-o", "json", tmp_path / "c")
    last = [parse(line)["new"]["id"] for line in found.lines if parse(line)["op"] == "snapshot"][-22:]
    assert sorted(map(int, last)) == [*range(1, 23)]


def _lose(database: Database) -> None:
    """Make the slot skip a change."""
    database.execute("INSERT INTO t SELECT max(id) + 1, 'lost' FROM t")
    database.value("SELECT end_lsn FROM pg_replication_slot_advance('cap', pg_current_wal_lsn())")


def test_a_gap_is_cured_also_where_a_copied_table_was_dropped(newest_database: Database, tmp_path: Path) -> None:
    make(newest_database, "t", "u")
    recorded(newest_database, tmp_path / "c")
    newest_database.execute("DROP TABLE u")
    _lose(newest_database)
    assert _CURE not in recorded(newest_database, tmp_path / "c", "--allow-gap", "--snapshot-table", "*")


def test_globs_choose_what_is_copied_again(newest_database: Database, tmp_path: Path) -> None:
    make(newest_database, "orders", "parts")
    said = refused(newest_database, tmp_path / "c", "--snapshot-table", "order", status=2)
    assert "--snapshot-table order matches no published table" in said
    assert "orders" in said
    assert not newest_database.query("SELECT 1 FROM pg_replication_slots")
    recorded(newest_database, tmp_path / "c", "--snapshot-table", "orders")
    assert listed(tmp_path / "c") == [("orders", 20)]
    newest_database.execute("ALTER TABLE orders ALTER v TYPE text USING 'rewritten'")
    recorded(newest_database, tmp_path / "c", "--snapshot-table", "public.o*", "--snapshot-table", "parts")
    assert listed(tmp_path / "c") == [("orders", 20), ("orders", 20), ("parts", 20)]
    equal(newest_database, tmp_path / "c", "orders", "parts")


# -- while others write ----------------------------------------------------------------------------------------------

CHANGES = {
    "truncate": (["TRUNCATE b"], "it was truncated or rewritten"),
    "type": (["ALTER TABLE b ALTER id TYPE bigint"], "changed since the snapshot"),
    "using": (["ALTER TABLE b ALTER v TYPE text USING v || 'x'"], "it was truncated or rewritten"),
    "unlogged": (["ALTER TABLE b SET UNLOGGED", "ALTER TABLE b SET LOGGED"], "it was truncated or rewritten"),
    "vacuum full": (["VACUUM FULL b"], "it was truncated or rewritten"),
    "column": (["ALTER TABLE b DROP v", "ALTER TABLE b ADD v text"], "changed since the snapshot"),
    "rename": (["ALTER TABLE b RENAME TO x", "ALTER TABLE x RENAME TO b"], None),
    "publication": (["DROP PUBLICATION p", "CREATE PUBLICATION p FOR ALL TABLES"], None),
}


@pytest.mark.parametrize(("name", "binary"), [*zip(CHANGES, itertools.cycle([False, True]), strict=False)])
def test_a_table_that_changes_meanwhile_is_copied_again(
    newest_database: Database, tmp_path: Path, name: str, binary: bool
) -> None:
    make(newest_database, "a", "b", "d", count=200)
    statements, why = CHANGES[name]
    with small_parts(2), at_first_part(lambda: newest_database.execute(*statements)):
        said = recorded(newest_database, tmp_path / "c", *["--binary"] * binary)
    assert (why or "3 tables copied: 600 rows") in said
    assert ("it is copied again" in said) == (why is not None)
    equal(newest_database, tmp_path / "c", "a", "b", "d")


def test_a_table_that_is_dropped_or_set_aside_meanwhile(newest_database: Database, tmp_path: Path) -> None:
    make(newest_database, "a", "b", "d")
    with at_first_part(lambda: newest_database.execute("DROP TABLE b", "ALTER TABLE d RENAME TO e")):
        said = recorded(newest_database, tmp_path / "c")
    assert "note: table public.b has changed since the snapshot (it was renamed, altered or dropped)" in said
    assert "note: table public.b is not published any more; it is not copied" in said
    assert listed(tmp_path / "c") == [("a", 20), ("d", 20)]


def test_writers_of_all_kinds_lose_nothing(database: Database, tmp_path: Path) -> None:
    make(database, "a", "b", count=500)

    def write(number: int, stop: threading.Event) -> None:
        with database.connect() as session:
            for step in range(10**6):
                if stop.is_set():
                    return
                base = 10_000 * (number + 1) + 3 * step
                for table in "ab":
                    session.execute(
                        f"INSERT INTO {table} SELECT i, 'new' FROM generate_series({base}, {base + 2}) i".encode()
                    )
                    session.execute(f"DELETE FROM {table} WHERE id = {base}".encode())
                    session.execute(f"UPDATE {table} SET id = -id, v = 'moved' WHERE id = {base + 1}".encode())
                    old = (step * 7 + number) % 500
                    session.execute(f"UPDATE {table} SET v = md5(v) WHERE id = {old}".encode())
                stop.wait(0.01)

    with meanwhile(*[partial(write, number) for number in range(3)]):
        for _ in range(2):
            with small_parts(1):
                recorded(database, tmp_path / "c", "--snapshot-jobs", "3", "--snapshot-table", "*")
    recorded(database, tmp_path / "c")
    equal(database, tmp_path / "c", "a", "b")
    assert len(listed(tmp_path / "c")) == 4


@pytest.mark.parametrize("lost", ["client backend", "walsender"])
def test_lost_sessions_are_replaced(newest_database: Database, tmp_path: Path, lost: str) -> None:
    make(newest_database, "a", "b", count=200)
    which = "" if lost == "walsender" else f" AND backend_type = '{lost}'"
    name = "application_name LIKE 'pgtail%' AND datname = current_database()"
    ours = f"SELECT pid FROM pg_stat_activity WHERE {name}{which}"

    def terminate() -> None:
        newest_database.query(f"SELECT pg_terminate_backend(pid) FROM ({ours}) one")
        wait_for("end of the sessions", lambda: not newest_database.query(ours))

    with small_parts(2), at_first_part(terminate):
        said = recorded(newest_database, tmp_path / "c")
    assert ("it is copied again" in said) == (lost == "walsender")
    equal(newest_database, tmp_path / "c", "a", "b")


def test_what_was_interrupted_is_copied_by_the_next_run(newest_database: Database, tmp_path: Path) -> None:
    make(newest_database, "a", "b", count=200)
    with small_parts(2), at_first_part(lambda: os.kill(os.getpid(), signal.SIGINT)):
        assert "Traceback" not in recorded(newest_database, tmp_path / "c")
    assert here("decode", "-o", "json", tmp_path / "c").stdout == b""
    assert not list((tmp_path / "c").glob("*.snapshot.*"))
    assert "2 tables copied: 400 rows" in recorded(newest_database, tmp_path / "c")
    equal(newest_database, tmp_path / "c", "a", "b")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread has no priority of its own")
def test_threads_that_compress_run_after_the_server(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(newest_database, "t")
    add_rows, found, before = SnapshotWriter.add_rows, set(), _niceness()

    def add_and_look(self: SnapshotWriter, messages: list[bytes], rows: int) -> None:
        found.add(_niceness())
        add_rows(self, messages, rows)

    monkeypatch.setattr(SnapshotWriter, "add_rows", add_and_look)
    recorded(newest_database, tmp_path / "c")
    assert found == {min(before + 10, 19)} != {before}
    assert _niceness() == before


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_another_table_that_has_the_name_for_a_moment(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schema is renamed without a lock on its tables: between the lock of a table and its COPY, too."""
    statement, done = table_copy.copy_statement, list[bool]()

    def renamed(*arguments: Any, **options: Any) -> str:
        if not done:
            done.append(True)
            database.execute("ALTER SCHEMA one RENAME TO three", "ALTER SCHEMA two RENAME TO one")
        return statement(*arguments, **options)

    for schema in ("one", "two"):
        database.execute(f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.t (id int PRIMARY KEY, v text)")
        database.execute(f"INSERT INTO {schema}.t SELECT i, repeat('{schema}', 1000) FROM generate_series(1, 9) i")
    database.execute("CREATE PUBLICATION p FOR TABLE one.t")
    monkeypatch.setattr(table_copy, "copy_statement", renamed)
    said = recorded(database, tmp_path / "c")
    assert "another table had its name for a moment, and was read" in said
    assert "1 table copied: 9 rows" in said
    found = here("decode", "-o", "json", tmp_path / "c").objects
    assert {(one["schema"], one["new"]["v"][:3]) for one in found} == {("three", "one")}


# -- what is published -----------------------------------------------------------------------------------------------


# -- what cannot be copied -------------------------------------------------------------------------------------------


def test_a_publication_without_tables(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute("CREATE PUBLICATION p")
    assert "there is no table to copy: none is published by p." in refused(newest_database, tmp_path / "c")
    _, said = streamed(newest_database, "-S", "new", "--create-slot", status=3)
    assert "there is no table to copy: none is published by p." in said
    assert not newest_database.query("SELECT 1 FROM pg_replication_slots")


def test_all_slots_in_use(start_server: StartServer, tmp_path: Path) -> None:
    database = Database(start_server(max_replication_slots=1), "postgres")
    make(database, "t")
    assert here("record", database.conninfo(), "-S", "cap", "-D", tmp_path / "c", "--until", "now").status == 0
    said = refused(database, tmp_path / "c")
    assert "cannot be created: all replication slots are in use" in said
    assert "max_replication_slots" in said


@since(15, 16)
def test_a_standby_that_has_no_logical_slots(server: EmbeddedServer, tmp_path: Path) -> None:
    make(Database(server, "postgres"), "standby_t")
    with standby_of(server) as standby:
        said = refused(Database(standby, "postgres"), tmp_path / "c")
    assert "the server is a standby, and PostgreSQL 15 decodes only on a primary (16 and later on both)" in said
    Database(server, "postgres").execute("DROP PUBLICATION p", "DROP TABLE standby_t")


# -- pgtail stream ---------------------------------------------------------------------------------------------------


def streamed(database: Database, *options: str, status: int = 0) -> tuple[list[dict[str, Any]], str]:
    ran = here("stream", database.conninfo(), "--snapshot", "-o", "json", *options)
    assert ran.status == status, (ran.status, ran.stderr)
    return [parse(line) for line in ran.lines], ran.stderr


def test_stream_until_now_is_a_dump_of_the_publication(database: Database) -> None:
    make(database, "t", "u")
    with small_parts(1):
        lines, said = streamed(database, "--until", "now")
    assert [one["op"] for one in lines] == ["snapshot"] * 40
    assert len({(one["commit_lsn"], one["seq"]) for one in lines}) == 40
    assert "2 tables copied: 40 rows" in said
    assert "0 transactions shown after the snapshot, up to " in said
    wait_for("end of the slot", lambda: not database.query("SELECT 1 FROM pg_replication_slots"))


def test_stream_reads_only_the_tables_that_are_chosen(newest_database: Database) -> None:
    make(newest_database, "t", "u", "w", count=3)
    lines, said = streamed(newest_database, "--until", "now", "-t", "?", "--exclude", "u")
    assert {one["table"] for one in lines} == {"t", "w"}
    assert "2 tables copied: 6 rows" in said


def test_limits_count_what_is_committed_afterwards(newest_database: Database) -> None:
    make(newest_database, "t")

    def write(_: threading.Event) -> None:
        streaming = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"
        wait_for("stream", lambda: newest_database.query(streaming))
        newest_database.execute("INSERT INTO t VALUES (100, 'x')", "INSERT INTO t VALUES (101, 'x')")

    with meanwhile(write):
        lines, _ = streamed(newest_database, "-n", "1")
    assert [one["op"] for one in lines] == [*["snapshot"] * 20, "insert"]


def test_stream_with_a_slot_that_exists(newest_database: Database) -> None:
    make(newest_database, "t")
    newest_database.query("SELECT pg_create_logical_replication_slot('old', 'pgoutput')")
    for options in (("-S", "old"), ("--fork", "old"), ("-S", "there_is_none")):
        _, said = streamed(newest_database, *options, status=2)
        assert "--snapshot copies the tables as they are where a new slot begins" in said
        assert "--create-slot" in said


def test_a_slot_that_was_created_is_dropped_if_the_copy_fails(newest_database: Database) -> None:
    make(newest_database, "t")
    name = f"reader_{newest_database.name}"
    with role(newest_database, name, "REPLICATION") as conninfo:
        ran = here("stream", conninfo, "--snapshot", "-o", "json", "-S", "new", "--create-slot")
    assert (ran.status, ran.stdout) == (3, b"")
    assert "permission denied for table t" in ran.stderr
    assert "slot new was dropped again: the copy of the tables is not complete" in ran.stderr
    assert not newest_database.query("SELECT 1 FROM pg_replication_slots")


def test_a_slot_that_was_created_stays_after_the_copy(newest_database: Database) -> None:
    make(newest_database, "t")
    lines, _ = streamed(newest_database, "-S", "new", "--create-slot", "--until", "now")
    assert len(lines) == 20
    newest_database.execute("INSERT INTO t VALUES (100, 'x')")
    ran = here("stream", newest_database.conninfo(), "-S", "new", "-o", "json", "--until", "now")
    assert [one["op"] for one in ran.objects] == ["insert"]


@since(14)
def test_a_random_history(server: EmbeddedServer, tmp_path: Path, seed: random.Random) -> None:
    with fresh_database(server) as database:
        assert try_history(database, tmp_path / "capture", seed.randrange(1 << 30), steps=8) > 0
