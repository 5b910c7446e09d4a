"""A recorder of a snapshot into an object store that goes on from another machine: the first one's spool is lost."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pgtail.replication import record_snapshot
from tests.capture.test_snapshot import make
from tests.support.object_store import ObjectStore
from tests.support.replay import Replica, Snapshots
from tests.support.run import Result, here
from tests.support.servers import Database
from tests.support.tail import parse
from tests.torture.snapshot_histories import small_parts


def test_listed_copies_stay_and_the_rest_is_copied(newest_database: Database, s3: ObjectStore, tmp_path: Path) -> None:
    make(newest_database, "a", "b", "d", count=300)
    place = s3.uri(tmp_path.name)

    def record(spool: str) -> Result:
        arguments = ["-S", "cap", "-D", place, "--spool", str(tmp_path / spool), *s3.arguments, "--until", "now"]
        return here("record", newest_database.conninfo(), *arguments, "--snapshot", "--snapshot-jobs", "1")

    def listed() -> list[dict[str, Any]]:
        data = (s3.locate(tmp_path.name) / "capture.json").read()
        assert data is not None
        found: list[dict[str, Any]] = json.loads(data[0])["snapshots"]
        return found

    complete = record_snapshot.SnapshotTarget.complete

    def complete_and_end(*arguments: Any) -> None:
        complete(*arguments)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch, small_parts(2):
        patch.setattr(record_snapshot.SnapshotTarget, "complete", complete_and_end)
        assert "stopped before all tables were copied" in record("first").stderr
    first = listed()
    assert 1 <= len(first) < 3
    newest_database.execute("UPDATE a SET v = 'new' WHERE id < 9", "DELETE FROM d WHERE id < 9", "DELETE FROM b")
    ran = record("second")
    assert ran.status == 0, ran.stderr
    assert "is removed" not in ran.stderr
    then = listed()
    assert sorted(one["table"] for one in then) == ["a", "b", "d"]
    assert [one for one in then if one in first] == first
    decoded = here("decode", "-o", "json", place, *s3.arguments)
    assert (decoded.status, decoded.stderr) == (0, "")
    snapshots = Snapshots(then)
    replica = Replica(snapshots)
    replica.apply([parse(line) for line in decoded.lines])
    replica.reach(1 << 64)
    snapshots.check_all_rows_were_there()
    for table in "abd":
        rows = sorted((row["id"], row["v"]) for row in replica.rows(f"public.{table}"))
        assert rows == sorted(newest_database.query(f"SELECT id::text, v FROM {table}")), table
