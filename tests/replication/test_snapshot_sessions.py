"""`pgtail stream --snapshot` loses the session that created its slot and exports the snapshot, while it copies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from pgtail.humanize import grouped
from tests.replication.test_snapshot_stops import LARGE
from tests.support.servers import Database
from tests.support.tail import Tailing, parse, tailing, wait_for

_COPYING = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'COPY %' AND wait_event = 'ClientWrite'"
_EXPORTING = "FROM pg_stat_activity WHERE backend_type = 'walsender' AND datname = current_database()"
_PERMANENT = ("-S", "once", "--create-slot")


@contextmanager
def lost_while_copying(database: Database, *options: str) -> Iterator[tuple[Tailing, IO[bytes]]]:
    """A command whose output blocks in the middle of the first table, when its session is lost; and the output."""
    database.execute(*LARGE)
    reading, writing = os.pipe()
    arguments = ["--snapshot", "-o", "json", "--spill-limit", "1MB", *options]
    with tailing(database, *arguments, stdout=writing) as run, os.fdopen(reading, "rb") as output:
        os.close(writing)
        wait_for("full queue", lambda: database.query(_COPYING))
        database.query(f"SELECT pg_terminate_backend(pid) {_EXPORTING}")
        wait_for("end of the session", lambda: not database.query(f"SELECT 1 {_EXPORTING}"))
        yield run, output


def slots(database: Database) -> list[tuple[str]]:
    return database.query("SELECT slot_name FROM pg_replication_slots")


def test_with_a_temporary_slot_it_is_an_error_at_once(newest_database: Database) -> None:
    with lost_while_copying(newest_database) as (run, _):
        said = run.end(status=3)
    assert "terminating connection due to administrator command: this was the session of the new slot" in said
    assert "the copy of the tables is not complete: the output has only a part of their rows" in said
    assert "resume at" not in said


def test_with_a_permanent_slot_the_copy_goes_on_and_the_stream_follows(newest_database: Database) -> None:
    with lost_while_copying(newest_database, *_PERMANENT) as (run, output):
        newest_database.execute("INSERT INTO small VALUES (2)")
        rows = [parse(output.readline()) for _ in range(50_002)]
        assert [one["op"] for one in rows] == ["snapshot"] * 50_001 + ["insert"]
        assert len({(one["commit_lsn"], one["seq"]) for one in rows}) == 50_002
        run.wait_for_words("connected again")
        assert "GAP" not in run.stop()
    assert slots(newest_database) == [("once",)]


def test_without_reconnecting_the_slot_is_dropped(newest_database: Database) -> None:
    with lost_while_copying(newest_database, *_PERMANENT, "--no-reconnect") as (run, _):
        said = run.end(status=3)
    assert "slot once was dropped again: the copy of the tables is not complete" in said
    assert slots(newest_database) == []


def test_a_copy_alone_does_not_need_the_session(newest_database: Database) -> None:
    with lost_while_copying(newest_database, "--until", "now") as (run, output):
        rows = output.readlines()
        assert f"2 tables copied: {grouped(50_001)} rows" in run.end()
    assert len(rows) == 50_001
