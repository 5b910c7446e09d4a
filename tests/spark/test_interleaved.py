"""A prepared transaction that a slot sends late, cut between its changes, its outcome and what meets it at one LSN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.servers import Database
from tests.support.spark import model, world
from tests.support.spark.captures import cut, rows_of
from tests.support.two_phase import ADVANCE, CREATE_SLOT, SETUP, SWITCH_ON


def test_what_was_sent_late_gets_into_the_state(spark: Any, newest_database: Database, tmp_path: Path) -> None:
    """Its changes in one batch, its outcome and the transaction that meets it in two others."""
    database = newest_database
    database.execute(*SETUP, CREATE_SLOT.format("s", "false"), "INSERT INTO t VALUES (1)")
    database.execute("BEGIN; INSERT INTO t VALUES (2), (3); PREPARE TRANSACTION 'p'")
    database.execute(ADVANCE.format("s"), SWITCH_ON.format("s"), "INSERT INTO t VALUES (5)")
    with database.connect() as meeting:  # its commit record comes right after the outcome: they meet at one LSN
        meeting.execute("BEGIN; INSERT INTO t VALUES (6)")
        database.execute("COMMIT PREPARED 'p'")
        meeting.execute("COMMIT")
    database.execute("INSERT INTO t VALUES (7)")
    model.record(database, tmp_path / "whole")
    parts = cut(tmp_path / "whole", tmp_path / "cut")
    [end] = [number for number, path in enumerate(parts) if "commit_prepared" in [row["op"] for row in rows_of([path])]]
    for some in (parts[:end], parts[end : end + 1], parts[end + 1 :]):
        world.apply(spark, tmp_path / "out", list(map(str, some)))
    assert sorted(world.stored(tmp_path / "out", "state")["t"]["v"].to_pylist()) == [2, 3, 5, 6, 7]
