"""Statuses and acknowledgements: no slot is consumed unasked, no shutdown is blocked, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import closing
from itertools import cycle
from pathlib import Path

import pytest

from pgtail.pgoutput.scalars import parse_lsn
from tests.conftest import StartServer
from tests.support.faulty_proxy import FaultyProxy
from tests.support.run_process import started
from tests.support.servers import Database, fresh_database, installations, some_versions
from tests.support.tail import ids, stream, tailing, wait_for, wait_for_reader, wait_until_received


def make_table(database: Database, *slots: str) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, note text)", "CREATE PUBLICATION p FOR TABLE t")
    for slot in slots:
        database.query(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")


def insert(database: Database, first: int, last: int, note: str = "") -> None:
    database.execute(f"INSERT INTO t SELECT i, '{note}' FROM generate_series({first}, {last}) i")


def slot(database: Database, name: str, column: str) -> object:
    text = "" if column.endswith("_lsn") else "::text"
    return database.value(f"SELECT {column}{text} FROM pg_replication_slots WHERE slot_name = '{name}'")


def flushed(database: Database) -> str:
    return str(database.value("SELECT pg_current_wal_flush_lsn()"))


def wait_for_ack(database: Database, name: str, lsn: str) -> None:
    query = f"SELECT 1 FROM pg_replication_slots WHERE slot_name LIKE '{name}' AND confirmed_flush_lsn >= '{lsn}'"
    wait_for(f"acknowledgement of {lsn}", lambda: database.query(query))


def test_an_existing_slot_is_not_consumed(database: Database) -> None:
    make_table(database, "s")
    before = slot(database, "s", "confirmed_flush_lsn")
    two_phase = database.version >= 14
    insert(database, 1, 3)
    for _ in range(2):
        lines, words = stream(database, "-S", "s", "--until", "now", "-v")
        assert ids(lines) == [1, 2, 3]
        assert "acknowledging: none" in words
        assert "no other client can read the slot" in words
    with tailing(database, "-S", "s") as running:
        running.wait_for_lines(3)
        insert(database, 4, 4)
        running.wait_for_lines(4)
        assert slot(database, "s", "active") == "true"
        time.sleep(1.5)  # time for one or two statuses
        running.stop()
    assert slot(database, "s", "confirmed_flush_lsn") == before
    assert not two_phase or slot(database, "s", "two_phase") == "false"


def test_ack_commit_continues_where_it_ended(database: Database) -> None:
    make_table(database, "s")
    seen: list[int] = []
    for round_ in range(4):
        insert(database, 10 * round_, 10 * round_ + 2)
        with tailing(database, "-S", "s", "--ack", "commit") as running:
            running.wait_for_lines(3)
            insert(database, 10 * round_ + 3, 10 * round_ + 4)
            running.wait_for_lines(5)
            words = running.stop([signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT][round_])
            seen += ids(running.changes)
        resume = words.rpartition("resume at ")[2].strip()
        assert slot(database, "s", "confirmed_flush_lsn") == resume
    assert seen == [10 * round_ + i for round_ in range(4) for i in range(5)]


def test_ack_commit_follows_while_idle(database: Database) -> None:
    make_table(database, "s")
    database.execute("CREATE TABLE unpublished (id int)")
    with tailing(database, "-S", "s", "--ack", "commit") as running:
        running.wait_for_slot(database, "s")
        database.execute("INSERT INTO unpublished SELECT generate_series(1, 1000)")
        wait_for_ack(database, "s", flushed(database))
        running.stop()


def test_ack_exit_acknowledges_only_at_the_end(database: Database) -> None:
    make_table(database, "s")
    before = slot(database, "s", "confirmed_flush_lsn")
    insert(database, 1, 2)
    with tailing(database, "-S", "s", "--ack", "exit") as running:
        running.wait_for_lines(2)
        insert(database, 3, 3)
        running.wait_for_lines(3)
        time.sleep(1.2)
        assert slot(database, "s", "confirmed_flush_lsn") == before
        words = running.stop()
    assert slot(database, "s", "confirmed_flush_lsn") == words.rpartition("resume at ")[2].strip()


def test_a_temporary_slot_leaves_nothing(database: Database) -> None:
    make_table(database)
    with tailing(database, "-v") as running:
        running.wait_for_words("temporary slot")
        wait_for_reader(database, temporary=True)
        insert(database, 1, 1)
        running.wait_for_lines(1)
        wait_for_ack(database, "%", flushed(database))
        running.stop()
    wait_for("end of the slot", lambda: not database.query("SELECT 1 FROM pg_replication_slots"))


@pytest.mark.parametrize("version", some_versions())
def test_fast_shutdown_is_not_blocked(version: str, start_server: StartServer) -> None:
    server = start_server(installations()[version], wal_sender_timeout="1h")
    with fresh_database(server) as database:
        make_table(database, "s")
        insert(database, 1, 20_000, "x" * 50)
        for ack, blocked in (("none", False), ("commit", False), ("none", True), ("commit", True)):
            stop_while_tailed(database, ack=ack, blocked=blocked)
            server.start()
            insert(database, 1 + int(database.value("SELECT max(id) FROM t")), 60_000 if blocked else 40_000, "x" * 50)


def stop_while_tailed(database: Database, *, ack: str, blocked: bool) -> None:
    """If `blocked`, nothing reads pgtail's output; the server still stops at once."""
    with started(["sleep", "300"], stdin=subprocess.PIPE) as reader:
        output = reader.stdin if blocked and reader.stdin else subprocess.DEVNULL
        with tailing(database, "-S", "s", "--ack", ack, stdout=output) as running:
            wait_until_received(database)
            if ack == "commit" and not blocked:
                wait_for_ack(database, "s", flushed(database))
            database.server.stop("fast")
            if not blocked:
                running.wait_for_words("connecting again")
            running.stop()


def test_unacknowledged_changes_are_sent_again(database: Database) -> None:
    """After kill -9 nothing is missing, and only what was not acknowledged is repeated."""
    make_table(database, "s")
    seen: list[int] = []
    acknowledged = 0
    for round_ in range(4):
        insert(database, 10 * round_, 10 * round_ + 4)
        with tailing(database, "-S", "s", "--ack", "commit") as running:
            running.wait_for_output(f'"id":{10 * round_ + 4},')
            assert all(parse_lsn(line["commit_lsn"]) >= acknowledged for line in running.changes)
            running.process.send_signal(signal.SIGKILL)
            running.process.wait()
            seen += ids(running.changes)
        wait_for("end of the session", lambda: slot(database, "s", "active") == "false")
        acknowledged = parse_lsn(str(slot(database, "s", "confirmed_flush_lsn")))
    assert set(seen) == {10 * round_ + i for round_ in range(4) for i in range(5)}


def test_a_restart_after_ack_repeats_nothing(database: Database, tmp_path: Path) -> None:
    """-f appends: several runs make one file without gaps or duplicates."""
    make_table(database, "s")
    file = tmp_path / "out.json"
    for round_ in range(3):
        insert(database, 100 * round_, 100 * round_ + 99)
        start = slot(database, "s", "confirmed_flush_lsn")
        with tailing(database, "-S", "s", "--ack", "commit", "-f", str(file)) as running:
            wait_for_ack(database, "s", flushed(database))
            words = running.stop()
        repeated = f"{file} may have changes of transactions that commit at or after {start} already"
        assert (repeated in words) == (round_ > 0)
    assert [json.loads(line)["new"]["id"] for line in file.read_text().splitlines()] == list(range(300))


def test_a_kill_within_a_transaction_writes_its_beginning_twice(database: Database, tmp_path: Path) -> None:
    """The next run says from which position on: what is before that is there once."""
    make_table(database, "s")
    file = tmp_path / "out.json"
    output = ["-S", "s", "--ack", "commit", "-f", str(file)]
    insert(database, 0, 9)
    with (
        closing(FaultyProxy(database.server.port)) as proxy,
        tailing(database.conninfo(tcp=True, port=proxy.port), *output) as running,
    ):
        wait_for_ack(database, "s", flushed(database))
        proxy.rate = 2_000_000  # the whole transaction takes 15 s
        insert(database, 1_000_000, 1_200_000, "x" * 100)
        wait_for("a part of the transaction", lambda: file.stat().st_size > 100_000)
        running.process.send_signal(signal.SIGKILL)
        running.process.wait()
    wait_for("end of the session", lambda: slot(database, "s", "active") == "false")
    start = slot(database, "s", "confirmed_flush_lsn")
    before = file.read_bytes().count(b"\n")
    assert 10 < before < 200_000
    with tailing(database, *output, "--until", "now") as running:
        words = running.end()
    assert f"may have changes of transactions that commit at or after {start} already" in words
    assert file.read_bytes().count(b"\n") > 200_011
    first = [line for line in file.read_text().splitlines() if "1000000" in line]
    assert len(first) == 2


@pytest.mark.parametrize(("version", "streaming"), list(zip(some_versions(), cycle(["off", "on"]), strict=False)))
def test_a_crash_of_the_server_loses_nothing(version: str, streaming: str, start_server: StartServer) -> None:
    """kill -9 of the postmaster during the stream, twice."""
    server = start_server(installations()[version])
    with fresh_database(server) as database:
        make_table(database, "s")
        if database.version >= 13:
            database.execute(f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'")
        arguments = ["-S", "s", "--ack", "commit", "--transactions"]
        arguments += ["--streaming", streaming] if database.version >= 14 else []
        with tailing(database, *arguments) as running:
            running.wait_for_slot(database, "s")
            for first in (1, 20_001):
                insert(database, first, first + 19_999, "y" * 30)
                running.wait_for_lines(first + 100)
                server.kill()
                server.start()
                running.wait_for_words("connected again")
                running.err.clear()
                insert(database, first + 1_000_000, first + 1_000_002)
            running.wait_for_lines(40_006 + 8)
            running.stop()
        lines = running.changes
        wanted = [*range(1, 20_001), 1_000_001, 1_000_002, 1_000_003, *range(20_001, 40_001)]
        wanted += [1_020_001, 1_020_002, 1_020_003]
        assert ids([line for line in lines if line["op"] == "insert"]) == wanted
        # 13 has the setting first, 15 leaves out transactions without changes first, such as that of ALTER DATABASE.
        transactions = 5 if database.version in (13, 14) else 4
        assert [line["op"] for line in lines if line["op"] != "insert"] == ["begin", "commit"] * transactions


BACKLOG = 40_000
"""Rows; several times as many as are read before Ctrl-C."""


def test_ctrl_c_during_a_backlog(database: Database) -> None:
    """It ends soon, although the backlog is long, and the next run continues from there."""
    make_table(database, "s")
    for first in range(0, BACKLOG, 2_000):
        insert(database, first, first + 1_999, "z" * 100)
    with tailing(database, "-S", "s", "--ack", "commit", pace=0.01) as running:
        running.wait_for_lines(5_000)
        words = running.stop()
        first_part = running.changes
    assert len(first_part) < BACKLOG
    resume = words.rpartition("resume at ")[2].strip().splitlines()[0]
    assert slot(database, "s", "confirmed_flush_lsn") == resume or "will be sent again" in words
    whole = [line for line in first_part if parse_lsn(line["commit_lsn"]) < parse_lsn(resume)]
    rest, _ = stream(database, "-S", "s", "--until", "now", "--from", resume)
    assert ids(whole) + ids(rest) == list(range(BACKLOG))


@pytest.mark.parametrize("rows", [5_000, 100_000], ids=["many transactions", "one half written"])
def test_a_full_queue_disconnects_and_reconnects(newest_database: Database, rows: int) -> None:
    """The queue in memory and 1 MB on disk is written first; no row of a half-received transaction comes twice."""
    database = newest_database
    make_table(database, "s")
    for first in range(0, 100_000, rows):
        insert(database, first, first + rows - 1, "z" * 220)
    read, write = os.pipe()
    arguments = ["-S", "s", "--spill-limit", "1MB", "--until", "now", "--streaming", "off", "--transactions"]
    with (
        os.fdopen(read, "rb") as reader,
        os.fdopen(write, "wb") as writer,
        tailing(database, *arguments, stdout=writer) as running,
    ):
        writer.close()
        running.wait_for_words("the output does not keep up")
        wait_for("end of the session", lambda: slot(database, "s", "active") == "false")
        lines = [json.loads(line) for line in reader]
        words = running.end()
    assert ids([line for line in lines if line["op"] == "insert"]) == list(range(100_000))
    assert [line["op"] for line in lines].count("begin") == 100_000 // rows
    assert [line["seq"] for line in lines if line["op"] == "insert"] == list(range(1, rows + 1)) * (100_000 // rows)
    assert "connected again" in words


def test_a_closed_pipe_ends_quietly(database: Database) -> None:
    make_table(database, "s")
    insert(database, 1, 3)
    read, write = os.pipe()
    with os.fdopen(write, "wb") as writer, tailing(database, "-S", "s", stdout=writer) as running:
        writer.close()
        assert b'"id":1' in os.read(read, 10_000)
        os.close(read)
        assert running.end() == ""
