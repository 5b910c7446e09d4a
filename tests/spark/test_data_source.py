"""The data source "pgtail": the same rows as changes(), in batches and streams; options and filters."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, In

import pgtail.spark
from pgtail.arrow.segments.limits import Limits
from pgtail.spark import changes
from pgtail.spark.selection import Selection
from tests.spark.test_changes import in_order, recorded, rows
from tests.support.spark.captures import segments

__all__ = ["recorded", "rows"]  # fixtures


@pytest.fixture(scope="module")
def source(spark: Any) -> Any:
    """Spark finds the source by its name."""
    return spark


def read(source: Any, **options: str) -> Any:
    return source.read.format("pgtail").options(**options)


def test_rows_are_those_of_changes(source: Any, recorded: Path, rows: list[dict[str, Any]]) -> None:
    found = read(source).load(str(recorded / "one"))
    assert found.schema == changes(source, str(recorded / "one")).schema
    assert in_order(found) == rows


def test_it_may_be_registered_as_before(source: Any, recorded: Path, rows: list[dict[str, Any]]) -> None:
    source.dataSource.register(pgtail.spark.DataSource)
    assert read(source).load(str(recorded / "one")).count() == len(rows)


def test_overlapping_captures_give_each_change_once(source: Any, recorded: Path, rows: list[dict[str, Any]]) -> None:
    assert in_order(read(source).load([str(path) for path in recorded.iterdir()])) == rows


def test_one_partition_for_each_segment(source: Any, recorded: Path) -> None:
    found = read(source).load(str(recorded / "one"))
    assert found.rdd.getNumPartitions() == len(segments(recorded / "one"))


def test_options(source: Any, recorded: Path, rows: list[dict[str, Any]]) -> None:
    tables = sorted({row["table"] for row in rows if row["table"]})
    found = read(source, tables=f"{tables[0]},nothing*", ops="insert, update", columns="table,op,xid").load(
        str(recorded / "one")
    )
    assert found.columns == ["table", "op", "xid"]
    wanted = [row for row in rows if row["table"] == tables[0] and row["op"] in ("insert", "update")]
    assert wanted
    assert sorted(map(tuple, found.collect())) == sorted((row["table"], row["op"], row["xid"]) for row in wanted)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ops": "insert,delet"}, "option ops: delet is none of insert, update"),
        ({"columns": "op,nosuch"}, "option columns: nosuch is none of op, schema"),
        ({"op": "insert"}, r"there is no option op; did you mean ops\?"),
        ({"TABEL": "pt"}, r"there is no option tabel; did you mean table\?"),
        ({"x": "y"}, "there is no option x; there are table, shape, .*, maxSegmentsPerTrigger and storage.NAME"),
        ({"tables": "pt,ptt"}, r"option tables: the captures have no table ptt; did you mean pt\?"),
        ({"tables": "public.pt,publik.pt"}, r"the captures have no table publik.pt; did you mean public.pt\?"),
        ({"path": ""}, "name a capture"),
        ({"path": "/nosuch"}, "there is no /nosuch"),
    ],
)
def test_invalid_options(source: Any, recorded: Path, options: dict[str, str], words: str) -> None:
    given = {"path": str(recorded / "one"), **options}
    with pytest.raises(Exception, match=words):
        read(source, **{name: text for name, text in given.items() if text}).load().collect()


def test_what_spark_passes_is_let_through(source: Any, recorded: Path, rows: list[dict[str, Any]]) -> None:
    """A table of Spark's catalog has properties, which are passed as options until it is read."""
    reserved = source._jvm.org.apache.spark.sql.connector.catalog.CatalogV2Util.TABLE_RESERVED_PROPERTIES()
    names = [reserved.apply(number) for number in range(reserved.size())]
    assert "provider" in names
    assert Selection.of({"path": "c", **dict.fromkeys(names, "x"), "option.tables": "x"}).captures == ("c",)
    source.sql(f"CREATE TABLE pgtail_table USING pgtail OPTIONS (path '{recorded / 'one'}') COMMENT 'x'")
    try:
        with pytest.raises(Exception, match="name a capture: .* for a table of its catalog Spark passes no options"):
            source.table("pgtail_table").collect()
    finally:
        source.sql("DROP TABLE pgtail_table")
    source.sql(f"CREATE TEMPORARY VIEW pgtail_view USING pgtail OPTIONS (path '{recorded / 'one'}', OPS 'delete')")
    assert in_order(source.table("pgtail_view")) == [row for row in rows if row["op"] == "delete"]


FILTERS: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
    (
        "op IN ('delete', 'update') AND table = 'pt'",
        lambda row: row["op"] in ("delete", "update") and row["table"] == "pt",
    ),
    ("table = 'no.such[table]'", lambda row: False),
    ("op = 'insert' OR table = 'pt'", lambda row: row["op"] == "insert" or row["table"] == "pt"),
    ("op = 'delete' AND op = 'insert'", lambda row: False),
    ("table IS NULL", lambda row: row["table"] is None),
    (
        "xid IN (1245, 1247) AND schema = 'public' AND position > 26700000",
        lambda row: row["xid"] in (1245, 1247) and row["schema"] == "public" and row["position"] > 26700000,
    ),
    (
        "commit_ts >= TIMESTAMP '2026-01-01 00:00:00+01:00' AND commit_date > DATE '2026-01-01'",
        lambda row: (row["commit_ts"] or "") > "2026-01-02",
    ),
]


def test_filters_give_the_same_with_pushdown_and_skip_rows(
    source: Any, recorded: Path, rows: list[dict[str, Any]]
) -> None:
    deletes = sum(row["op"] == "delete" for row in rows)
    assert 0 < deletes < len(rows)
    assert produced(source, recorded, "op = 'delete'") == len(rows)
    source.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert produced(source, recorded, "op = 'delete'") == deletes
        for condition, passes in FILTERS:
            found = read(source).load(str(recorded / "one")).where(condition)
            assert in_order(found) == list(filter(passes, rows)), condition
    finally:
        source.conf.unset("spark.sql.python.filterPushdown.enabled")


def produced(source: Any, recorded: Path, condition: str) -> int:
    """How many rows the source gives to Spark, as Spark's own metrics say."""
    plan = read(source).load(str(recorded / "one")).where(condition)._jdf.queryExecution().executedPlan()
    plan.executeCollect()
    rows: int = plan.collectLeaves().head().metrics().apply("numOutputRows").value()
    return rows


def test_which_filters_are_used() -> None:
    found = Selection(()).narrowed([EqualTo(("op",), "delete"), In(("table",), ("a.b", "c[1]"))])
    assert (found.limits.ops, found.tables) == (("delete",), ("*.a.b", "*.c[[]1]"))
    assert Selection(()).narrowed([EqualTo(("seq",), 7), In(("op",), (None,))]) == Selection(())
    given = Selection((), tables=("t*",), limits=Limits(ops=("insert",)))
    assert given.narrowed([EqualTo(("op",), "delete"), EqualTo(("table",), "x")]) == given


def test_a_stream_reads_each_segment_once(
    source: Any, recorded: Path, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    capture, out = tmp_path / "capture", tmp_path / "out"
    capture.mkdir()
    every = segments(recorded / "one")
    for some in (every[:3], every[3:5], every[5:]):
        for path in some:
            shutil.copy(path, capture)
        stream = source.readStream.format("pgtail").option("maxSegmentsPerTrigger", "2").load(str(capture))
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(out))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert query.exception() is None
    assert in_order(source.read.parquet(str(out))) == rows


def test_a_stream_reads_one_capture(source: Any, recorded: Path, tmp_path: Path) -> None:
    stream = source.readStream.format("pgtail").load(str(recorded / "*"))
    query = stream.writeStream.format("memory").queryName("none").trigger(availableNow=True)
    with pytest.raises(Exception, match="a stream reads one capture"):
        query.option("checkpointLocation", str(tmp_path)).start().awaitTermination(120)


def test_a_new_stream_checks_the_names_of_tables(source: Any, recorded: Path, tmp_path: Path) -> None:
    stream = source.readStream.format("pgtail").option("tables", "ptt").load(str(recorded / "one"))
    query = stream.writeStream.format("memory").queryName("no_table").trigger(availableNow=True)
    with pytest.raises(Exception, match=r"the captures have no table ptt; did you mean pt\?"):
        query.option("checkpointLocation", str(tmp_path)).start().awaitTermination(120)
