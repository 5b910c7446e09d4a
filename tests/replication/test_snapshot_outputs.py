"""`pgtail stream --snapshot` as people use it: events for a topic, SQL into psql, and a dump in one command."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.support.run import Result, here
from tests.support.run_process import PROGRAM, started
from tests.support.servers import Database, client_program, fresh_database
from tests.support.tail import PATIENCE, tailing, wait_for
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
        assert stream.wait(PATIENCE) == 0
        assert applied.stderr is not None
        assert applied.stderr.read() == ""
        assert applied.wait(PATIENCE) == 0
    assert contents(source)["a"]


def dump(source: Database, *options: str) -> Result:
    """A dump, made beside a writer."""
    with meanwhile(partial(write, source)):
        ran = here("stream", source.conninfo(), "--snapshot", "--until", "now", *options)
    assert ran.status == 0, ran.stderr
    return ran


def test_dumps_in_all_formats(source: Database) -> None:
    ran = here("stream", source.conninfo(), "--snapshot", "--until", "now", "-o", "csv", "-t", "a")
    assert ran.status == 0, ran.stderr
    rows = list(csv.DictReader(io.StringIO(ran.stdout.decode())))
    assert [(row["_op"], row["id"], row["v"]) for row in rows] == [
        ("snapshot", number, text or "") for number, text in source.query("SELECT id::text, v FROM a ORDER BY a.id")
    ]
    events = dump(source, "-o", "debezium", "-t", "a").objects
    assert {event["op"] for event in events} == {"r"}
    assert len(events) == 300
    lines = dump(source, "-o", "json", "-t", "one").objects
    assert [line["new"] for line in lines] == [{"id": 1}]


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


def test_debezium_marks_the_snapshot_from_its_first_row_to_its_last(newest_database: Database) -> None:
    newest_database.execute(*TABLES, "INSERT INTO a VALUES (1), (2), (3)", "INSERT INTO b VALUES (1), (2)")
    newest_database.execute("INSERT INTO one VALUES (1)", "CREATE PUBLICATION p FOR ALL TABLES")
    with tailing(newest_database, "--snapshot", "-o", "debezium", "--keys") as run:
        run.wait_for_lines(6)
        newest_database.execute("UPDATE a SET v = 'x' WHERE id = 2")
        run.wait_for_lines(7)
        run.stop()
    rows = [line.partition(b"\t") for line in run.out]
    found = [(key.decode(), json.loads(value)) for key, _, value in rows]
    assert [(key, value["source"]["table"], value["op"], value["source"]["snapshot"]) for key, value in found] == [
        ('{"id":1}', "a", "r", "first"),
        ('{"id":2}', "a", "r", "true"),
        ('{"id":3}', "a", "r", "last_in_data_collection"),
        ('{"id":1}', "b", "r", "first_in_data_collection"),
        ('{"id":2}', "b", "r", "last_in_data_collection"),
        ('{"id":1}', "one", "r", "last"),
        ('{"id":2}', "a", "u", "false"),
    ]
