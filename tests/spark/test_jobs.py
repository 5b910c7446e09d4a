"""Small batches are done in the driver, by the same functions as the tasks, without a job of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgtail.errors import InputError, OptionError
from pgtail.spark.jobs import collected
from pgtail.spark.lake.update import Lake
from pgtail.spark.session import DRIVER_BYTES
from pgtail.spark.state.settings import Settings
from pgtail.spark.state.update import update_state
from tests.spark.test_tasks import MANY
from tests.support.spark import model
from tests.support.spark.captures import record, rows_of
from tests.support.spark.world import same_as_model, same_lives, stored


@pytest.fixture
def in_driver(spark: Any) -> Iterator[Any]:
    """The session, with the setting as it is by default."""
    before = spark.conf.get(DRIVER_BYTES)
    spark.conf.unset(DRIVER_BYTES)
    yield spark
    spark.conf.set(DRIVER_BYTES, before)


def jobs(spark: Any) -> set[int]:
    return set(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def fails(_: int) -> int:
    raise InputError("is damaged", source="it")


def test_up_to_so_many_bytes_the_driver_does_it(spark: Any) -> None:
    before = spark.conf.get(DRIVER_BYTES)
    try:
        spark.conf.set(DRIVER_BYTES, "10")
        done = jobs(spark)
        assert collected(spark, str, [1, 2], 10) == ["1", "2"]
        assert jobs(spark) == done
        assert collected(spark, str, [1, 2], 11) == ["1", "2"]
        assert jobs(spark) > done
        for size in (10, 11):
            with pytest.raises(InputError, match="it: is damaged"):
                collected(spark, fails, [1], size)
        spark.conf.set(DRIVER_BYTES, "16m")
        with pytest.raises(OptionError, match=rf"{DRIVER_BYTES} is 16m: expected a number of bytes"):
            collected(spark, str, [1], 1)
    finally:
        spark.conf.set(DRIVER_BYTES, before)


def test_small_batches_run_no_job_and_give_the_same(in_driver: Any, tmp_path: Path) -> None:
    """Every segment is a batch, and the tables are in several buckets."""
    paths, out = record(MANY, tmp_path / "capture", size=20_000), tmp_path / "out"
    done = jobs(in_driver)
    for path in paths:
        lake = Lake(in_driver, str(out))
        lake.update([str(path)], typed=True)
        for history in (False, True):
            update_state(lake, Settings(history=history, bucket_size=4_000))
    assert jobs(in_driver) == done
    assert max(table.buckets for table in lake.plan.notes["state"].tables.values()) > 4
    assert stored(out, "tables")
    assert sum(one.num_rows for one in stored(out, "tables").values()) == sum(
        row["relation"] is not None for row in rows_of(paths)
    )
    rows, versions = model.committed(model.changes(tmp_path / "capture")), model.relations(tmp_path / "capture")
    same_as_model(model.folds(rows, versions), stored(out, "state"))
    same_lives(model.folds(rows, versions, history=True), stored(out, "history"))


def test_what_is_applied_up_to_names_no_transaction_that_is_open(in_driver: Any, tmp_path: Path) -> None:
    """A segment may end inside a transaction, which a state applies when all of it is there."""
    paths, out = record(MANY, tmp_path / "capture", size=20_000), str(tmp_path / "out")
    ends = set()
    for path in paths:
        lake = Lake(in_driver, out)
        lake.update([str(path)], typed=True)
        applied = update_state(lake, Settings())
        [run] = lake.plan.runs
        assert run.places is not None
        last = run.places.end.position
        assert (applied.end.transactions_before < last) == (run.open or run.places.end.ordinal <= 1)
        rows = stored(tmp_path / "out", "state").values()
        assert applied.end.transactions_before >= max(
            [0, *(max(one["_position"].to_pylist(), default=0) for one in rows)]
        )
        ends.add(run.open)
    assert ends == {False, True}
