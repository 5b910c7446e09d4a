"""Copies of tables from standbys (PostgreSQL 16 and later): conflicts with the primary's changes, and promotions."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pgtail.demo.server import EmbeddedServer
from pgtail.replication.record_snapshot import SnapshotRecording
from pgtail.replication.snapshot_report import SnapshotReport
from tests.capture.test_snapshot import at_first_part, equal, listed, make, record, recorded, refused, streamed
from tests.conftest import StartServer
from tests.support.servers import Database, since
from tests.support.standbys import catch_up, standby_of
from tests.support.tail import wait_for


@contextmanager
def standby(primary: EmbeddedServer) -> Iterator[tuple[Database, Database]]:
    """The primary and a standby that has replayed what the primary has; slots can be created there at any time."""
    first = Database(primary, "postgres")
    stop = threading.Event()

    def log_running() -> None:
        while not stop.wait(0.1):
            first.query("SELECT pg_log_standby_snapshot()")

    with standby_of(primary) as server:
        catch_up(first, second := Database(server, "postgres"))
        logging = threading.Thread(target=log_running)
        logging.start()
        try:
            yield first, second
        finally:
            stop.set()
            logging.join()


@contextmanager
def at_each_copy(action: Callable[[], object]) -> Iterator[list[int]]:
    """Run `action` under the snapshot of each copy, before its rows are read; gives their positions."""
    target, positions = SnapshotReport.begin, list[int]()

    def begin(self: Any, tables: Any, lsn: int) -> None:
        target(self, tables, lsn)
        positions.append(lsn)
        action()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SnapshotReport, "begin", begin)
        yield positions


@since(16)
def test_a_copy_that_a_standby_ends_is_tried_three_times(
    server: EmbeddedServer, start_server: StartServer, tmp_path: Path
) -> None:
    primary = start_server(server.installation)
    with standby(primary) as (first, second):
        make(first, "t")
        second.server.restart(hot_standby_feedback=False, max_standby_streaming_delay=0)
        catch_up(first, second)

        copying = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'pgtail%' AND backend_type LIKE 'client%'"

        def vacuum_once() -> bool:
            first.execute("UPDATE t SET v = v || 'x'", "VACUUM t")
            catch_up(first, second)
            return not second.query(copying)

        def vacuum() -> None:
            assert second.query(copying)
            wait_for("conflict", vacuum_once)

        with at_each_copy(vacuum) as positions:
            said = refused(second, tmp_path / "c", status=75)
        assert len({*positions}) == 3
        assert "set hot_standby_feedback = on there, or raise max_standby_streaming_delay" in said
        with at_each_copy(vacuum):
            lines, said = streamed(second, "--until", "now", status=75)
        assert lines == []
        assert "set hot_standby_feedback = on there, or raise max_standby_streaming_delay" in said
        recorded(second, tmp_path / "c")
        equal(second, tmp_path / "c", "t")


@since(16)
def test_a_standby_that_is_promoted_meanwhile(
    server: EmbeddedServer, start_server: StartServer, tmp_path: Path
) -> None:
    """The recorder goes on from the new timeline: the tables are copied there, in the same run."""
    with standby(start_server(server.installation)) as (first, second):
        make(first, "a", "b")
        catch_up(first, second)

        def promote() -> None:
            second.query("SELECT pg_promote()")
            second.execute("INSERT INTO a VALUES (100, 'promoted')", "UPDATE b SET v = 'promoted' WHERE id = 1")

        with at_first_part(promote):
            said = recorded(second, tmp_path / "c")
        assert said.count("does not count, and is removed: the server is on timeline 2 now") == 2
        assert "2 tables copied: 41 rows" in said
        equal(second, tmp_path / "c", "a", "b")


@since(12)
def test_copies_of_another_timeline_are_made_again_by_the_same_run(
    server: EmbeddedServer, start_server: StartServer, tmp_path: Path
) -> None:
    """Those that the capture had not reached: the recorder ended before it."""
    database = Database(start_server(server.installation), "postgres")
    make(database, "a", "b")
    copy = SnapshotRecording.run

    def copy_and_end(recording: SnapshotRecording) -> None:
        copy(recording)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SnapshotRecording, "run", copy_and_end)
        record(database, tmp_path / "c")
    assert len(listed(tmp_path / "c")) == 2
    promote(database)
    database.execute("INSERT INTO a VALUES (100, 'x')")
    said = recorded(database, tmp_path / "c")
    assert said.count("does not count, and is removed: the server is on timeline 2 now") == 2
    assert "2 tables copied: 41 rows" in said
    equal(database, tmp_path / "c", "a", "b")
    timelines = {one["timeline"] for one in json.loads((tmp_path / "c/capture.json").read_text())["snapshots"]}
    assert timelines == {2}


def promote(database: Database) -> None:
    """Start the server as a standby and promote it: it goes on, with its slots, on another timeline."""
    server = database.server
    server.stop()
    signal = server.data / "standby.signal"
    signal.touch()
    shutil.chown(signal, server.data.stat().st_uid, server.data.stat().st_gid)
    server.start()
    database.query("SELECT pg_promote()")
    wait_for("promotion", lambda: not database.value("SELECT pg_is_in_recovery()"))
