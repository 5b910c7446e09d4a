"""Typed rows, of changes and of state, against the values that a real server has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pgtail.arrow.typed.arrays import texts_by_name
from pgtail.arrow.typed.arrow_types import RESCUED, Declared
from pgtail.arrow.typed.casts import typed
from pgtail.arrow.typed.columns import TRUE_NAME, columns_of
from pgtail.arrow.typed.versions import Version, VersionColumn
from pgtail.spark import read
from pgtail.spark.lake.decoding import folder_name
from pgtail.spark.lake.delta import LakeTable
from pgtail.spark.lake.update import Lake
from pgtail.storage import locate
from tests.support.corpus import capture as corpus
from tests.support.servers import Database
from tests.support.spark import model
from tests.support.spark.captures import record
from tests.support.spark.world import World, apply, stored


def test_values_are_the_servers(world: World, whole: Path) -> None:
    seen: set[str] = set()
    for name, expected in world.typed.items():
        table = stored(whole, "state")[name]
        names = ["a", "b", "n", "total", "at", "body", "tags", "blob"]
        rows = [tuple(row[name] for name in names) for row in table.to_pylist()]
        assert sorted(rows, key=repr) == sorted(map(of_arrow, expected), key=repr)
        seen = seen.union(*(dict(row or ()) for row in table["_rescued"].to_pylist()))
        assert table.schema.field("total").type == pa.decimal128(10, 2)
    assert seen == {"total", "at", "tags"}


def of_arrow(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of psycopg's with times as Arrow gives them."""
    time = pa.timestamp("us", "UTC")
    return tuple(pa.scalar(one, time).as_py() if hasattr(one, "tzinfo") else one for one in row)


def test_typed_changes_of_a_table(spark: Any, world: World, whole: Path) -> None:
    rows = [row for row in model.changes(world.capture) if row["table"] == "t2" and row["op"] in model.OPS]
    found = read(spark, str(whole), "tables/public.t2").orderBy("_position", "_seq").toArrow().to_pylist()
    rows.sort(key=lambda row: (row["position"], row["seq"]))
    assert [(row["_op"], row["_position"], row["_seq"]) for row in found] == [
        (row["op"], row["position"], row["seq"]) for row in rows
    ]
    for one, row in zip(found, rows, strict=True):
        values = (row["old"] if row["op"] == "delete" else row["new"]) or {}
        assert one["a"] == (int(values["a"]) if values.get("a") else None)
        assert one["body"] == values.get("body")
        assert (one["_old"] is None) == (row["old"] is None)
        lost = dict(one["_rescued"] or ())
        assert lost == {name: values[name] for name in lost}
        assert one["_relation"] == row["relation"]
    retyped = read(spark, str(whole), "tables/public.alt0_types")
    assert dict(retyped.dtypes)["v"] == "decimal(21,2)"


def test_tables_made_in_batches_are_those_made_at_once(spark: Any, world: World, whole: Path, tmp_path: Path) -> None:
    """Types that become wider, columns that are added, and tables that were not wanted at first."""
    lake = Lake(spark, str(tmp_path / "out"))
    segments = world.segments
    lake.update(segments[:2])
    assert stored(tmp_path / "out", "tables") == {}
    for start in range(2, len(segments), 2):
        lake.update(segments[start : start + 2], typed=True)
    assert LakeTable(locate(f"{tmp_path}/out/tables/public.alt0_types")).version > 1
    found, expected = stored(tmp_path / "out", "tables"), stored(whole, "tables")
    assert found.keys() == expected.keys()
    for name, table in expected.items():
        order = [("_position", "ascending"), ("_seq", "ascending")]
        one, other = found[name].sort_by(order), table.sort_by(order)
        assert set(one.column_names) == set(other.column_names), name
        assert one.select(other.column_names).to_pylist() == other.to_pylist(), name


ODD = (
    'CREATE TABLE odd (id int PRIMARY KEY, "ID" text, _rescued text, _op int, "a b,c.d" int, "é`{}" int)',
    "CREATE TABLE empty ()",
    'CREATE SCHEMA "Sales"',
    'CREATE TABLE "Sales"."Größe" (id int PRIMARY KEY)',
    "INSERT INTO odd VALUES (7, 'x', 'y', 3, 4, 5)",
    "INSERT INTO empty DEFAULT VALUES",
    'INSERT INTO "Sales"."Größe" VALUES (1)',
)


def test_names_that_are_equal_but_for_case_and_odd_ones(spark: Any, newest_database: Database, tmp_path: Path) -> None:
    model.begin(newest_database)
    newest_database.execute(*ODD)
    model.record(newest_database, tmp_path / "capture")
    out = tmp_path / "out"
    apply(spark, out, [str(tmp_path / "capture")])
    for kind in ("tables", "state"):
        table = LakeTable(locate(f"{out}/{kind}/public.odd"))
        assert table.schema is not None
        [row] = table.delta.to_pyarrow_table().to_pylist()
        names = {f.metadata[TRUE_NAME.encode()].decode(): f.name for f in table.schema if f.metadata}
        assert names == {
            "id": "id",
            "ID": "ID~2",
            "_rescued": "_rescued~2",
            "_op": "_op~2",
            "a b,c.d": "a b,c.d",
            "é`{}": "é`{}",
        }
        assert [row[names[name]] for name in ("id", "ID", "_rescued", "_op", "a b,c.d", "é`{}")] == [
            *(7, "x", "y", 3, 4, 5)
        ]
        assert pl.scan_delta(f"{out}/{kind}/public.odd").select("ID~2").collect().rows() == [("x",)]
        [shown] = read(spark, str(out), f"{kind}/public.odd").select("`ID~2`", "`a b,c.d`").collect()
        assert tuple(shown) == ("x", 4)
        assert read(spark, str(out), f"{kind}/public.empty").count() == 1
        assert read(spark, str(out), f"{kind}/Sales.Größe").count() == 1
    assert (out / "state" / "~53ales.~47r~c3~b6~c3~9fe").is_dir()


def test_a_name_that_is_used_again_gets_another_folder(spark: Any, newest_database: Database, tmp_path: Path) -> None:
    """Tables swapped by renaming, dropped and made again: each is read by its name of now."""
    model.begin(newest_database)
    out = tmp_path / "out"
    steps = [
        ("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY, x text)"),
        ("INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (2, 'b')"),
        ("ALTER TABLE a RENAME TO c", "ALTER TABLE b RENAME TO a", "ALTER TABLE c RENAME TO b"),
        ("INSERT INTO a VALUES (3, 'a')", "INSERT INTO b VALUES (4)"),
        ("DROP TABLE b", "CREATE TABLE b (id int PRIMARY KEY)", "INSERT INTO b VALUES (5)"),
    ]
    for statements in steps:
        newest_database.execute(*statements)
        model.record(newest_database, tmp_path / "capture")
        apply(spark, out, [str(tmp_path / "capture")])
    assert [tuple(row)[:2] for row in read(spark, str(out), "state/public.a").orderBy("id").collect()] == [
        (2, "b"),
        (3, "a"),
    ]
    assert [row.id for row in read(spark, str(out), "state/public.b").collect()] == [5]
    assert len(list((out / "state").iterdir())) == 3
    assert read(spark, str(out), "tables/public.b").count() == 3


@pytest.mark.parametrize(
    ("schema", "name", "expected"),
    [
        ("public", "orders", "public.orders"),
        ("public", "Orders", "public.~4frders"),
        ("a.b", "c", "a~2eb.c"),
        ("a", "b.c", "a.b~2ec"),
        ("_x", "événement/../", "~5fx.~c3~a9v~c3~a9nement~2f~2e~2e~2f"),
        ("p", "50~", "p.50~7e"),
    ],
)
def test_a_folder_of_a_table_is_safe_and_its_own(schema: str, name: str, expected: str) -> None:
    assert folder_name(schema, name) == expected


def test_long_names_stay_apart() -> None:
    one, other = (folder_name("é" * 31, "漢" * 20 + end) for end in ("a", "b"))
    assert one != other
    assert len(one) <= 200


def test_the_merge_of_the_manual_gives_the_state(spark: Any, whole: Path) -> None:
    page = (Path(__file__).parents[2] / "man/parts/pgtail-spark-tables.1.md").read_text(encoding="utf-8")
    query = page.partition("MERGE INTO lake.orders AS t USING (")[2].partition("\n) AS s ON")[0]
    read(spark, str(whole), "tables/public.orders").createOrReplaceTempView("orders_changes")
    merged = spark.sql(query).where("op <> 'delete'").selectExpr("id", "total", "sent.note")
    expected = read(spark, str(whole), "state/public.orders").select("id", "total", "note")
    assert Counter(merged.collect()) == Counter(expected.collect())
    assert merged.count() == 4


def test_every_type_goes_through(spark: Any, tmp_path: Path) -> None:
    """110 types: the rows of the tables, and of the state, are those of the pure function."""
    record(corpus("A_types", "p1"), tmp_path / "capture")
    out = tmp_path / "out"
    apply(spark, out, [str(tmp_path / "capture")])
    rows = model.changes(tmp_path / "capture")
    kinds: set[str] = set()
    for version in model.relations(tmp_path / "capture").values():
        name = f"{version.schema}.{version.table}"
        own = [row for row in rows if row["table"] == version.table and row["op"] in ("insert", "update")]
        got = LakeTable(locate(f"{out}/tables/{folder_name(version.schema, version.table)}")).delta.to_pyarrow_table()
        got = got.filter(pc.is_in(got["_op"], pa.array(["insert", "update"])))
        got = got.sort_by([("_position", "ascending"), ("_seq", "ascending")])
        columns = columns_of([version])
        maps = pa.array([list(row["new"].items()) for row in own], RESCUED)
        arrays, rescued = typed(texts_by_name(maps, [column.name for column in columns]), columns)
        for column, array in zip(columns, arrays, strict=True):
            there = got.column(column.stored)
            assert repr(there.to_pylist()) == repr(array.to_pylist()), (name, column)
            kinds.add(str(column.kind))
        assert got.column("_rescued").to_pylist() == rescued.to_pylist()
    assert {"bool", "int16", "int32", "int64", "float", "double", "date32[day]", "timestamp[us]", "binary"} <= kinds


def test_columns_of_versions_have_their_names_for_good() -> None:
    def version(*names: str) -> Version:
        kind = Declared(25, -1, "text")
        return Version("f", "public", "t", "default", (), tuple(VersionColumn(name, kind) for name in names))

    found = columns_of([version("a", "A"), version("a", "_position", "á", "Á")])
    assert [(one.name, one.stored) for one in found] == [
        ("a", "a"),
        ("A", "A~2"),
        ("_position", "_position~2"),
        ("á", "á"),
        ("Á", "Á~2"),
    ]
