"""What a copy of tables says about the WAL that its slot keeps, on servers with max_slot_wal_keep_size."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pgtail.errors import ServerError
from pgtail.replication.plan import Publisher
from pgtail.replication.snapshot import Progress
from pgtail.replication.snapshot_report import SnapshotReport
from pgtail.service.progress import SlotProgress
from tests.capture.test_snapshot import at_first_part, make, recorded, refused
from tests.conftest import StartServer
from tests.support.copied_tables import connector_to
from tests.support.servers import Database
from tests.support.tail import wait_for

_LIMIT = {"max_slot_wal_keep_size": "96MB", "min_wal_size": "32MB", "max_wal_size": "64MB"}


def report_of(database: Database, slot: str) -> SnapshotReport:
    unused: Any = None
    return SnapshotReport(Publisher(unused, connector_to(database), unused, SlotProgress()), slot, look_every=0)


def write(database: Database, megabytes: int) -> None:
    """So much WAL."""
    for _ in range(megabytes):
        database.query("SELECT pg_logical_emit_message(false, 'x', repeat('x', 1024 * 1024))")


@pytest.fixture
def limited(start_server: StartServer) -> Database:
    database = Database(start_server(**_LIMIT), "postgres")
    make(database, "t")
    return database


def test_how_much_wal_can_be_written_is_said_before(limited: Database, tmp_path: Path) -> None:
    found = re.search(r"keeps WAL, at most ([\d.]+) MB more \(max_slot_wal_keep_size\)", recorded(limited, tmp_path))
    assert found is not None
    assert 64 < float(found[1]) < 160


def test_a_slot_that_is_invalidated_meanwhile(limited: Database, tmp_path: Path) -> None:
    """A copy that goes on for long ends soon; a short one ends, and the error is that of the stream's start."""
    report = report_of(limited, "cap")

    def invalidate() -> None:
        write(limited, 170)
        lost = "SELECT 1 FROM pg_replication_slots WHERE wal_status = 'lost'"
        wait_for("invalidated slot", lambda: (limited.query("CHECKPOINT"), limited.query(lost))[1])
        with pytest.raises(ServerError, match="slot cap was invalidated .* while the tables were copied"):
            report.progress(Progress(all_tables=1, all_bytes=100, bytes=50))

    with at_first_part(invalidate):
        said = refused(limited, tmp_path)
    assert re.search("slot cap (is|was) invalidated", said)
