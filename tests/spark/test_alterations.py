"""Tables under random ALTER TABLEs: state and history have the server's values, or name them as unknown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from pgtail.spark.typed.versions import Version
from tests.support.servers import Database
from tests.support.spark import model
from tests.support.spark.altered import Altered, Values
from tests.support.spark.fold import Fold
from tests.support.spark.world import apply, stored


@dataclass
class Tables:
    """Tables that are altered, and what the server has in them."""

    database: Database
    tables: list[Altered]

    def steps(self, count: int) -> None:
        """Alter and change each table so many times; without one of them at the start."""
        with self.database.connect() as connection:
            for number in range(count):
                for table in self.tables:
                    for statement in table.step() if number or table.columns else table.create():
                        if not statement.startswith(("CREATE", "ALTER")):
                            table.before.append(rows_of(connection, table.name))
                        connection.execute(statement.encode())

    def now(self, table: Altered) -> list[Values]:
        with self.database.connect() as connection:
            return rows_of(connection, table.name)


def rows_of(connection: Any, name: str) -> list[Values]:
    cursor = connection.execute(f"SELECT * FROM {name}".encode())
    names = [column.name for column in cursor.description]
    return [
        {column: None if value is None else str(value) for column, value in zip(names, row, strict=True)}
        for row in cursor.fetchall()
    ]


def make(database: Database, seed: Random, count: int) -> Tables:
    tables = [Altered(f"t{number}", Random(seed.random()), number % 4 == 3) for number in range(count)]
    model.begin(database)
    return Tables(database, tables)


class Found(NamedTuple):
    """What pgtail says of a row: the values that are known, how many columns it has, and which change ended it."""

    values: Values
    columns: int
    until: int | None


def fit(found: Iterable[Values], server: Sequence[Values]) -> int:
    """How many values are known. Raises AssertionError if a row is none of the server's, as far as it is known."""
    left, known = list(server), 0
    for row in sorted(found, key=len, reverse=True):
        fitting = [one for one in left if row.items() <= one.items()]
        assert fitting, (row, left)
        left.remove(fitting[0])
        known += len(row)
    return known


def are_true(made: Tables, found: Mapping[str, Iterable[Found]], capture: Path) -> None:
    """Raises AssertionError if one value is not what the server had; most of them must be known."""
    changes = model.changes(capture)
    known = every = 0
    for table in made.tables:
        places = [row["position"] for row in changes if row["table"] == table.name]
        assert len(places) == len(table.before)
        rows = list(found[table.name])
        known += fit([row.values for row in rows if row.until is None], made.now(table))
        for row in rows:
            if row.until is not None:
                known += fit([row.values], table.before[places.index(row.until)])
        every += sum(row.columns for row in rows)
    steps, hidden = (sum(getattr(table, name) for table in made.tables) for name in ("steps", "hidden"))
    print(f"{known} of {every} values are known; {hidden} alterations are shown by no description, {steps} by one")
    assert known > every / 4
    assert hidden < steps


def test_the_model_has_the_values_of_the_server(newest_database: Database, tmp_path: Path, seed: Random) -> None:
    made = make(newest_database, seed, 24)
    made.steps(10)
    model.record(newest_database, tmp_path / "capture")
    rows = model.committed(model.changes(tmp_path / "capture"))
    folds = model.folds(rows, model.relations(tmp_path / "capture"), history=True)
    are_true(made, {name: of_model(fold) for name, fold in folds.items()}, tmp_path / "capture")


def of_model(fold: Fold) -> Iterator[Found]:
    for row in [*fold.rows(), *fold.closed]:
        columns = len(row.values) + len(fold.unknown(row) if row.until is None else row.unknown)
        yield Found(row.values, columns, row.until and row.until.position)


def test_spark_has_the_values_of_the_server(
    spark: Any, newest_database: Database, tmp_path: Path, seed: Random
) -> None:
    """A table is altered within a batch and between two batches."""
    made = make(newest_database, seed, 8)
    for _ in range(2):
        made.steps(2)
        model.record(newest_database, tmp_path / "capture")
        apply(spark, tmp_path / "out", [str(tmp_path / "capture")])
        apply(spark, tmp_path / "out", [], history=True)
    versions = model.relations(tmp_path / "capture")
    for kind in ("state", "history"):
        found = stored(tmp_path / "out", kind)
        tables = {
            table.name: [] if table.name not in found else list(of_spark(found[table.name], versions))
            for table in made.tables
        }
        are_true(made, tables, tmp_path / "capture")


def of_spark(rows: pa.Table, versions: Mapping[str, Version]) -> Iterator[Found]:
    for row in rows.to_pylist():
        names = [column.name for column in versions[row["_relation"]].columns]
        unknown = row["_unknown"] or ()
        values = {name: None if row[name] is None else str(row[name]) for name in names if name not in unknown}
        yield Found(values, len(names), row.get("_valid_to_position"))
