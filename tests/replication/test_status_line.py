"""The status line of `pgtail stream` while a large transaction arrives."""

from __future__ import annotations

import re
import sys

import psycopg

from tests.support.servers import Database
from tests.support.tail import COMMAND
from tests.support.terminals import on_terminal


def test_a_large_transaction_is_counted_as_it_arrives(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY, note text)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    newest_database.execute("INSERT INTO t VALUES (1, 'one')")
    rows, so_far = 60_000, " changes so far"
    with psycopg.connect(newest_database.conninfo()) as connection:
        connection.execute(f"INSERT INTO t SELECT g, repeat('x', 50) FROM generate_series(1000, {999 + rows}) g")
        status, shown = on_terminal(
            [*COMMAND, newest_database.conninfo(), "-S", "s"],
            until=so_far,
            answer="\x03",
            env={"PGOPTIONS": "-c logical_decoding_work_mem=64kB"},
        )
        connection.rollback()
    assert status == 0, shown
    for line in re.findall(f"[^\r\n\x1b]*{so_far}[^\r\n\x1b^]*", shown):
        assert line.endswith((so_far, " · 1 transaction, 1 row")), "parts without room are left out, not cut"
    count = int(shown.partition(so_far)[0].rpartition(": ")[2].replace(" ", ""))
    assert 0 < count <= rows


def test_rows_selected_and_rows_read_are_named_apart(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    newest_database.execute(
        "INSERT INTO t SELECT generate_series(1, 340)", *[f"INSERT INTO t VALUES ({g})" for g in range(341, 345)]
    )
    command = [*COMMAND, newest_database.conninfo(), "-S", "s", "--where", "id <= 5 or id > 342"]
    status, shown = on_terminal(command, until=" rows read", answer="\x03")
    assert status == 0, shown
    assert " · 3 transactions, 7 rows selected · 344 rows read" in shown
    assert "pgtail: 3 transactions shown, 7 rows selected of 344 read; resume at " in shown.splitlines()[-1]


def test_a_pipe_that_ends_on_the_terminal_gets_a_line_of_its_own(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    command = [*COMMAND, newest_database.conninfo(), "-S", "s"]
    _, shown = on_terminal(
        ["/bin/sh", "-c", '"$@" | cat', "sh", *command],
        before=[(" lag ", lambda: newest_database.execute("INSERT INTO t VALUES (1)"))],
        until='"new":{"id":1}}',
        answer="\x03",
    )
    assert '"op":"insert"' in shown
    assert re.search(r'[^\r\n\x1bK]{"op"', shown) is None


def test_the_report_in_a_pipe_is_the_status(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    command = [*COMMAND[:-1], "stats", "--watch", newest_database.conninfo()]
    _, shown = on_terminal(["/bin/sh", "-c", '"$@" | cat', "sh", *command], until="no changes yet", answer="\x03")
    assert "no changes yet" in shown
    assert " · lag" not in shown


def test_what_follows_ctrl_c_begins_a_line(newest_database: Database) -> None:
    """A message, or the shell's prompt; the terminal shows ^C after the status line, which is erased."""
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    newest_database.execute("INSERT INTO t VALUES (1)")
    row = '"new":{"id":1}}'
    for options, until, follows in (
        (["-q", "-o", "json", "--color", "never"], row, rf"{row}\r\n\^C\r\n\Z"),
        (["--log-format", "json", "-o", "json", "--color", "never"], row, rf'{row}\r\n\^C\r\n{{"time"'),
        ([], " lag ", r"\^C\r\x1b\[Kpgtail: 1 transaction shown"),
    ):
        command = [sys.executable, "-m", "pgtail", "stream", newest_database.conninfo(), "-S", "s", *options]
        status, shown = on_terminal(command, until=until, answer="\x03")
        assert status == 0
        assert re.search(follows, shown), shown
