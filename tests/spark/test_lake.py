"""The tables of a folder as Delta tables: exactly once, read by other programs, and cleaned up."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from pgtail.errors import InputError, OptionError, OutputError
from pgtail.spark import read
from pgtail.spark.lake import delta
from pgtail.spark.lake.batches import Batches
from pgtail.spark.lake.compact import vacuum
from pgtail.spark.lake.delta import Commit, LakeTable, holds
from pgtail.spark.lake.parquet import TableFolder, write_file
from pgtail.spark.lake.update import Lake
from pgtail.spark.state.settings import Settings
from pgtail.spark.state.update import update_state
from pgtail.storage import locate
from tests.spark.test_changes import in_order
from tests.spark.test_tasks import MANY
from tests.support.run import here
from tests.support.servers import Database
from tests.support.spark import model
from tests.support.spark.captures import record, rows_of
from tests.support.spark.world import World, same_as_model, same_lives, stored


class Crash(Exception):
    pass


def crashing(at: int) -> Callable[..., Any]:
    """Table.commit that breaks off before (or, for odd numbers, behind) its commit number at // 2."""
    commit, count = LakeTable.commit, iter(range(1000))

    def crash(*arguments: Any) -> None:
        number = next(count)
        if number == at // 2 and at % 2 == 0:
            raise Crash
        commit(*arguments)
        if number == at // 2:
            raise Crash

    return crash


def test_a_crash_at_any_commit_loses_and_doubles_nothing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and behind the plan's commit, and before and behind that of each table."""
    paths = record(MANY, tmp_path / "capture", size=40_000)
    out, rows = str(tmp_path / "out"), rows_of(paths)
    Lake(spark, out).update([str(paths[0])], typed=True)
    crashes = 0
    for number, path in enumerate(paths[1:]):
        with monkeypatch.context() as patch:
            patch.setattr(LakeTable, "commit", crashing(number))
            try:
                Lake(spark, out).update([str(path)], typed=True)
            except Crash:
                crashes += 1
        there = in_order(read(spark, out, "changes"))
        assert there in (rows_of(paths[: number + 1]), rows_of(paths[: number + 2])), "a reader sees whole batches"
        Lake(spark, out).update([str(path)], typed=True)
        assert in_order(read(spark, out, "changes")) == rows_of(paths[: number + 2])
    assert crashes > 3
    assert in_order(read(spark, out, "changes")) == rows
    typed = sum(table.num_rows for table in stored(Path(out), "tables").values())
    assert typed == sum(row["relation"] is not None for row in rows)


def test_a_state_that_was_broken_off_is_finished_first(
    spark: Any, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    tables = ["t0", "t2", "t4"]
    lake = Lake(spark, str(out), tables=tables)
    lake.update([str(world.capture)], typed=True)
    for at, history in ((0, False), (1, False), (2, True), (3, True)):
        lake = Lake(spark, str(out), tables=tables)
        with monkeypatch.context() as patch:
            patch.setattr(LakeTable, "commit", crashing(at))
            with contextlib.suppress(Crash):
                update_state(lake, Settings(history=history))
    for history in (False, True):
        lake = Lake(spark, str(out), tables=tables)
        applied = update_state(lake, Settings(history=history))
        assert applied.changes == 0, "what the plan says was finished, and not done again"
    only = set(tables)
    same_as_model({n: f for n, f in world.folds().items() if n in only}, stored(out, "state"))
    same_lives({n: f for n, f in world.folds(history=True).items() if n in only}, stored(out, "history"))


def test_a_commit_that_is_given_again_changes_nothing(tmp_path: Path) -> None:
    schema, place = pa.schema([("a", pa.int32())]), locate(str(tmp_path / "t"))
    one = Commit("t", schema, [write_file(TableFolder(place, "snappy"), pa.table({"a": [1]}, schema))])
    for _ in range(3):
        LakeTable(place).commit(one, 7)
    LakeTable(place).commit(one, 6)
    assert (LakeTable(place).version, LakeTable(place).batch) == (0, 7)
    late = LakeTable(place)
    LakeTable(place).commit(Commit("t", schema), 8)
    with pytest.raises(OutputError, match="another process writes to"):
        late.commit(Commit("t", schema), 8)


def test_columns_are_added_and_widened_by_commits(tmp_path: Path) -> None:
    place = locate(str(tmp_path / "t"))
    schemas = [
        pa.schema([("a", pa.int32()), ("_old", pa.struct([("a", pa.int32())]))]),
        pa.schema(
            [("a", pa.int32()), ("t", pa.timestamp("us")), ("_old", pa.struct([("a", pa.int32()), ("b", pa.string())]))]
        ),
        pa.schema([("a", pa.int64())]),
    ]
    for number, schema in enumerate(schemas, 1):
        file = write_file(TableFolder(place, "snappy"), pa.Table.from_pylist([{"a": number}], schema))
        known = LakeTable(place).schema
        wider = known is not None and not holds(schema, known)
        LakeTable(place).commit(Commit("t", schema, [file], overwrite=wider), number)
        assert holds(schema, LakeTable(place).schema or schema)
        rows = pl.scan_delta(str(place)).collect()
        assert sorted(rows["a"].to_list()) == ([3] if number == 3 else list(range(1, number + 1)))


def test_a_table_of_many_commits_opens_from_a_checkpoint(tmp_path: Path) -> None:
    schema, place = pa.schema([("a", pa.decimal128(20, 4)), ("_position", pa.int64())]), locate(str(tmp_path / "t"))
    value = Decimal("1234567890123456.7891")
    for number in range(1, 51):
        rows = pa.table({"a": pa.array([value + number], schema.field("a").type), "_position": [number]}, schema)
        LakeTable(place).commit(Commit("t", schema, [write_file(TableFolder(place, "snappy"), rows)]), number)
    assert len(list((tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet"))) >= 2
    assert LakeTable(place).batch == 50
    assert sorted(file.bounds("_position").least for file in LakeTable(place).files()) == list(range(1, 51))
    found = pl.scan_delta(str(place)).filter(pl.col("a") == value + 7).collect()
    assert found["_position"].to_list() == [7]


def test_files_of_no_use_are_listed_then_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, schema = tmp_path / "out", pa.schema([("a", pa.int32())])
    place = locate(str(out / "changes"))

    def file() -> Any:
        return write_file(TableFolder(place, "snappy"), pa.table({"a": [1]}, schema))

    first, orphan = file(), file()
    batches = Batches(locate(str(out)))
    plan = batches.plan
    plan.batch = 1
    batches.commit(plan, [Commit("changes", schema, [first], retain=0.0)])
    plan.batch = 2
    monkeypatch.setattr(delta, "WEEK", 0.0)  # as if it were not yet time to clean up
    batches.commit(plan, [Commit("changes", schema, [file()], [(first.path, first.size)], retain=0.0)])
    assert (out / "changes" / first.path).exists()
    found = vacuum(locate(str(out)), delete=False)
    assert {f"changes/{first.path}", f"changes/{orphan.path}"} <= set(found)
    said = here("spark", "vacuum", "--delete", "--dry-run", str(out)).stderr
    assert said.endswith(f"pgtail: {len(found)} files would be removed\npgtail: nothing was done (--dry-run)\n")
    assert (out / "changes" / orphan.path).exists()
    assert vacuum(locate(str(out)), delete=True) == found
    assert {path.name for path in (out / "changes").glob("*.parquet")} == {f.path for f in LakeTable(place).files()}
    with pytest.raises(InputError, match="has nothing"):
        vacuum(locate(str(tmp_path / "nothing")), delete=False)


def test_replaced_files_are_kept_for_a_time_and_removed_by_the_next_batch(
    spark: Any, world: World, tmp_path: Path
) -> None:
    out, at = tmp_path / "out", [0]

    def bring(retain: float, segments: int) -> None:
        lake = Lake(spark, str(out), tables=["t0"])
        lake.update(world.segments[: at[0] + segments], typed=True)
        at[0] += segments
        update_state(lake, Settings(retain=retain))

    bring(3600, 3)
    place = out / "state" / "public.t0"
    older = LakeTable(locate(str(place)))
    before = older.delta.to_pyarrow_table()
    bring(3600, 3)
    assert older.delta.to_pyarrow_table().equals(before), "who opened it earlier still has its files"
    assert DeltaTable(str(place), version=older.version).to_pyarrow_table().equals(before)
    settings = LakeTable(locate(str(place))).delta.metadata().configuration
    assert "3600 seconds" in settings["delta.deletedFileRetentionDuration"]
    bring(0, 3)
    bring(0, len(world.segments))
    assert len(list(place.glob("*.parquet"))) <= 2
    same_as_model({"t0": world.folds()["t0"]}, stored(out, "state"))


VALUES: dict[str, Any] = {
    "i": 7,
    "big": -(1 << 62),
    "n": Decimal("1234567890123456.7891"),
    "d": datetime.date(2020, 2, 29),
    "t": datetime.datetime(2020, 2, 29, 10, 0, 0, 123456),  # noqa: DTZ001 -- it has none
    "z": datetime.datetime(2020, 2, 29, 10, 0, 0, 123456, tzinfo=datetime.UTC),
    "s": 'é"\\x',
    "f": 1.5,
    "b": True,
}
COLUMNS = "i int PRIMARY KEY, big int8, n numeric(20,4), d date, t timestamp, z timestamptz, s text, f float8, b bool"


@pytest.fixture(scope="module")
def warehouse(spark: Any, newest_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of all types that have bounds, in three files, and its state."""
    from tests.support.servers import fresh_database

    folder = tmp_path_factory.mktemp("readers")
    with fresh_database(newest_server) as database:
        make(database, folder, spark)
    return folder / "warehouse"


def make(database: Database, folder: Path, spark: Any) -> None:
    database.execute(f"CREATE TABLE v ({COLUMNS})")
    model.begin(database)
    time = "'2020-02-29 10:00:00.123456"
    rows = [
        "(1, 1, 0.1, '1999-01-01', '1999-01-01', '1999-01-01Z', 'a', 0, false)",
        f"(7, -4611686018427387904, 1234567890123456.7891, '2020-02-29', {time}', {time}Z', E'é\"\\\\x', 1.5, true)",
        "(9, 9, 'NaN', 'infinity', '12345-01-01', '0044-03-15 BC', repeat('z', 100), 'NaN', NULL)",
    ]
    for row in rows:
        database.execute(f"INSERT INTO v VALUES {row}")
        model.record(database, folder / "capture")
        lake = Lake(spark, str(folder / "warehouse"))
        lake.update([str(folder / "capture")], typed=True)
    update_state(lake, Settings())
    update_state(lake, Settings(history=True))


@pytest.mark.parametrize("column", VALUES)
@pytest.mark.parametrize("table", ["tables", "state", "history"])
def test_a_filter_on_each_type_finds_its_row_in_each_reader(
    spark: Any, warehouse: Path, table: str, column: str
) -> None:
    place, value = f"{warehouse}/{table}/public.v", VALUES[column]
    assert len(LakeTable(locate(f"{warehouse}/tables/public.v")).files()) == 3
    assert pl.scan_delta(place).filter(pl.col(column) == value).collect()["i"].to_list() == [7]
    dataset = DeltaTable(place).to_pyarrow_dataset()
    kind = dataset.schema.field(column).type
    assert dataset.to_table(filter=ds.field(column) == pa.scalar(value, kind))["i"].to_pylist() == [7]
    frame = DeltaTable(place).to_pandas()
    assert sorted(frame["i"].tolist()) == [1, 7, 9]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("v", dataset)
        assert connection.execute(f"SELECT i FROM v WHERE {column} = ?", [value]).fetchall() == [(7,)]
    found = read(spark, str(warehouse), f"{table}/public.v")
    assert [row.i for row in found.where(found[column] == value).collect()] == [7]


@pytest.mark.parametrize("table", ["tables", "state", "history"])
def test_nan_and_zero_are_found(spark: Any, warehouse: Path, table: str) -> None:
    """NaN is the greatest float for both readers, and one zero equals the other."""
    place, f = f"{warehouse}/{table}/public.v", pl.col("f")
    found = read(spark, str(warehouse), f"{table}/public.v")
    for where, expression, expected in (
        ("f > 2", f > 2, [9]),
        ("f = double('NaN')", f.is_nan(), [9]),
        ("f = 0", f == 0, [1]),
        ("f >= 0", f >= 0, [1, 7, 9]),
    ):
        assert sorted(row.i for row in found.where(where).collect()) == expected
        assert sorted(pl.scan_delta(place).filter(expression).collect()["i"].to_list()) == expected


@pytest.fixture(scope="module")
def delta_scan() -> Iterator[Any]:
    """A connection of DuckDB with its extension for Delta tables, as a package of Python has it."""
    package = pytest.importorskip("duckdb_extension_delta", reason="duckdb-extension-delta is not installed")
    [extension] = Path(package.__file__).parent.rglob("delta.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.mark.parametrize("table", ["tables", "state", "history"])
def test_delta_scan_filters_each_type(delta_scan: Any, warehouse: Path, table: str) -> None:
    place = f"{warehouse}/{table}/public.v"
    cases = [(f"{column} = ?", value, [7]) for column, value in VALUES.items()]
    floats = [("f > ?", 2.0, [9]), ("f = ?", float("nan"), [9]), ("f = ?", 0.0, [1]), ("f >= ?", -0.0, [1, 7, 9])]
    for where, value, expected in cases + floats:
        query = f"SELECT i FROM delta_scan('{place}') WHERE {where} ORDER BY i"
        assert [i for (i,) in delta_scan.execute(query, [value]).fetchall()] == expected, (where, value)


def test_delta_scan_reads_the_tables(delta_scan: Any, whole: Path, warehouse: Path) -> None:
    """A third of a world of tables that change, and each version of one folder."""
    places = [log.parent for folder in (whole, warehouse) for log in sorted(folder.rglob("_delta_log"))]
    for place in places[::3]:
        newest = DeltaTable(str(place)).version()
        for version in range(newest + 1) if warehouse in place.parents else [newest]:
            expected = DeltaTable(str(place), version=version).to_pyarrow_table()
            query = f"SELECT * FROM delta_scan('{place}', version={version})"
            found = delta_scan.execute(query).to_arrow_table()
            assert found.column_names == expected.column_names
            assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist())), query
    assert len(places) > 60


def test_the_queries_of_the_manual_run_in_duckdb(
    delta_scan: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "man/parts/pgtail-spark.1.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```\nLOAD delta;\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(warehouse.parent)
    now, before = [delta_scan.execute(text).fetchall() for text in block.replace("orders", "v").split(";")[:2]]
    assert (now, len(before)) == ([(3,)], 1)


def test_earlier_versions_are_read_in_each_reader(spark: Any, warehouse: Path) -> None:
    place = f"{warehouse}/tables/public.v"
    for version, expected in ((0, [1]), (1, [1, 7]), (2, [1, 7, 9])):
        assert sorted(pl.scan_delta(place, version=version).collect()["i"].to_list()) == expected
        assert sorted(DeltaTable(place, version=version).to_pandas()["i"].tolist()) == expected
        found = read(spark, str(warehouse), "tables/public.v", version)
        assert sorted(row.i for row in found.collect()) == expected


def test_what_is_not_there_is_named_with_what_is(spark: Any, warehouse: Path) -> None:
    with pytest.raises(InputError, match=r"no table public.w in state; there are public.v"):
        read(spark, str(warehouse), "state/public.w")
    with pytest.raises(OptionError, match="ftp:// is no storage"):
        read(spark, "ftp://host/out", "changes")
