"""Captures that overlap while prepared transactions are open: every order of segments gives the server's tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pgtail.demo.server import EmbeddedServer
from pgtail.spark import read
from pgtail.spark.lake.update import Lake
from tests.spark.test_changes import in_order
from tests.support import killed_recorder
from tests.support.servers import fresh_database
from tests.support.spark import world
from tests.support.spark.captures import rows_of
from tests.support.spark.interleaved import History, Step, apply, ends, inserted, record

PREPARE_P = [("y", "BEGIN"), ("y", "INSERT INTO t VALUES (2), (3)"), ("y", "PREPARE TRANSACTION 'p'")]
PREPARE_Q = [("y", "BEGIN"), ("y", "INSERT INTO t VALUES (4)"), ("y", "PREPARE TRANSACTION 'q'")]
COMMIT_P, ROLL_BACK_Q = ("y", "COMMIT PREPARED 'p'"), ("y", "ROLLBACK PREPARED 'q'")
MESSAGE = ("y", "SELECT pg_logical_emit_message(false, 'm', 'text')")


def insert(value: int) -> tuple[str, str]:
    return "y", f"INSERT INTO t VALUES ({value})"


def meanwhile(value: int, *statements: tuple[str, str]) -> list[tuple[str, str]]:
    """A transaction whose commit record comes right after that of the last statement: they meet at one LSN."""
    return [("x", "BEGIN"), ("x", f"INSERT INTO t VALUES ({value})"), *statements, ("x", "COMMIT")]


HISTORIES = {
    "commit": ([insert(1), *PREPARE_P], [insert(5), *meanwhile(6, COMMIT_P)], [insert(7)]),
    "commit after the first ends": ([*PREPARE_P, insert(1)], [insert(5)], [*meanwhile(6, COMMIT_P), insert(7)]),
    "rollback": ([*PREPARE_Q, insert(1)], [*meanwhile(6, ROLL_BACK_Q), insert(5)], [insert(7)]),
    "message": ([insert(1)], [*meanwhile(6, MESSAGE), insert(5)], [*meanwhile(8, MESSAGE), insert(7)]),
    "name used again": (
        [insert(1), *PREPARE_P],
        [COMMIT_P, *PREPARE_P, insert(5)],
        [COMMIT_P, *PREPARE_Q, *meanwhile(6, ROLL_BACK_Q)],
    ),
    "late first": ([insert(1), *PREPARE_P, *PREPARE_Q], [COMMIT_P, insert(5)], [("y", "COMMIT PREPARED 'q'")]),
}


@pytest.mark.parametrize("switched", [False, True], ids=["advanced", "switched to two_phase"])
@pytest.mark.parametrize("name", HISTORIES)
def test_every_order_of_segments_gives_the_tables_of_the_server(
    newest_server: EmbeddedServer, tmp_path: Path, name: str, switched: bool
) -> None:
    before, shared, after = HISTORIES[name]
    with fresh_database(newest_server) as database:
        recorded = record(database, tmp_path, History(before, shared, after, switched))
    for one in (recorded.one, []):
        at_once = apply(Step(), one + recorded.other)
        assert sorted(at_once.values) == sorted(inserted(at_once.changes).elements())
        if one:
            assert inserted(at_once.changes) == recorded.values
        elif switched and PREPARE_P[1] in before:
            assert {"2", "3"} <= set(at_once.values), "what was sent late is in the second capture"
        found = list(ends(one, recorded.other))
        assert found
        for step in found:
            assert step.changes == at_once.changes
            assert step.values == at_once.values
            assert step.notes.pending == at_once.notes.pending == []


def test_what_was_sent_late_gets_into_the_state(spark: Any, newest_server: EmbeddedServer, tmp_path: Path) -> None:
    """Its changes in one batch, its outcome and the transaction that meets it in two others."""
    before, shared, after = HISTORIES["commit"]
    with fresh_database(newest_server) as database:
        segments = record(database, tmp_path, History(before, shared, after, switched=True)).other
    [end] = [number for number, path in enumerate(segments) if outcome(path)]
    for some in (segments[:end], segments[end : end + 1], segments[end + 1 :]):
        world.apply(spark, tmp_path / "out", some)
    assert sorted(world.stored(tmp_path / "out", "state")["t"]["v"].to_pylist()) == [2, 3, 5, 6, 7]


@pytest.mark.parametrize(("name", "moment"), [("rollback", "received"), ("sent late, of several segments", "synced")])
def test_a_recorder_that_was_killed_before_an_outcome_makes_no_difference(
    spark: Any, newest_server: EmbeddedServer, tmp_path: Path, name: str, moment: killed_recorder.Moment
) -> None:
    with fresh_database(newest_server) as database:
        captures = killed_recorder.make(database, tmp_path, killed_recorder.HISTORIES[name], moment)
    found = []
    for capture in captures:
        out = f"{capture}.out"
        Lake(spark, out).update([str(capture)])
        found.append(in_order(read(spark, out, "changes")))
    assert found[0] == found[1] != []


def outcome(path: str) -> bool:
    """Whether a segment has the outcome of a prepared transaction."""
    return "commit_prepared" in [row["op"] for row in rows_of([Path(path)])]
