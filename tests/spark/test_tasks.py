"""What the tasks of `pgtail spark changes` write, and what of it counts."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pgtail.arrow.decoding.decode import SegmentChanges
from pgtail.errors import InputError, OptionError
from pgtail.spark import changes, read, transactions
from pgtail.spark.jobs import collected
from pgtail.spark.lake import update
from pgtail.spark.lake.delta import LakeTable
from pgtail.spark.lake.update import Lake
from pgtail.storage import locate
from tests.spark.test_changes import in_order
from tests.spark.test_parquet import dated
from tests.support.corpus import capture
from tests.support.spark.captures import record, segments

MANY = capture("D_twophase", "p3_2pc")
FAR = [-1_200_000, -800_000, -150_000, 4_000_000, 80_000_000]
"""Days from 2000 on, from before Christ to beyond the year 10000; some before there was this calendar."""


def counts(found: Any) -> Counter[str]:
    return Counter(map(repr, found.collect()))


def unnamed(out: Path) -> set[Path]:
    """Parquet files that no table names."""
    tables = ("changes", "transactions")
    named = {out / name / file.path for name in tables for file in LakeTable(locate(f"{out}/{name}")).files()}
    return {path for name in ("changes", "transactions") for path in (out / name).glob("*.parquet")} - named


def test_dates_far_and_near_are_those_that_were_decoded(spark: Any, tmp_path: Path) -> None:
    """Spark, Polars and deltalake open a table whose dates not all of them can show."""
    dated(tmp_path / "capture", FAR)
    wanted = changes(spark, str(tmp_path / "capture")).orderBy("position", "ordinal", "seq").toArrow()
    Lake(spark, str(tmp_path / "out")).update([str(tmp_path / "capture")])
    found = read(spark, str(tmp_path / "out"), "changes").orderBy("position", "ordinal", "seq").toArrow()
    assert found.equals(wanted)
    table = LakeTable(locate(f"{tmp_path}/out/changes")).delta.to_pyarrow_table(columns=["position", "commit_date"])
    assert table.sort_by("position")["commit_date"].equals(wanted.sort_by("position")["commit_date"])


@pytest.mark.parametrize("tables", [[], ["t_*"]], ids=["all", "some"])
def test_transactions_are_those_that_spark_counts(spark: Any, tmp_path: Path, tables: list[str]) -> None:
    record(capture("A_dml", "p1") if tables else MANY, tmp_path / "capture", size=30_000)
    Lake(spark, str(tmp_path / "out"), tables=tables).update([str(tmp_path / "capture")])
    by_spark = transactions(changes(spark, str(tmp_path / "capture"), tables=tables))
    assert counts(read(spark, str(tmp_path / "out"), "transactions")) == counts(by_spark)


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
    Lake(spark, str(tmp_path / "out")).update([str(tmp_path / "one")])
    assert in_order(read(spark, str(tmp_path / "out"), "changes")) == wanted
    assert unnamed(tmp_path / "out")


def test_what_one_task_wrote_before_another_failed_is_in_no_batch(spark: Any, tmp_path: Path) -> None:
    good, bad, *others = record(MANY, tmp_path / "capture", size=20_000)
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-9])
    out = tmp_path / "out"
    lake = Lake(spark, str(out))
    with pytest.raises(InputError, match=bad.name):
        lake.update([str(tmp_path / "capture")])
    assert LakeTable(locate(str(out / "changes"))).schema is None
    assert lake.update([str(path) for path in (good, *others)]).batches == 1
    bad.write_bytes(whole)
    lake.update([str(tmp_path / "capture")])
    assert in_order(read(spark, str(out), "changes")) == in_order(changes(spark, str(tmp_path / "capture")))


def test_what_attempts_wrote_that_do_not_count_is_in_no_batch(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task runs twice, as where Spark gave one up that goes on unseen."""
    record(MANY, tmp_path / "capture", size=20_000)

    def twice(*arguments: Any) -> Any:
        collected(*arguments)
        return collected(*arguments)

    monkeypatch.setattr(update, "collected", twice)
    Lake(spark, str(tmp_path / "out")).update([str(tmp_path / "capture")])
    wanted = in_order(changes(spark, str(tmp_path / "capture")))
    assert in_order(read(spark, str(tmp_path / "out"), "changes")) == wanted
    assert unnamed(tmp_path / "out")


def test_a_task_that_fails_removes_what_it_wrote(tmp_path: Path) -> None:
    from pgtail.spark.lake.decoding import Decoding

    good, bad, *_ = record(MANY, tmp_path / "capture", size=20_000)
    bad.write_bytes(bad.read_bytes()[:-9])
    how = Decoding(locate(str(tmp_path / "out")), "snappy", known={})
    with pytest.raises(InputError, match=bad.name):
        how.decode([(str(good), None), (str(bad), None)])
    assert list(tmp_path.glob("out/**/*.parquet")) == []
    assert len(how.decode([(str(good), None)]).changes) == 1
    assert len(list(tmp_path.glob("out/changes/*.parquet"))) == 1
    with good.open("rb") as file:
        assert sum(batch.num_rows for batch in SegmentChanges(file, "")) == sum(
            pq.read_metadata(path).num_rows for path in tmp_path.glob("out/changes/*.parquet")
        )


def test_the_codec_is_the_sessions(spark: Any, tmp_path: Path) -> None:
    record(capture("Z_small", "p1"), tmp_path / "capture")
    name = "spark.sql.parquet.compression.codec"
    try:
        spark.conf.set(name, "zstd")
        Lake(spark, str(tmp_path / "out")).update([str(tmp_path / "capture")])
        spark.conf.set(name, "lzo")
        with pytest.raises(OptionError, match="lzo"):
            Lake(spark, str(tmp_path / "other"))
    finally:
        spark.conf.unset(name)
    [path] = (tmp_path / "out" / "changes").glob("*.parquet")
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_capture_without_a_change_makes_no_table(spark: Any, tmp_path: Path) -> None:
    dated(tmp_path / "capture", [])
    out = tmp_path / "out"
    assert Lake(spark, str(out)).update([str(tmp_path / "capture")]).batches == 0
    assert not (out / "changes").exists()
