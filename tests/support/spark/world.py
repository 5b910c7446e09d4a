"""What a server went through, recorded: for the tests of `tables`, `state` and `history`, with comparisons."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from pgtail.demo.server import EmbeddedServer
from pgtail.spark import history, state, stored
from pgtail.spark.datasets.manifest import Output
from pgtail.spark.datasets.update import Datasets
from pgtail.spark.folding.apply import apply as apply_batch
from pgtail.spark.folding.fold import Moment
from pgtail.spark.folding.settings import Settings
from pgtail.spark.folding.update import pieces_of
from tests.support.servers import Database, fresh_database
from tests.support.spark import model, workloads

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


def make(server: EmbeddedServer, spark: Any, folder: Path) -> World:
    """Live and record it."""
    capture, out = folder / "capture", folder / "out"
    source = Random(11)
    tables = workloads.tables(source)
    with fresh_database(server) as database:
        database.execute(*(statement for table in tables for statement in table.create))
        model.begin(database, two_phase=True)
        orders = [[statement] for statement in workloads.ORDERS]
        workload = workloads.workload(source, tables, 400)
        model.run(database, workloads.interleaved(source, workload, workloads.alterations(0), orders))
        model.record(database, capture, "--segment-size", "96KB")
        names = [table.name for table in tables] + [f"alt0_{name}" for name in workloads.ALTERED] + ["orders"]
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
    manifest = Output(str(world.out)).read()
    assert manifest is not None
    return sorted(pieces_of(manifest))


def apply(spark: Any, world: World, root: Path, parts: Any = None, *, some: bool = False, **settings: Any) -> Any:
    """`some`: a few tables alone, where their number makes no difference but to the time that it takes."""
    changes, relations = stored(spark, str(world.out), "changes"), stored(spark, str(world.out), "relations")
    if some:
        changes = changes.where(changes["table"].isin(*SOME) | changes["table"].isNull())
    return apply_batch(spark, str(root), changes, relations, parts, Settings(**settings))


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


def same_lives(spark: Any, root: Path, folds: Any) -> None:
    """The rows that are no more, of every table."""
    closed = history(spark, str(root)).where("valid_to_position IS NOT NULL").collect()
    for name, fold in folds.items():
        expected = [lifetime(row.since, row.until, row.values, row.unknown) for row in fold.closed]
        assert sorted(ended(row) for row in closed if row["table"] == name) == sorted(expected)


def lifetime(since: Any, until: Any, values: Any, unknown: Any) -> str:
    return repr((since.position, since.time, until.position, until.time, sorted(values.items()), list(unknown)))


def ended(row: Any) -> str:
    since, until = (
        Moment(row[f"valid_{end}_position"], 0, model.micros(row[f"valid_{end}"])) for end in ("from", "to")
    )
    return lifetime(since, until, row["values"], row["unknown"])
