"""`pgtail stream --fork`: reads a copy of a slot in use without affecting the slot or its consumer."""

from __future__ import annotations

import itertools
import signal
import subprocess
from typing import Any

import pytest

from tests.support.refused import create_slot, fails, physical_slot, publish
from tests.support.run_process import pgtail, started
from tests.support.servers import Database, client_program, since
from tests.support.tail import ids, stream, tailing, wait_for


def slot(database: Database, name: str) -> tuple[Any, ...]:
    """All properties of a slot that reading could change."""
    columns = "plugin, temporary, active_pid, xmin, catalog_xmin, restart_lsn, confirmed_flush_lsn"
    [row] = database.query(f"SELECT {columns} FROM pg_replication_slots WHERE slot_name = '{name}'")
    return row


def names(database: Database) -> set[str]:
    query = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    return {name for (name,) in database.query(query)}


@since(12)
def test_a_consumer_misses_and_repeats_nothing(database: Database) -> None:
    publish(database)
    create_slot(database, "s")
    database.execute("INSERT INTO t VALUES (0)")
    with tailing(database, "-S", "s", "--ack", "commit") as consumer:
        consumer.wait_for_lines(1)
        with tailing(database, "--fork", "s", "-v") as fork:
            fork.wait_for_words("which itself is untouched")
            pid = slot(database, "s")[2]
            assert pid == database.value("SELECT active_pid FROM pg_replication_slots WHERE slot_name = 's'")
            assert f"a copy of slot s (pgoutput, in use by pid {pid})" in fork.stderr
            for number in range(1, 200):
                database.execute(f"INSERT INTO t VALUES ({number})")
            wait_for("both", lambda: ids(fork.changes)[-1:] == [199] and len(consumer.out) >= 200)
            fork.process.kill()
            wait_for("end of the copy", lambda: names(database) == {"s"})
        for number in range(200, 250):
            database.execute(f"INSERT INTO t VALUES ({number})")
        consumer.wait_for_lines(250)
        consumer.stop()
    assert ids(consumer.changes) == list(range(250))
    seen = ids(fork.changes)
    assert seen == list(range(seen[0], 200))
    assert seen[0] <= 1
    rest, _ = stream(database, "-S", "s", "--until", "now")
    assert rest == []


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_slot_is_unchanged_and_the_copy_is_dropped(newest_database: Database, ending: signal.Signals) -> None:
    database = newest_database
    publish(database)
    create_slot(database, "s")
    database.execute(*[f"INSERT INTO t VALUES ({number})" for number in range(20)])
    before = slot(database, "s")
    with tailing(database, "--fork", "s") as fork:
        assert ids(fork.changes_of(20)) == list(range(20))
        [(copy,)] = [(name,) for name in names(database) - {"s"}]
        assert slot(database, copy)[:2] == ("pgoutput", True)
        fork.process.send_signal(ending)
        fork.process.wait()
        wait_for("end of the copy", lambda: names(database) == {"s"})
    assert slot(database, "s") == before
    lines, _ = stream(database, "-S", "s", "--until", "now")
    assert ids(lines) == list(range(20))


@since(12)
def test_a_slot_of_any_plugin(database: Database) -> None:
    publish(database)
    create_slot(database, "td", "test_decoding")
    database.execute("INSERT INTO t VALUES (1), (2)")
    before = slot(database, "td")
    lines, words = stream(database, "--fork", "td", "--until", "now")
    assert "; resume at " in words, "from another copy"
    assert ids(lines) == [1, 2]
    assert slot(database, "td") == before
    program = str(client_program(database.server.installation, "pg_recvlogical"))
    options = ["-S", "td", "--start", "-f", "-", "-s", "0", "-o", "include-xids=0"]
    command = [program, f"--dbname={database.conninfo()}", *options]
    with started(command, stdout=subprocess.PIPE) as consumer:
        assert consumer.stdout is not None
        wait_for("consumer", lambda: slot(database, "td")[2])
        with tailing(database, "--fork", "td") as fork:
            fork.wait_for_lines(2)
            database.execute("INSERT INTO t VALUES (3), (4)")
            fork.wait_for_lines(4)
            fork.stop()
        database.execute("INSERT INTO t VALUES (5)")
        got = list(itertools.islice((line for line in consumer.stdout if line.startswith(b"table")), 5))
        consumer.terminate()
    assert got == [f"table public.t: INSERT: id[integer]:{number}\n".encode() for number in range(1, 6)]
    assert ids(fork.changes) == [1, 2, 3, 4]
    assert names(database) == {"td"}


@since(12)
def test_a_publication_must_be_as_old_as_the_changes_of_the_slot(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    create_slot(database, "s")
    database.execute("INSERT INTO t VALUES (1)", "CREATE PUBLICATION young FOR TABLE t")
    _, words = stream(database, "--fork", "s", "-v", status=3)
    assert 'publication "young" is newer than the changes of slot s' in words
    assert "pgtail stream --fork s --startpos now" in words
    assert "starting at" not in words, "it ends before it starts"
    assert names(database) == {"s"}
    create_slot(database, "later")
    database.execute("CREATE PUBLICATION younger FOR TABLE t", "INSERT INTO t VALUES (2)")
    lines, _ = stream(database, "--fork", "later", "-P", "younger", "-P", "young", "--until", "now")
    assert ids(lines) == [2], "newer than the slot, but as old as the first change"
    assert names(database) == {"s", "later"}


def test_advice_without_an_old_publication(newest_database: Database) -> None:
    database = newest_database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    create_slot(database, "s")
    _, words = stream(database, "--fork", "s", status=3)
    assert f"database {database.name} has no publication" in words
    database.execute("INSERT INTO t VALUES (1)", "CREATE PUBLICATION young FOR TABLE t")
    with tailing(database, "--fork", "s", "--from", "now", "-v") as fork:
        fork.wait_for_words("starting at")
        wait_for("copy", lambda: len(names(database)) == 2)
        database.execute("INSERT INTO t VALUES (2)")
        assert ids(fork.changes_of(1)) == [2]
        fork.stop()
    database.query("SELECT pg_drop_replication_slot('s')")
    create_slot(database, "later")
    database.execute("INSERT INTO t VALUES (3)", "CREATE PUBLICATION younger FOR TABLE t")
    _, words = stream(database, "--fork", "later", "-P", "young", "-P", "younger", status=3)
    assert 'publication "younger" is newer than the changes of slot later' in words
    assert "Publications as old as the slot: -P young\n" in words


@since(12)
def test_without_p_it_reads_the_publications_as_old_as_the_slot(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    database.execute('CREATE PUBLICATION "o ld" FOR TABLE t')
    create_slot(database, "s")
    database.execute("INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (1)", "CREATE PUBLICATION young FOR TABLE t, u")
    lines, words = stream(database, "--fork", "s", "--until", "now")
    assert [(line["table"], line["new"]) for line in lines] == [("t", {"id": "1"})]
    assert "note: not reading young (2 tables): newer than the changes of slot s, or not certainly older\n" in words
    assert "reading all" not in words
    stream(database, "--fork", "s", "--until", "now", "-o", "json", command="stats")
    words = fails(database, "--fork", "s", "-P", "young", "--until", "now")
    assert "Publications as old as the slot: -P 'o ld'\n" in words
    create_slot(database, "later")
    database.execute("INSERT INTO u VALUES (2)")
    lines, words = stream(database, "--fork", "later", "--until", "now")
    assert ids(lines) == [2]
    assert 'note: reading all publications: "o ld" (1 table), young (2 tables); -P selects\n' in words
    database.execute("CREATE PUBLICATION younger FOR TABLE u")
    lines, words = stream(database, "--fork", "later", "--until", "now")
    assert ids(lines) == [2]
    assert 'note: reading publications: "o ld" (1 table), young (2 tables); -P selects\n' in words
    assert "note: not reading younger (1 table)" in words


def test_slots_that_cannot_be_forked(newest_database: Database) -> None:
    database = newest_database
    publish(database)
    create_slot(database, "s")
    with physical_slot(database):
        assert "slot phys is a physical slot" in fails(database, "--fork", "phys")
    assert "there is no slot nosuch" in fails(database, "--fork", "nosuch")
    for more in (["-S", "s"], ["--two-phase"], ["-S", "s", "--create-slot"]):
        stream(database, "--fork", "s", *more, status=2)
    assert f"slot s belongs to database {database.name}" in fails(database.server.conninfo(), "--fork", "s")


@since(18)
def test_a_new_connection_makes_a_new_copy_and_repeats_nothing(database: Database) -> None:
    publish(database)
    create_slot(database, "s")
    database.execute("INSERT INTO t VALUES (1)")
    with tailing(database, "--fork", "s", "--reconnect") as fork:
        fork.wait_for_lines(1)
        terminate = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE temporary"
        wait_for("acknowledgement", lambda: database.value(
            "SELECT confirmed_flush_lsn > (SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 's')"
            " FROM pg_replication_slots WHERE temporary"
        ))  # fmt: skip
        database.query(terminate)
        fork.wait_for_words("connected again")
        database.execute("INSERT INTO t VALUES (2)")
        assert ids(fork.changes_of(2)) == [1, 2]
        assert "GAP" not in fork.stderr
        database.query(terminate)
        pgtail("slot", "advance", "s", "now", database.conninfo(), "--yes")
        fork.stop()
