"""What ends a copy of tables early: a reader that is gone, a request to stop, another server, a lost session."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from pgtail.capture.state import FILE
from pgtail.humanize import grouped
from pgtail.pgoutput.frames import LENGTHS
from pgtail.pgoutput.walsender import XLogData
from pgtail.postgres.snapshot_plan import snapshot_plan
from pgtail.postgres.table_copy import CopyForm, CopyStopped, copy_part
from pgtail.replication.record_plan import SYSTEM
from pgtail.replication.record_snapshot import SnapshotRecording
from pgtail.replication.stream_snapshot import StreamSnapshot
from tests.support.copied_tables import snapshot_of
from tests.support.limits import within
from tests.support.object_store import ObjectStore, Proxy
from tests.support.run import here
from tests.support.run_process import PROGRAM, started
from tests.support.servers import Database
from tests.support.tail import PATIENCE, Tailing, parse, tailing, wait_for

LARGE = (
    "CREATE TABLE large (id int, v text)",
    "INSERT INTO large SELECT n, repeat('x', 1000) FROM generate_series(1, 50000) n",
    "CREATE TABLE small (id int)",
    "INSERT INTO small VALUES (1)",
    "CREATE PUBLICATION p FOR TABLE large, small",
)


def test_a_reader_that_is_gone(newest_database: Database) -> None:
    """It is no error, and the slot, of no use without all rows, is dropped."""
    newest_database.execute(*LARGE)
    arguments = ["stream", newest_database.conninfo(), "--snapshot", "-S", "once", "--create-slot", "-o", "json"]
    with started([*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().startswith(b'{"op":"snapshot"')
        running.stdout.close()
        said = running.stderr.read().decode()
        assert running.wait(within(PATIENCE)) == 0
    assert "slot once was dropped again: the copy of the tables is not complete" in said
    assert "error" not in said
    assert newest_database.query("SELECT slot_name FROM pg_replication_slots") == []


def test_a_table_that_was_truncated(newest_database: Database) -> None:
    """What is shown of it cannot be taken back: nothing follows, and the error says why."""
    newest_database.execute("CREATE TABLE after (id int)", "INSERT INTO after VALUES (1)", *LARGE[2:4], *LARGE[:2])
    newest_database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    snapshot = StreamSnapshot.copy

    with pytest.MonkeyPatch.context() as patch:

        def copy(*arguments: Any) -> None:
            newest_database.execute("TRUNCATE after")
            snapshot(*arguments)

        patch.setattr(StreamSnapshot, "copy", copy)
        found = here("stream", newest_database.conninfo(), "--snapshot", "-o", "json", "--until", "now")
    assert (found.status, found.lines) == (3, [])
    assert "table public.after has changed since the snapshot (it was truncated or rewritten)" in found.stderr
    assert "incomplete" not in found.stderr


def test_a_request_to_stop_while_the_output_blocks(newest_database: Database) -> None:
    newest_database.execute(*LARGE)
    arguments = ["stream", newest_database.conninfo(), "--snapshot", "-o", "json", "--spill-limit", "1MB"]
    with started([*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        busy = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'COPY %' AND wait_event = 'ClientWrite'"
        wait_for("full queue", lambda: newest_database.query(busy))
        time.sleep(1)
        running.send_signal(signal.SIGINT)
        running.wait(within(PATIENCE))


def test_a_request_to_stop_while_the_store_is_gone(newest_database: Database, s3: ObjectStore, tmp_path: Path) -> None:
    newest_database.execute(*LARGE)
    proxy = Proxy(s3.url)
    through = ObjectStore(proxy.url)
    place = ["-D", through.uri(tmp_path.name), "--spool", str(tmp_path / "spool"), *through.arguments]
    assert here("record", newest_database.conninfo(), "-S", "cap", *place, "--until", "now").status == 0
    arguments = ["record", newest_database.conninfo(), "-S", "cap", *place, "--snapshot", "--segment-size", "1MB"]
    with started([*PROGRAM, *arguments], stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert "copying 2 tables" in running.stderr.readline()
        proxy.cut()
        while "trying again" not in (line := running.stderr.readline()):
            assert line
        begun = time.monotonic()
        running.send_signal(signal.SIGINT)
        assert "stopped before all tables were copied" in running.stderr.read()
        assert time.monotonic() - begun < within(60)


def test_a_request_to_stop_while_the_server_does_not_answer(newest_database: Database) -> None:
    newest_database.execute(*LARGE)
    stop = threading.Event()
    form = CopyForm(False, XLogData(1, 2, 3), LENGTHS)
    with snapshot_of(newest_database) as (session, _):
        pid = session.connection.info.backend_pid
        table = snapshot_plan(session, ["p"])[0]
        batches = copy_part(session, table, table.parts[0], form, stop=stop, patience=1)
        next(batches)
        os.kill(pid, signal.SIGSTOP)
        try:
            stop.set()
            begun = time.monotonic()
            with pytest.raises(CopyStopped):
                list(batches)
            assert time.monotonic() - begun < within(60)
            assert session.connection.closed
        finally:
            os.kill(pid, signal.SIGCONT)


def test_another_server_after_the_copy(
    newest_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream of a server does not follow the rows of another one, also in a capture that has nothing else."""
    newest_database.execute(*LARGE)
    copy = SnapshotRecording.run

    def copy_of_another(recording: SnapshotRecording) -> None:
        copy(recording)
        text = (tmp_path / FILE).read_text()
        (tmp_path / FILE).write_text(text.replace(json.loads(text)["parameters"][SYSTEM], "1"))

    monkeypatch.setattr(SnapshotRecording, "run", copy_of_another)
    place = ["-S", "cap", "-D", str(tmp_path), "--snapshot-table", "small", "--until", "now"]
    found = here("record", newest_database.conninfo(), *place)
    assert found.status != 0
    assert "this is another server" in found.stderr


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
