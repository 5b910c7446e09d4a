"""Captures that are pruned: what Spark has applied is removed, and a pruned start is no gap."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pgtail.capture.prune import Bound, Prunable, prune
from pgtail.capture.recorder import Recorder
from pgtail.errors import OptionError
from pgtail.spark import read
from pgtail.spark.lake.batches import applied_to
from pgtail.spark.lake.update import Lake
from pgtail.spark.state.increment import MissingSegment
from pgtail.storage import NO_OPTIONS, locate
from tests.capture.test_prune import SHORT, take_groups
from tests.capture.test_recovery import transactions
from tests.spark.test_changes import in_order
from tests.support.corpus import capture
from tests.support.run import here
from tests.support.spark import model
from tests.support.spark.captures import rows_of, segments
from tests.support.spark.copied import Recording, Server
from tests.support.spark.world import apply, same_as_model, stored


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    folder = tmp_path / "whole"
    folder.mkdir()
    recorder = Recorder(folder, {"client_encoding": "UTF8"}, rotation=SHORT)
    take_groups(recorder, transactions(capture("A_dml", "p1")))
    recorder.close()
    return folder


def remove(folder: Path, count: int) -> int:
    """Prune a capture by at most so many segments; returns how many were removed."""
    plan = Prunable(locate(str(folder))).plan([Bound(count)], lasting=False)
    prune(locate(str(folder)), plan.pruned)
    return len(plan.segments)


def test_what_is_applied_is_removed_while_the_capture_grows(spark: Any, recorded: Path, tmp_path: Path) -> None:
    growing, out, paths = tmp_path / "growing", tmp_path / "out", segments(recorded)
    growing.mkdir()
    shutil.copy(recorded / "capture.json", growing)
    with pytest.raises(OptionError, match=r"out has nothing of"):
        applied_to(str(out), Prunable(locate(str(growing))), NO_OPTIONS)
    removed, rows = 0, rows_of(paths)
    for start in range(0, len(paths), 5):
        for path in paths[start : start + 5]:
            shutil.copy(path, growing)
        if start:
            refused = here("capture", "prune", "--applied", out, "--delete", growing)
            assert refused.status == 0
            assert {path.name for path in paths[start : start + 5]} <= {path.name for path in segments(growing)}
        apply(spark, out, [str(growing)])
        assert here("capture", "prune", "--applied", out, "--delete", growing).status == 0
        removed = start + 5 - len(segments(growing))
        assert segments(growing)
    assert removed > 3
    assert in_order(read(spark, str(out), "changes")) == rows
    same_as_model(
        model.folds(model.committed(model.changes(recorded)), model.relations(recorded)), stored(out, "state")
    )


def test_a_pruned_start_is_no_gap(spark: Any, recorded: Path, tmp_path: Path) -> None:
    assert remove(recorded, 4)
    out, left = tmp_path / "out", segments(recorded)
    done = Lake(spark, str(out)).update([str(recorded)], typed=True)
    assert (done.notes, done.segments) == ([], len(left))
    assert in_order(read(spark, str(out), "changes")) == rows_of(left)
    applied = apply(spark, out, [])
    assert applied.waiting is None
    tables = {f"{row['schema']}.{row['table']}" for row in rows_of(left) if row["op"] in model.OPS}
    assert set(applied.begun_pruned) == tables != set()
    same_as_model(
        model.folds(model.committed(model.changes(recorded)), model.relations(recorded)), stored(out, "state")
    )
    assert remove(recorded, 1000)
    assert apply(spark, out, [str(recorded)]).begun_pruned == []


def test_what_was_pruned_before_it_was_applied_is_missing(spark: Any, recorded: Path, tmp_path: Path) -> None:
    some, out = tmp_path / "some", tmp_path / "out"
    some.mkdir()
    for path in (recorded / "capture.json", *segments(recorded)[:2]):
        shutil.copy(path, some)
    apply(spark, out, [str(some)])
    for path in segments(recorded)[2:]:
        shutil.copy(path, some)
    assert remove(some, 5) > 2
    done = Lake(spark, str(out)).update([str(some)], typed=True)
    assert [note for note in done.notes if "was pruned before it was applied" in note] == done.notes != []
    with pytest.raises(MissingSegment):
        apply(spark, out, [])
    assert apply(spark, out, [], allow_gap=True).gaps


def test_segments_that_are_pruned_between_their_listing_and_their_reading(
    spark: Any, recorded: Path, tmp_path: Path
) -> None:
    tasks: list[str] = []

    def show_task(text: str) -> None:
        if text.startswith("decoding") and not tasks:
            assert remove(recorded, 4)
        tasks.append(text)

    out = tmp_path / "out"
    Lake(spark, str(out), show_task=show_task).update([str(recorded)])
    assert sum(text.startswith("decoding") for text in tasks) == 2
    assert in_order(read(spark, str(out), "changes")) == rows_of(segments(recorded))


def test_a_snapshot_that_was_not_applied_stays(spark: Any, tmp_path: Path) -> None:
    server = Server(Random(5), 4)
    server.snapshot(server.tables[:2])
    server.run(8)
    first = len(server.steps)
    server.snapshot(server.tables)
    server.run(8)
    folder, out = tmp_path / "capture", tmp_path / "out"
    recording = Recording(folder)
    recording.record(server.steps[:first])
    apply(spark, out, [str(folder)])
    recording.record(server.steps[first:])
    found = Prunable(locate(str(folder)))
    bound = applied_to(str(out), found, NO_OPTIONS)
    newest = max(one.lsn for one in found.state.snapshots)
    assert newest not in {one.lsn for one in found.plan([bound], lasting=False).snapshots}
    apply(spark, out, [str(folder)])
    assert applied_to(str(out), found, NO_OPTIONS) == Bound(len(found.stream))
