"""`pgtail spark changes` to Parquet, which its tasks write themselves: what Spark would have written, and no more."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pgtail.errors import InputError, OptionError, OutputError
from pgtail.spark import changes, stored, transactions
from pgtail.spark.datasets.manifest import Output
from pgtail.spark.datasets.tasks import Workers
from pgtail.spark.datasets.update import Datasets
from tests.spark.test_parquet import dated
from tests.support.corpus import capture
from tests.support.spark.captures import record, segments

MANY = capture("D_twophase", "p3_2pc")
FAR = [-1_200_000, -800_000, -150_000, 4_000_000, 80_000_000]
"""Days from 2000 on, from before Christ to beyond the year 10000; some before there was this calendar."""


def in_order(found: Any) -> pa.Table:
    """Rows in the order of the stream, as Arrow has them: not all times are Python's."""
    return found.orderBy("position", "ordinal", "seq").toArrow()


def counts(found: Any) -> Counter[str]:
    return Counter(map(repr, found.collect()))


def left_over(out: Path) -> list[Path]:
    return [path for path in (out / "_pgtail").rglob("*") if path.suffix == ".parquet"]


def test_it_is_what_spark_would_write(spark: Any, tmp_path: Path) -> None:
    """Values, types and folders, of dates near and far, of rows without one; read as they are and with a schema."""
    dated(tmp_path / "capture", FAR)
    rows = changes(spark, str(tmp_path / "capture"))
    rows.write.partitionBy("commit_date").parquet(str(tmp_path / "by spark"))
    Datasets(spark, str(tmp_path / "out")).update([str(tmp_path / "capture")])
    batch = tmp_path / "out" / "changes" / "batch=000001"
    folders = [{path.name for path in place.glob("commit_date=*")} for place in (batch, tmp_path / "by spark")]
    assert folders[0] == folders[1]
    assert len(folders[0]) == len(FAR) + 1
    as_it_is, by_spark = (spark.read.parquet(str(place)) for place in (batch, tmp_path / "by spark"))
    assert as_it_is.schema == by_spark.schema
    wanted = in_order(rows)
    assert in_order(as_it_is).equals(wanted)
    assert in_order(stored(spark, str(tmp_path / "out"), "changes")).equals(wanted)
    kinds = [
        {path.parent.name: pq.read_schema(path) for path in place.rglob("*.parquet")}
        for place in (batch, tmp_path / "by spark")
    ]
    assert {name: schema.remove_metadata() for name, schema in kinds[0].items()} == {
        name: schema.remove_metadata() for name, schema in kinds[1].items()
    }


@pytest.mark.parametrize("tables", [[], ["t_*"]], ids=["all", "some"])
def test_transactions_are_those_that_spark_counts(spark: Any, tmp_path: Path, tables: list[str]) -> None:
    record(capture("A_dml", "p1") if tables else MANY, tmp_path / "capture", size=30_000)
    Datasets(spark, str(tmp_path / "out"), tables=tables).update([str(tmp_path / "capture")])
    by_spark = transactions(changes(spark, str(tmp_path / "capture"), tables=tables))
    assert counts(stored(spark, str(tmp_path / "out"), "transactions")) == counts(by_spark)


def test_one_folder_whose_segments_overlap_gives_each_change_once(spark: Any, tmp_path: Path) -> None:
    """They are decoded wholly at first, for those of one capture never overlap; what came of it does not count."""
    record(MANY, tmp_path / "one", size=20_000)
    record(MANY, tmp_path / "other", size=33_000)
    wanted = in_order(changes(spark, str(tmp_path / "one")))
    names = {path.name for path in segments(tmp_path / "one")}
    for path in segments(tmp_path / "other"):
        if path.name not in names:
            shutil.copy(path, tmp_path / "one")
    assert len(segments(tmp_path / "one")) > len(names)
    Datasets(spark, str(tmp_path / "out")).update([str(tmp_path / "one")])
    assert in_order(stored(spark, str(tmp_path / "out"), "changes")).equals(wanted)
    assert left_over(tmp_path / "out") == []


def test_what_one_task_wrote_before_another_failed_is_in_no_batch(spark: Any, tmp_path: Path) -> None:
    good, bad, *others = record(MANY, tmp_path / "capture", size=20_000)
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-9])
    out = tmp_path / "out"
    datasets = Datasets(spark, str(out))
    # The workers write as soon as they decode, and Spark's tasks are as many as its cores.
    with pytest.raises(InputError, match=bad.name):
        datasets.update([str(tmp_path / "capture")])
    assert not list(out.glob("changes/batch=*"))
    assert datasets.update([str(path) for path in (good, *others)]).batches == 1
    bad.write_bytes(whole)
    datasets.update([str(tmp_path / "capture")])
    assert in_order(stored(spark, str(out), "changes")).equals(in_order(changes(spark, str(tmp_path / "capture"))))
    assert left_over(out) == []


def test_what_attempts_wrote_that_do_not_count_is_in_no_batch(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task runs twice, as where Spark gave one up that goes on unseen."""
    record(MANY, tmp_path / "capture", size=20_000)
    tasks = Workers.tasks

    def twice(*arguments: Any, **options: Any) -> Any:
        tasks(*arguments, **options).collect()
        return tasks(*arguments, **options)

    monkeypatch.setattr(Workers, "tasks", twice)
    Datasets(spark, str(tmp_path / "out")).update([str(tmp_path / "capture")])
    wanted = in_order(changes(spark, str(tmp_path / "capture")))
    assert in_order(spark.read.parquet(str(tmp_path / "out" / "changes")).select(wanted.column_names)).equals(wanted)
    assert left_over(tmp_path / "out") == []


def test_a_folder_that_workers_cannot_write_to_is_named(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(capture("Z_small", "p1"), tmp_path / "capture")
    (tmp_path / "file").write_bytes(b"")
    datasets = Datasets(spark, str(tmp_path / "out"))
    monkeypatch.setattr(Output, "attempts", lambda _: str(tmp_path / "file"))
    with pytest.raises(OutputError, match=f"^cannot write to {tmp_path}/file/.*: Not a directory$"):
        datasets.update([str(tmp_path / "capture")])
    # As on a cluster whose machines have each an OUT of their own.
    monkeypatch.setattr(Output, "attempts", lambda output: output.staged(str(len(list(tmp_path.iterdir())))))
    monkeypatch.setattr(Workers, "written", lambda *_: {"changes": ["x/changes/y"], "transactions": []})
    with pytest.raises(OutputError, match="mounted under the same path"):
        datasets.update([str(tmp_path / "capture")])


def test_the_codec_is_the_sessions(spark: Any, tmp_path: Path) -> None:
    record(capture("Z_small", "p1"), tmp_path / "capture")
    name = "spark.sql.parquet.compression.codec"
    try:
        spark.conf.set(name, "zstd")
        Datasets(spark, str(tmp_path / "out")).update([str(tmp_path / "capture")])
        spark.conf.set(name, "lzo")
        with pytest.raises(OptionError, match="lzo"):
            Datasets(spark, str(tmp_path / "other")).update([str(tmp_path / "capture")])
    finally:
        spark.conf.unset(name)
    [path] = (tmp_path / "out" / "changes").rglob("*.parquet")
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_capture_without_a_change_makes_no_folder(spark: Any, tmp_path: Path) -> None:
    for stored_as in ("parquet", "orc"):
        dated(tmp_path / f"of {stored_as}", [])
        datasets = Datasets(spark, str(tmp_path / stored_as), stored_as=stored_as)
        datasets.update([str(tmp_path / f"of {stored_as}")])
        for kind in ("changes", "transactions"):
            assert stored(spark, str(tmp_path / stored_as), kind).count() == 0
    assert not (tmp_path / "parquet" / "changes").exists()
