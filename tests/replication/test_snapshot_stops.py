"""What ends a copy of tables early: a reader that is gone, a request to stop, another server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pgtail.capture.state import FILE
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
from tests.support.tail import PATIENCE, wait_for

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
        assert running.wait(PATIENCE) == 0
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
        begun = time.monotonic()
        running.send_signal(signal.SIGINT)
        running.wait(PATIENCE)
        assert time.monotonic() - begun < within(8)


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
        assert time.monotonic() - begun < within(20)


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
            assert time.monotonic() - begun < within(4)
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
