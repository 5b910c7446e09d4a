"""`pgtail stream --snapshot` as people use it: events for a topic, SQL into psql, and a dump in one command."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.support.limits import within
from tests.support.run import Result, here
from tests.support.run_process import PROGRAM, started
from tests.support.servers import Database, client_program, fresh_database
from tests.support.tail import PATIENCE, wait_for
from tests.support.threads import meanwhile

TABLES = (
    "CREATE TABLE a (id int PRIMARY KEY, v text, n numeric)",
    "CREATE TABLE b (id int PRIMARY KEY, at timestamptz, data bytea)",
    "CREATE TABLE empty (id int PRIMARY KEY)",
    "CREATE TABLE one (id int PRIMARY KEY)",
)
ROWS = (
    "INSERT INTO a SELECT i, NULLIF('it''s ' || i, 'it''s 3'), i / 7.0 FROM generate_series(1, 300) i",
    "INSERT INTO b SELECT i, 'epoch', decode(md5(i::text), 'hex') FROM generate_series(1, 200) i",
    "INSERT INTO one VALUES (1)",
    "CREATE PUBLICATION p FOR ALL TABLES",
)
NAMES = ("a", "b", "empty", "one")


@pytest.fixture
def source(newest_database: Database) -> Database:
    newest_database.execute(*TABLES, *ROWS)
    return newest_database


@pytest.fixture
def target(source: Database) -> Iterator[Database]:
    """A database with the same tables, without rows."""
    with fresh_database(source.server) as found:
        found.execute(*TABLES)
        yield found


def contents(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    return {name: database.query(f"SELECT * FROM {name} ORDER BY id") for name in NAMES}


def write(database: Database, stop: threading.Event) -> None:
    """Changes, one after another; none that ends the copy, as TRUNCATE does."""
    choose = Random(1)
    with database.connect() as session:
        while not stop.wait(0.005):
            one, other = choose.randrange(1, 400), choose.randrange(1, 400)
            statement = choose.choice(
                (
                    f"UPDATE a SET v = v || '{other}' WHERE id = {one}",
                    f"UPDATE a SET id = -id WHERE id = {one}",
                    f"DELETE FROM b WHERE id = {one}",
                    f"INSERT INTO b VALUES ({one}, now(), '\\x00') ON CONFLICT DO NOTHING",
                    f"INSERT INTO empty VALUES ({one}) ON CONFLICT DO NOTHING",
                )
            )
            session.execute(statement.encode())


def test_sql_into_psql_fills_empty_tables_and_follows(source: Database, target: Database) -> None:
    psql = [str(client_program(target.server.installation, "psql")), "-qX", "-v", "ON_ERROR_STOP=1", target.conninfo()]
    command = [*PROGRAM, "stream", source.conninfo(), "--snapshot", "-o", "sql"]
    with (
        started(command, stdout=subprocess.PIPE) as stream,
        started(psql, stdin=stream.stdout, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as applied,
    ):
        with meanwhile(partial(write, source)):
            wait_for("rows in the target", lambda: target.query("SELECT 1 FROM one"))
            source.execute("TRUNCATE empty")
            wait_for("changes in the target", lambda: target.query("SELECT 1 FROM a WHERE id < 0"))
        assert applied.poll() is None
        wait_for("the same rows", lambda: contents(target) == contents(source))
        stream.terminate()
        assert stream.wait(within(PATIENCE)) == 0
        assert applied.stderr is not None
        assert applied.stderr.read() == ""
        assert applied.wait(within(PATIENCE)) == 0
    assert contents(source)["a"]


def dump(source: Database, *options: str) -> Result:
    """A dump, made beside a writer."""
    with meanwhile(partial(write, source)):
        ran = here("stream", source.conninfo(), "--snapshot", "--until", "now", *options)
    assert ran.status == 0, ran.stderr
    return ran


def test_a_dump_as_sql_is_consistent(source: Database, target: Database) -> None:
    """Two tables that change in one transaction are as at one moment."""
    source.execute("CREATE TABLE x (id int PRIMARY KEY, v int)", "CREATE TABLE y (id int PRIMARY KEY, v int)")
    target.execute("CREATE TABLE x (id int PRIMARY KEY, v int)", "CREATE TABLE y (id int PRIMARY KEY, v int)")
    source.execute("INSERT INTO x VALUES (1, 0)", "INSERT INTO y VALUES (1, 0)")

    def write_both(stop: threading.Event) -> None:
        with source.connect() as session:
            while not stop.is_set():
                session.execute("UPDATE x SET v = v + 1; UPDATE y SET v = v - 1")

    with meanwhile(write_both):
        ran = dump(source, "-o", "sql")
    psql = str(client_program(target.server.installation, "psql"))
    command = [psql, "-qX", "-v", "ON_ERROR_STOP=1", target.conninfo()]
    subprocess.run(command, input=ran.stdout, check=True, stdout=subprocess.DEVNULL)
    assert target.value("SELECT x.v + y.v FROM x, y") == 0
    assert target.value("SELECT v FROM x") > 0
    assert target.value("SELECT count(*) FROM one") == 1
