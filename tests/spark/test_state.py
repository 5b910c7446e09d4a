"""`state`, `history` and `tables` on Spark: equal to the plain model, and to a real server's tables, in every way."""

from __future__ import annotations

import datetime
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pgtail.errors import InputError, OptionError
from pgtail.server.embedded import EmbeddedServer
from pgtail.spark import history, state, stored, table
from pgtail.spark.settings import Settings
from tests.servers import Database, fresh_database
from tests.spark import histories

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
model = pytest.importorskip("tests.spark.model")
applying = pytest.importorskip("pgtail.spark.apply")
manifests = pytest.importorskip("pgtail.spark.manifest")
folder = pytest.importorskip("pgtail.spark.statefolder")

SOME = ("t0", "t2", "t4")
TYPED = "SELECT a, b, n, NULLIF(total, 'NaN') AS total, CASE WHEN isfinite(at) AND at > '0001-01-01' THEN at END AS at"
TYPED_TABLE = f"{TYPED}, body, CASE WHEN array_ndims(tags) > 1 THEN NULL ELSE tags END AS tags, blob FROM {{}}"


@dataclass
class World:
    """Histories of twenty tables and some that are altered, recorded in many segments; and what came of them."""

    capture: Path
    out: Path
    tables: list[Any]
    expected: dict[str, tuple[list[str], Counter[tuple[str | None, ...]]]]
    typed: dict[str, list[tuple[Any, ...]]]
    rows: list[dict[str, Any]]
    versions: dict[str, Any]

    def folds(self, *, history: bool = False, until: int | None = None) -> Any:
        rows = [row for row in self.rows if until is None or row["position"] <= until]
        return model.folds(rows, self.versions, history=history)


@pytest.fixture(scope="module")
def world(newest_server: EmbeddedServer, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    from pgtail.spark.update import Datasets

    capture, out = tmp_path_factory.mktemp("world") / "capture", tmp_path_factory.mktemp("out")
    source = Random(11)
    tables = histories.tables(source)
    with fresh_database(newest_server) as database:
        database.execute(*(statement for table in tables for statement in table.create))
        model.begin(database, two_phase=True)
        orders = [[statement] for statement in histories.ORDERS]
        workload = histories.workload(source, tables, 400)
        model.run(database, histories.interleaved(source, workload, histories.alterations(0), orders))
        model.record(database, capture, "--segment-size", "96KB")
        names = [table.name for table in tables] + [f"alt0_{name}" for name in histories.ALTERED] + ["orders"]
        expected = {name: model.texts(database, name) for name in names}
        typed = {name: typed_rows(database, name) for name in ("t0", "t2", "t3")}
    Datasets(spark, str(out)).update([str(capture)])
    rows = model.committed(model.changes(capture))
    return World(capture, out, tables, expected, typed, rows, model.relations(capture))


def typed_rows(database: Database, name: str) -> list[tuple[Any, ...]]:
    with database.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return sorted(connection.execute(TYPED_TABLE.format(name).encode()).fetchall())


def pieces(world: World) -> list[Any]:
    from pgtail.spark.output import Output

    manifest = Output(str(world.out)).read()
    assert manifest is not None
    return sorted(folder.pieces_of(manifest))


def apply(spark: Any, world: World, root: Path, parts: Any = None, *, some: bool = False, **settings: Any) -> Any:
    """`some`: a few tables alone, where their number makes no difference but to the time that it takes."""
    changes, relations = stored(spark, str(world.out), "changes"), stored(spark, str(world.out), "relations")
    if some:
        changes = changes.where(changes["table"].isin(*SOME) | changes["table"].isNull())
    return applying.apply(spark, str(root), changes, relations, parts, Settings(**settings))


def as_texts(spark: Any, root: Path) -> dict[str, list[Any]]:
    """The rows of each table."""
    found: dict[str, list[Any]] = {}
    for row in state(spark, str(root)).collect():
        found.setdefault(row["table"], []).append(row)
    return found


def same_as_server(world: World, found: dict[str, list[Any]]) -> None:
    """Every known value is the server's, and unknown ones are listed."""
    for name, (columns, expected) in world.expected.items():
        rows = found.get(name, [])
        assert len(rows) == expected.total(), name
        if not name.startswith("alt"):
            assert not any(row["unknown"] for row in rows)
            assert Counter(tuple(row["values"][column] for column in columns) for row in rows) == expected
        for row in rows:
            assert set(row["values"]) | set(row["unknown"]) == set(columns)
            known = {(columns.index(column), value) for column, value in row["values"].items()}
            assert any(known <= set(enumerate(there)) for there in expected)


def same_as_model(folds: Any, found: dict[str, list[Any]]) -> None:
    for name, fold in folds.items():
        rows = sorted(plain(row.values, fold.unknown(row), row.since) for row in fold.rows())
        assert sorted(map(as_plain, found.get(name, []))) == rows, name


def as_plain(row: Any) -> str:
    return plain(row["values"], row["unknown"], (row["position"], row["seq"]))


def plain(values: Any, unknown: Any, since: Any) -> str:
    return repr((since[:2], sorted(values.items()), list(unknown)))


@pytest.fixture(scope="module")
def whole(spark: Any, world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state in one go."""
    root = tmp_path_factory.mktemp("whole") / "state"
    applied = apply(spark, world, root)
    assert applied.changes == sum(row["op"] in model.OPS for row in world.rows)
    return root


def test_all_tables_in_one_go(spark: Any, world: World, whole: Path) -> None:
    found = as_texts(spark, whole)
    same_as_server(world, found)
    same_as_model(world.folds(), found)


def test_many_small_batches_give_the_same(spark: Any, world: World, whole: Path, tmp_path: Path) -> None:
    source, parts = Random(5), pieces(world)
    assert len(parts) > 15
    root, at = tmp_path / "history", 0
    while at < len(parts):
        at += source.randint(4, 9)
        # What was applied before is given again, and in another order.
        apply(spark, world, root, source.sample(parts[:at], len(parts[:at])), history=True)
    found, once = as_texts(spark, root), as_texts(spark, whole)
    same_as_server(world, found)
    for name in once.keys() | found.keys():
        assert sorted(map(as_plain, found.get(name, []))) == sorted(map(as_plain, once.get(name, []))), name
    closed = history(spark, str(root)).where("valid_to_position IS NOT NULL").collect()
    for name, fold in world.folds(history=True).items():
        expected = [lifetime(row.since, row.until, row.values, row.unknown) for row in fold.closed]
        assert sorted(ended(row) for row in closed if row["table"] == name) == sorted(expected)


def lifetime(since: Any, until: Any, values: Any, unknown: Any) -> str:
    return repr((since.position, since.time, until.position, until.time, sorted(values.items()), list(unknown)))


def ended(row: Any) -> str:
    since, until = (
        model.Moment(row[f"valid_{end}_position"], 0, model.micros(row[f"valid_{end}"])) for end in ("from", "to")
    )
    return lifetime(since, until, row["values"], row["unknown"])


def test_a_batch_that_is_applied_again_changes_nothing(spark: Any, world: World, whole: Path) -> None:
    before = (whole / "manifest.json").read_bytes()
    assert apply(spark, world, whole).changes == 0
    assert apply(spark, world, whole, pieces(world)[3:6]).changes == 0
    assert (whole / "manifest.json").read_bytes() == before


def test_what_a_segment_of_a_transaction_lacks_is_waited_for(world: World) -> None:
    piece = manifests.Piece
    one = piece((10, 1), (20, 5), "one", "", True)
    two = piece((20, 5), (20, 9), "two", "one", True)
    three = piece((20, 9), (30, 2), "three", "two")
    manifest = manifests.Manifest()
    found = manifests.next_part(manifest, [one])
    assert found.parts == [((10, 1), (20, 0))]
    manifest.applied = found.parts
    assert manifests.last_whole(manifest, [one]) == ""
    assert manifests.next_part(manifest, [two, one]).parts == []
    assert manifests.joined(manifests.next_part(manifest, [three, two, one]).parts) == [((20, 0), (30, 2))]
    # Without its first part the transaction is not there.
    missing = manifests.next_part(manifest, [two, three]).missing
    assert missing is not None
    assert missing.missing == "one"


def test_a_missing_segment_is_named(spark: Any, world: World, tmp_path: Path) -> None:
    parts = pieces(world)
    lost = parts[4]
    rest = [part for part in parts if part.name != lost.name]
    with pytest.raises(InputError, match=f"the segment {lost.name} is missing"):
        apply(spark, world, tmp_path / "state", rest, some=True)
    assert not (tmp_path / "state").exists()
    waiting = apply(spark, world, tmp_path / "state", rest, some=True, wait=True)
    assert waiting.waiting.missing == lost.name
    assert waiting.behind <= parts[3].behind
    gone_over = apply(spark, world, tmp_path / "state", rest, some=True, allow_gap=True)
    assert [gap["missing"] for gap in gone_over.gaps] == [lost.name]
    assert gone_over.behind == parts[-1].behind
    with pytest.raises(InputError, match="belongs into a gap"):
        apply(spark, world, tmp_path / "state", parts, some=True)


def test_the_state_as_of_then(spark: Any, world: World, tmp_path: Path) -> None:
    done = [row for row in world.rows if row["op"] in model.OPS]
    middle = done[len(done) // 2]
    found = as_texts_until(spark, world, tmp_path / "lsn", middle["position"])
    same_as_model(some(world.folds(until=middle["position"])), found)
    # A time is as good, as long as no commit of that moment comes later.
    time = middle["commit_ts"].replace(tzinfo=datetime.UTC)
    last = max(row["position"] for row in done if row["position"] < first_after(done, middle["commit_ts"]))
    same_as_model(some(world.folds(until=last)), as_texts_until(spark, world, tmp_path / "time", time))
    # The state of then goes on from there.
    apply(spark, world, tmp_path / "time", pieces(world), some=True)
    same_as_model(some(world.folds()), as_texts(spark, tmp_path / "time"))
    with pytest.raises(InputError, match="goes beyond"):
        as_texts_until(spark, world, tmp_path / "lsn", middle["position"] - 10_000)


def some(folds: Any) -> Any:
    return {name: fold for name, fold in folds.items() if name in SOME}


def first_after(rows: list[dict[str, Any]], time: datetime.datetime) -> Any:
    return min(row["position"] for row in rows if row["commit_ts"] > time)


def as_texts_until(spark: Any, world: World, root: Path, until: Any) -> dict[str, list[Any]]:
    apply(spark, world, root, pieces(world), some=True, until=until)
    return as_texts(spark, root)


def test_files_that_no_manifest_names_go_when_their_time_has_come(spark: Any, world: World, tmp_path: Path) -> None:
    parts, root = pieces(world), tmp_path / "state"
    apply(spark, world, root, parts[:3], some=True)
    first = set(root.rglob("*.parquet"))
    reader = state(spark, str(root))
    before = reader.count()
    apply(spark, world, root, parts[:6], some=True)
    assert first <= set(root.rglob("*.parquet"))
    assert reader.count() == before, "a reader of the older manifest lost its files"
    apply(spark, world, root, parts[:9], some=True, retain=0)
    named = manifests.Manifest.decode((root / "manifest.json").read_bytes(), "").named()
    assert {str(path.relative_to(root)) for path in root.rglob("*.parquet")} == named


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
    from pgtail.spark.output import Output
    from pgtail.spark.tablenames import folder_name
    from pgtail.spark.typedtables import TypedTables
    from pgtail.spark.update import Datasets

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
    assert Output(str(out)).read() is not None


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
    from pgtail.spark.tablenames import folder_name

    assert folder_name(schema, name) == expected


def test_long_names_stay_apart() -> None:
    from pgtail.spark.tablenames import folder_name

    one, other = (folder_name("é" * 31, "漢" * 20 + end) for end in ("a", "b"))
    assert one != other
    assert len(one) <= 200


def test_state_is_refused_where_it_cannot_be_replaced_atomically(spark: Any) -> None:
    with pytest.raises(OptionError, match="cannot be kept on s3a"):
        state(spark, "s3a://bucket/state")


def test_hadoops_rename_replaces_in_one_step(spark: Any, tmp_path: Path) -> None:
    from pgtail.spark.files import HadoopFiles

    files = HadoopFiles(spark, f"file://{tmp_path}")
    assert files.read("manifest.json") is None
    for data in (b"one", b"two"):
        files.replace("manifest.json", data)
        assert files.read("manifest.json") == data
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "x.parquet").write_bytes(b"abc")
    [found] = [file for file in files.walk("data") if file.path.endswith(".parquet")]
    assert (found.path, found.size) == ("data/deep/x.parquet", 3)
    files.remove(found.path)
    assert list(files.walk("data")) == []


def test_the_readmes_merge_gives_the_state(spark: Any, world: World, whole: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    query = readme.partition("MERGE INTO lake.orders AS t USING (")[2].partition("\n) AS s ON")[0]
    table(spark, str(world.out), "public.orders").createOrReplaceTempView("orders_changes")
    merged = spark.sql(query).where("op <> 'delete'").selectExpr("id", "total", "sent.note")
    expected = state(spark, str(whole), "public.orders").select("id", "total", "note")
    assert Counter(merged.collect()) == Counter(expected.collect())
    assert merged.count() == 4
