"""What a server went through, recorded: for the tests of `tables`, `state` and `history`, with comparisons."""

from __future__ import annotations

import datetime
import zoneinfo
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from pgtail.arrow.typed.casts import TableColumn, typed
from pgtail.arrow.typed.columns import OWN, columns_of
from pgtail.demo.server import EmbeddedServer
from pgtail.spark.lake.catalog import entries
from pgtail.spark.lake.delta import LakeTable
from pgtail.spark.lake.update import Lake
from pgtail.spark.state.settings import Settings
from pgtail.spark.state.update import Applied, update_state
from pgtail.storage import Location, locate
from tests.support.servers import Database, fresh_database
from tests.support.spark import model, workloads
from tests.support.spark.captures import segments
from tests.support.spark.fold import Fold, Row

SOME = ("t0", "t2", "t4")
TYPED = "SELECT a, b, n, NULLIF(total, 'NaN') AS total, CASE WHEN isfinite(at) AND at > '0001-01-01' THEN at END AS at"
TYPED_TABLE = f"{TYPED}, body, CASE WHEN array_ndims(tags) > 1 THEN NULL ELSE tags END AS tags, blob FROM {{}}"


@dataclass
class World:
    """Histories of twenty tables and some that are altered, recorded in many segments; and what came of them."""

    capture: Path
    tables: list[Any]
    expected: dict[str, tuple[list[str], Counter[tuple[str | None, ...]]]]
    typed: dict[str, list[tuple[Any, ...]]]
    rows: list[dict[str, Any]]
    versions: dict[str, Any]

    @property
    def segments(self) -> list[str]:
        return list(map(str, segments(self.capture)))

    def folds(self, *, history: bool = False, until: int | None = None) -> dict[str, Fold]:
        rows = [row for row in self.rows if until is None or row["position"] <= until]
        return model.folds(rows, self.versions, history=history)


def make(server: EmbeddedServer, folder: Path) -> World:
    """Live and record it."""
    capture = folder / "capture"
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
        typed_ = {name: typed_rows(database, name) for name in ("t0", "t2", "t3")}
    rows = model.committed(model.changes(capture))
    return World(capture, tables, expected, typed_, rows, model.relations(capture))


def typed_rows(database: Database, name: str) -> list[tuple[Any, ...]]:
    with database.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return sorted(connection.execute(TYPED_TABLE.format(name).encode()).fetchall())


def apply(
    spark: Any, out: Path, captures: Sequence[str], tables: Sequence[str] = (), batch_segments: int = 1000, **more: Any
) -> Applied:
    """Bring a state (or history) up to date with captures; `more` are Settings."""
    lake = Lake(spark, str(out), tables=tables, batch_segments=batch_segments)
    if captures:
        lake.update(captures, typed=True)
    return update_state(lake, Settings(**more))


def stored(out: Path | Location, kind: str) -> dict[str, pa.Table]:
    """The tables of a kind, by their last names, as deltalake reads them."""
    found = {}
    folder = locate(str(out)) if isinstance(out, Path) else out
    for entry in sorted((one for one in entries(folder) if one.kind == kind), key=lambda one: one.since):
        found[entry.table] = LakeTable(folder / entry.folder).delta.to_pyarrow_table()
    return found


def same_as_model(folds: dict[str, Fold], found: dict[str, pa.Table]) -> None:
    """The rows of a state, to the last value, are those that the model has."""
    for name, fold in folds.items():
        assert names_in(found.get(name), fold) == sorted(of_model(list(fold.rows()), fold)), name


def names_in(table: pa.Table | None, fold: Fold) -> list[str]:
    """The rows of a state as text, with PostgreSQL's names."""
    if table is None:
        return []
    assert fold.version is not None
    columns = columns_of([fold.version])
    rows = []
    for row in table.to_pylist():
        values = {column.name: row[column.stored] for column in columns}
        since = row["_position"], row["_seq"], row["_commit_ts"]
        rows.append(as_text(values, since, row["_unknown"], row["_rescued"]))
    return sorted(rows)


def of_model(rows: Sequence[Row], fold: Fold) -> list[str]:
    """The same of the model's rows."""
    assert fold.version is not None
    return [
        as_text(values, (row.since.position, row.since.seq, moment(row.since.time)), fold.unknown(row), rescued)
        for row, values, rescued in as_typed(rows, columns_of([fold.version]))
    ]


def as_typed(rows: Sequence[Row], columns: Sequence[TableColumn]) -> Iterator[tuple[Row, dict[str, Any], Any]]:
    """Rows of the model with their values as a table with these columns has them, and what it rescues."""
    sent = [row.former.values | row.values for row in rows]
    texts = [pa.array([one.get(column.name) for one in sent], pa.string()) for column in columns]
    undecoded = [sorted(row.undecoded | row.former.undecoded) or None for row in rows]
    arrays, rescued = typed(texts, columns, pa.array(undecoded, pa.list_(pa.string())))
    lists = {column.name: array.to_pylist() for column, array in zip(columns, arrays, strict=True)}
    for number, row in enumerate(rows):
        values = {name: values[number] for name, values in lists.items()}
        yield row, values, rescued[number].as_py() if columns else None


def as_text(values: Any, since: Any, unknown: Any, rescued: Any) -> str:
    return repr((since, sorted(values.items()), sorted(unknown or ()), sorted(rescued or ())))


def moment(micros: int | None) -> datetime.datetime | None:
    # As Arrow names the zone.
    epoch = datetime.datetime(1970, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC"))
    return None if micros is None else epoch + datetime.timedelta(microseconds=micros)


def same_as_server(world: World, found: dict[str, pa.Table]) -> None:
    """There are as many rows as the server has, and what is unknown is so only where a table was altered."""
    for name, (columns, expected) in world.expected.items():
        rows = found[name].to_pylist() if name in found else []
        assert len(rows) == expected.total(), name
        for row in rows:
            assert row.keys() - OWN == set(columns)
            if not name.startswith("alt"):
                assert not row["_unknown"]


def same_lives(folds: dict[str, Fold], found: dict[str, pa.Table]) -> None:
    """The rows of a history, those that are no more and the others, are those that the model has."""
    for name, fold in folds.items():
        columns = columns_of(fold.versions)
        expected = []
        for row, values, rescued in as_typed([*fold.closed, *fold.rows()], columns):
            until = (None, None) if row.until is None else (row.until.position, moment(row.until.time))
            unknown = [*(fold.unknown(row) if row.until is None else row.unknown), *row.former.unknown]
            since = (row.since.position, moment(row.since.time), *until)
            expected.append(as_text(values, (*since, row.from_snapshot), unknown, rescued))
        there = []
        for one in found[name].to_pylist() if name in found else []:
            since = tuple(one[f"_valid_{end}"] for end in ("from_position", "from", "to_position", "to"))
            since = (*since, one["_from_snapshot"])
            values = {column.name: one[column.stored] for column in columns}
            there.append(as_text(values, since, one["_unknown"], one["_rescued"]))
        assert sorted(there) == sorted(expected), name
