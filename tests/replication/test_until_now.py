"""`--until now` while only open transactions write: the server's position is then in the middle of a record."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtail.pgoutput.scalars import parse_lsn
from pgtail.replication import plan
from tests.support.run import decode, here
from tests.support.servers import Database
from tests.support.tail import ids, stream, wait_for

_PAGE = 8192
_FLUSHERS = "FROM pg_stat_activity WHERE backend_type IN ('background writer', 'walwriter')"


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    name = f"{database.name}_reader"
    database.execute(f"CREATE ROLE {name} LOGIN REPLICATION")
    yield name
    database.execute(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


@contextmanager
def half_a_record(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """Two committed rows, and an open transaction that has written; flushed up to the middle of one of its records.

    Nothing flushes the rest: the processes that would are stopped.
    """
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, note text)",
        "ALTER TABLE t ALTER note SET STORAGE PLAIN",
        "GRANT SELECT ON t TO public",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    database.execute("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
    flushers = [pid for (pid,) in database.query(f"SELECT pid {_FLUSHERS}")]
    numbers = count(10)

    def stopped(session: psycopg.Connection[Any]) -> bool:
        """Write on, until the flushed position is where it should be."""
        session.execute("INSERT INTO t VALUES (%s, repeat('x', 7000))", (next(numbers),))
        with _pausing(flushers) as ended:
            stays = _is_in_a_record(database)
        return (stays and not ended.is_set()) or _send(flushers, signal.SIGCONT)

    with database.connect() as session:
        try:
            session.execute("BEGIN")
            session.execute("INSERT INTO t VALUES (0, '')")
            wait_for("part of a record", lambda: stopped(session))
            yield session
        finally:
            _send(flushers, signal.SIGCONT)


@contextmanager
def _pausing(processes: list[int]) -> Iterator[threading.Event]:
    """Stop the processes; they go on, and the event is set, if the block takes a second.

    A process that is stopped at work may have a lock, for which even a new connection waits.
    """
    ended = threading.Event()

    def go_on() -> None:
        ended.set()
        _send(processes, signal.SIGCONT)

    _send(processes, signal.SIGSTOP)
    timer = threading.Timer(1, go_on)
    timer.start()
    try:
        yield ended
    finally:
        timer.cancel()
        timer.join()


def _send(processes: list[int], number: signal.Signals) -> bool:
    for process in processes:
        os.kill(process, number)
    return False


def _is_in_a_record(database: Database) -> bool:
    if not database.value(f"SELECT bool_and(wait_event_type = 'Activity') {_FLUSHERS}"):
        return False  # at work: it may have a lock, for which pgtail would wait
    flushed, inserted = database.query("SELECT pg_current_wal_flush_lsn(), pg_current_wal_insert_lsn()")[0]
    return parse_lsn(flushed) % _PAGE == 0 and parse_lsn(flushed) < parse_lsn(inserted)


def test_open_transactions_do_not_delay_the_end(database: Database, role: str, tmp_path: Path) -> None:
    """A role that may replicate and read, and nothing else, is enough to find the end."""
    conninfo, capture = database.conninfo(user=role), tmp_path / "capture"
    record = ("-S", "s", "-D", str(capture), "--until", "now")
    with half_a_record(database) as session:
        lines, words = stream(conninfo, "-S", "s", "--until", "now")
        assert ids(lines) == [1, 2], words
        stream(conninfo, *record, command="record")
        session.execute("COMMIT")
        stream(conninfo, *record, command="record")
    recorded = decode(capture).objects
    assert ids(recorded)[:3] == [1, 2, 0]  # nothing is missing, nothing comes twice
    assert database.value("SELECT count(*) FROM t") == len(recorded)


def test_open_transactions_do_not_delay_the_end_at_a_time(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's position at that time is in the middle of a record."""
    monkeypatch.setattr(plan, "MARGIN", 1_000_000)
    capture = tmp_path / "capture"
    record = ("-S", "s", "-D", str(capture), "--until")
    with half_a_record(newest_database) as session:
        soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
        assert here("record", newest_database.conninfo(), *record, soon).status == 0
        assert ids(decode(capture).objects) == [1, 2]
        session.execute("COMMIT")
    stream(newest_database, *record, "now", command="record")
    recorded = decode(capture).objects
    assert ids(recorded)[:3] == [1, 2, 0]
    assert newest_database.value("SELECT count(*) FROM t") == len(recorded)
