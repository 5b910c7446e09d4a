"""Typed rows, of changes and of state, against the values that a real server has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pgtail.errors import OptionError
from pgtail.spark import state, table
from pgtail.spark.datasets.tables import TypedTables, folder_name
from pgtail.spark.datasets.update import OF_FORMAT, Datasets
from pgtail.spark.folding.versions import Column, Version
from pgtail.spark.typed.arrow_types import Declared
from pgtail.spark.typed.casts import RESCUED, typed
from pgtail.spark.typed.dataframes import as_variant, columns_of, typed_frame
from tests.support.corpus import capture as corpus
from tests.support.servers import Database
from tests.support.spark import model
from tests.support.spark.captures import record
from tests.support.spark.world import World

TEXTS = "values map<string,string>, undecoded array<string>, n int"


def test_values_are_the_servers(spark: Any, world: World, whole: Path) -> None:
    seen: set[str] = set()
    for name, expected in world.typed.items():
        typed = state(spark, str(whole), f"public.{name}")
        names = ["a", "b", "n", "total", "at", "body", "tags", "blob"]
        rows = typed.select(*names).toArrow().to_pylist()
        assert sorted((tuple(row[name] for name in names) for row in rows), key=repr) == sorted(expected, key=repr)
        rescued = [row["_rescued"] for row in typed.collect()]
        seen = seen.union(*(row or {} for row in rescued))
    assert seen == {"total", "at", "tags"}
    assert dict(typed.dtypes)["total"] == "decimal(10,2)"


def test_typed_changes_of_a_table(spark: Any, world: World) -> None:
    rows = [row for row in model.changes(world.capture) if row["table"] == "t2" and row["op"] in model.OPS]
    typed = table(spark, str(world.out), "public.t2").orderBy("_position", "_seq").toArrow().to_pylist()
    assert [(row["_op"], row["_position"], row["_seq"]) for row in typed] == [
        (row["op"], row["position"], row["seq"]) for row in sorted(rows, key=lambda row: (row["position"], row["seq"]))
    ]
    for one, row in zip(typed, sorted(rows, key=lambda row: (row["position"], row["seq"])), strict=True):
        values = (row["old"] if row["op"] == "delete" else row["new"]) or {}
        assert one["a"] == (int(values["a"]) if values.get("a") else None)
        assert one["body"] == values.get("body")
        assert (one["_old"] is None) == (row["old"] is None)
        lost = dict(one["_rescued"] or ())
        assert lost == {name: values[name] for name in lost}
    retyped = table(spark, str(world.out), "public.alt0_types")
    assert dict(retyped.dtypes)["v"] == "decimal(21,2)"


def test_folders_of_typed_tables(spark: Any, world: World, tmp_path: Path) -> None:
    out = tmp_path / "out"
    segments = [str(path) for path in model.segments(world.capture)]
    Datasets(spark, str(out), tables=["t1", "alt0_types"]).update(segments[:8])
    assert TypedTables(spark, str(out)).update() == 2
    assert TypedTables(spark, str(out)).update() == 0
    Datasets(spark, str(out), tables=["t1", "alt0_types"]).update(segments)
    assert TypedTables(spark, str(out)).update() == 2
    for name in ("t1", "alt0_types"):
        there = spark.read.parquet(str(out / "tables" / folder_name("public", name))).drop("batch")
        expected = table(spark, str(out), f"public.{name}")
        assert there.dtypes == expected.dtypes
        assert Counter(map(repr, there.collect())) == Counter(map(repr, expected.collect()))


ODD = (
    'CREATE TABLE odd (batch int PRIMARY KEY, "BATCH" text, _rescued text, at timestamptz, local timestamp, day date)',
    "CREATE TABLE empty ()",
    "INSERT INTO odd VALUES (7, 'x', 'y', '2020-01-01 00:00:00.123456Z', '2020-01-01 00:00:00.654321', '1582-10-10')",
    "INSERT INTO odd VALUES (8, NULL, NULL, '1969-12-31 23:59:59.999999Z', '1582-10-10 12:00:00.000001', NULL)",
    "INSERT INTO empty DEFAULT VALUES",
)


@pytest.mark.parametrize("stored_as", ["json", "orc"])
def test_folders_hold_what_spark_would_change_or_hide(
    spark: Any, newest_database: Database, tmp_path: Path, stored_as: str
) -> None:
    """Microseconds, moments that a format has no place for, a column called as the level of folders, no column."""
    model.begin(newest_database)
    newest_database.execute(*ODD)
    model.record(newest_database, tmp_path / "capture")
    out = str(tmp_path / "out")
    Datasets(spark, out, stored_as=stored_as).update([str(tmp_path / "capture")])
    assert TypedTables(spark, out).update() == 2
    typed = {name: table(spark, out, f"public.{name}") for name in ("odd", "empty")}
    for name, expected in typed.items():
        reader = spark.read.format(stored_as).options(**OF_FORMAT[stored_as]).schema(expected.schema)
        there = reader.load(str(tmp_path / "out" / "tables" / f"public.{name}"))
        rows = there.select(expected.columns).toArrow().to_pylist()
        assert len(rows) == expected.count() == {"odd": 2, "empty": 1}[name]
        for row, own in zip(rows, expected.toArrow().to_pylist(), strict=True):
            lost = dict(row["__rescued"] or ()) if name == "odd" else {}
            assert set(lost) <= ({"at", "day"} if stored_as == "orc" else set())
            assert {k: v for k, v in row.items() if k not in lost and "rescued" not in k} == {
                k: v for k, v in own.items() if k not in lost and "rescued" not in k
            }
    assert list((tmp_path / "out" / "tables" / "public.odd").glob("_batch=*"))
    if stored_as == "orc":
        newest_database.execute('CREATE TABLE tick (id int, "a`b" text)', "INSERT INTO tick VALUES (1, 'x')")
        model.record(newest_database, tmp_path / "capture")
        Datasets(spark, out, stored_as=stored_as).update([str(tmp_path / "capture")])
        with pytest.raises(OptionError, match="public.tick has a column a`b, and ORC keeps no name with a backtick"):
            TypedTables(spark, out).update()


@pytest.mark.parametrize(
    ("schema", "name", "expected"),
    [
        ("public", "orders", "public.orders"),
        ("public", "Orders", "public.%4Frders"),
        ("a.b", "c", "a%2Eb.c"),
        ("a", "b.c", "a.b%2Ec"),
        ("_x", "événement/../", "%5Fx.%C3%A9v%C3%A9nement%2F%2E%2E%2F"),
        ("p", "50%", "p.50%25"),
    ],
)
def test_a_folder_of_a_table_is_safe_and_its_own(schema: str, name: str, expected: str) -> None:
    assert folder_name(schema, name) == expected


def test_long_names_stay_apart() -> None:
    one, other = (folder_name("é" * 31, "漢" * 20 + end) for end in ("a", "b"))
    assert one != other
    assert len(one) <= 200


def test_the_merge_of_the_manual_gives_the_state(spark: Any, world: World, whole: Path) -> None:
    page = (Path(__file__).parents[2] / "man/parts/pgtail-spark-tables.1.md").read_text(encoding="utf-8")
    query = page.partition("MERGE INTO lake.orders AS t USING (")[2].partition("\n) AS s ON")[0]
    table(spark, str(world.out), "public.orders").createOrReplaceTempView("orders_changes")
    merged = spark.sql(query).where("op <> 'delete'").selectExpr("id", "total", "sent.note")
    expected = state(spark, str(whole), "public.orders").select("id", "total", "note")
    assert Counter(merged.collect()) == Counter(expected.collect())
    assert merged.count() == 4


def test_every_type_goes_through_spark(spark: Any, tmp_path: Path) -> None:
    """110 types: Spark's rows are those of the pure function, and survive Parquet."""
    record(corpus("A_types", "p1"), tmp_path / "capture")
    Datasets(spark, str(tmp_path / "out")).update([str(tmp_path / "capture")])
    rows = model.changes(tmp_path / "capture")
    versions = list(model.relations(tmp_path / "capture").values())
    kinds: set[str] = set()
    TypedTables(spark, str(tmp_path / "out"), variant=False).update()
    for version in versions:
        name = f"{version.schema}.{version.table}"
        own = [row for row in rows if row["table"] == version.table and row["op"] in ("insert", "update")]
        frame = spark.read.parquet(str(tmp_path / "out" / "tables" / folder_name(version.schema, version.table)))
        got = frame.where("_op IN ('insert', 'update')").orderBy("_position", "_seq").toArrow()
        columns = columns_of([version])
        arrays, rescued = typed(pa.array([list(row["new"].items()) for row in own], RESCUED), columns)
        for column, array in zip(columns, arrays, strict=True):
            assert repr(got.column(column.name).to_pylist()) == repr(array.to_pylist()), (name, column)
            kinds.add(str(column.kind))
        assert got.column("_rescued").to_pylist() == rescued.to_pylist()
    assert {"bool", "int16", "int32", "int64", "float", "double", "date32[day]", "timestamp[us]", "binary"} <= kinds


def test_json_as_variant(spark: Any) -> None:
    texts = ['{"a": [1, 1.10, null]}', "null", None, "{", "1e400"]
    columns = (Column("j", Declared(3802, -1, "jsonb")), Column("_rescued", Declared(25, -1, "text")))
    jsonb = Version("f", 1, "public", "t", "default", (), columns)
    frame = spark.createDataFrame([({"j": text}, [], n) for n, text in enumerate(texts)], TEXTS)
    shown = as_variant(typed_frame(frame, columns_of([jsonb]), ["n"]), [jsonb]).orderBy("_n")
    assert dict(shown.dtypes)["j"] == "variant"
    rows = shown.selectExpr("to_json(j) AS j", "__rescued").collect()
    assert [row["j"] for row in rows[:3]] == ['{"a":[1,1.1,null]}', "null", None]
    assert [row["__rescued"] for row in rows[:4]] == [None, None, None, {"j": "{"}]
