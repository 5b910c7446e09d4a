"""The fold, in plain Python, against what real servers have in their tables after the same changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from pgtail.demo.server import EmbeddedServer
from tests.support.servers import Database, fresh_database, since
from tests.support.spark import model, workloads

Values = dict[str, str | None]


@since(14)
def test_random_histories(database: Database, tmp_path: Path) -> None:
    source = Random(database.version)
    tables = workloads.tables(source)
    two_phase = database.version >= 15
    database.execute(*(statement for table in tables for statement in table.create))
    model.begin(database, two_phase=two_phase)
    model.run(database, workloads.workload(source, tables, 400))
    model.record(database, tmp_path / "capture")
    rows = model.committed(model.changes(tmp_path / "capture"))
    folds = model.folds(rows, model.relations(tmp_path / "capture"))
    assert {"insert", "update", "delete", "truncate"} <= {row["op"] for row in rows}
    assert any(row["unchanged"] and row["old"] for row in rows), "no key moved away from a value that was not sent"
    for table in tables:
        names, expected = model.texts(database, table.name)
        assert (model.folded(folds[table.name], names) if table.name in folds else {}) == expected


# -- what ALTER TABLE does ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(newest_server: EmbeddedServer) -> Iterator[Database]:
    with fresh_database(newest_server) as created:
        model.begin(created)
        yield created


def rows_after(
    database: Database, directory: Path, *statements: str
) -> tuple[list[Values], list[Values], list[list[str]]]:
    """The model's rows of table t, the server's, and which columns of the former are unknown; all by their key."""
    database.execute("DROP TABLE IF EXISTS t, u")
    model.record(database, directory / "before")
    database.execute(*statements)
    model.record(database, directory / "capture")
    name = "u" if database.value("SELECT to_regclass('u') IS NOT NULL") else "t"
    versions = model.relations(directory / "capture")
    rows = model.committed(model.changes(directory / "capture"))
    last = max(row["relid"] for row in rows if row["relid"])
    rows = [row for row in rows if row["relid"] == last]
    fold = model.folds(rows, versions)[name]
    names, expected = model.texts(database, name)
    found = sorted(fold.rows(), key=lambda row: str(row.values.get(names[0])))
    server = [dict(zip(names, row, strict=True)) for row in sorted(expected.elements(), key=lambda row: str(row[0]))]
    return [row.values for row in found], server, [fold.unknown(row) for row in found]


TABLE = "CREATE TABLE t (id int PRIMARY KEY, v int, w text)"
TWO = "INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')"


@pytest.mark.parametrize(
    ("statements", "unknown"),
    [
        # The default of an added column is told for rows that come later alone.
        ([TABLE, TWO, "ALTER TABLE t ADD x int DEFAULT 7", "UPDATE t SET v = 5 WHERE id = 2"], [["x"], []]),
        ([TABLE, TWO, "ALTER TABLE t DROP v", "UPDATE t SET w = 'c' WHERE id = 2"], [[], []]),
        ([TABLE, TWO, "ALTER TABLE t RENAME v TO x", "UPDATE t SET w = 'c' WHERE id = 2"], [[], []]),
        ([TABLE, TWO, "ALTER TABLE t RENAME id TO x", "UPDATE t SET w = 'c' WHERE x = 2"], [[], []]),
        ([TABLE, TWO, "ALTER TABLE t RENAME TO u", "UPDATE u SET w = 'c' WHERE id = 2"], [[], []]),
        ([TABLE, TWO, "ALTER TABLE t ALTER v TYPE bigint", "UPDATE t SET w = 'c' WHERE id = 2"], [[], []]),
        ([TABLE, TWO, "ALTER TABLE t ALTER v TYPE text", "UPDATE t SET w = 'c' WHERE id = 2"], [[], []]),
        # Rounding, and other spellings: what became of the values was not sent.
        (
            [TABLE, TWO, "ALTER TABLE t ALTER v TYPE smallint USING v * 10", "UPDATE t SET w = 'c' WHERE id = 2"],
            [["v"], []],
        ),
        ([TABLE, TWO, "ALTER TABLE t ALTER id TYPE bigint", "UPDATE t SET w = 'c' WHERE id = 2"], [[], []]),
        # What was there under the name is gone, and something else is there.
        (
            [
                TABLE,
                TWO,
                "ALTER TABLE t DROP v",
                "UPDATE t SET w = 'c' WHERE id = 2",
                "ALTER TABLE t ADD v int DEFAULT 9",
                "UPDATE t SET w = 'd' WHERE id = 2",
            ],
            [["v"], []],
        ),
        # Another way to find rows, in mid-stream.
        ([TABLE, TWO, "ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET w = 'c', id = 3 WHERE id = 2"], [[], []]),
        (
            [
                TABLE,
                "ALTER TABLE t REPLICA IDENTITY FULL",
                TWO,
                "ALTER TABLE t REPLICA IDENTITY DEFAULT",
                "UPDATE t SET id = 3 WHERE id = 2",
            ],
            [[], []],
        ),
        # Under identity full, rows of an earlier version are found by what is known of them.
        (
            [
                "CREATE TABLE t (id int, v int)",
                "ALTER TABLE t REPLICA IDENTITY FULL",
                "INSERT INTO t VALUES (1, 1), (2, 2), (2, 2)",
                "ALTER TABLE t ADD x int DEFAULT 7",
                "UPDATE t SET v = 5 WHERE ctid = (SELECT max(ctid) FROM t)",
                "DELETE FROM t WHERE id = 1",
            ],
            [["x"], []],
        ),
        ([TABLE, TWO, "DROP TABLE t", TABLE, "INSERT INTO t VALUES (3, 3, 'c')"], [[]]),
    ],
    ids=lambda value: value[-2] if isinstance(value[0], str) else "",
)
def test_a_table_that_changes(
    shared: Database, tmp_path: Path, statements: Sequence[str], unknown: list[list[str]]
) -> None:
    found, server, gaps = rows_after(shared, tmp_path, *statements)
    assert gaps == unknown
    assert found == [
        {name: value for name, value in row.items() if name not in missing}
        for row, missing in zip(server, unknown, strict=True)
    ]


def test_a_row_of_a_history_keeps_what_it_had_in_columns_that_are_gone(shared: Database, tmp_path: Path) -> None:
    shared.execute("DROP TABLE IF EXISTS t, u", TABLE.replace("w text", "w text, x text"))
    model.record(shared, tmp_path / "before")
    shared.execute(
        "INSERT INTO t VALUES (1, 1, 'a', 'b'), (2, 2, 'c', 'd')",
        "ALTER TABLE t DROP v, ADD y int",
        "ALTER TABLE t RENAME w TO z",
        "UPDATE t SET z = 'e' WHERE id = 2",
    )
    model.record(shared, tmp_path / "capture")
    rows = model.committed(model.changes(tmp_path / "capture"))
    [fold] = model.folds(rows, model.relations(tmp_path / "capture"), history=True).values()
    found = {
        (row.values["id"], row.until is None): (row.former.values | row.values, fold.unknown(row) or row.unknown)
        for row in [*fold.rows(), *fold.closed]
    }
    assert found["1", True] == ({"id": "1", "v": "1", "w": "a", "x": "b"}, ["z", "y"])
    assert found["2", False] == ({"id": "2", "v": "2", "w": "c", "x": "d"}, ["z", "y"])
    assert found["2", True] == ({"id": "2", "z": "e", "x": "d", "y": None}, [])


def test_what_was_there_before_the_capture_is_unknown(shared: Database, tmp_path: Path) -> None:
    big = "repeat(md5('1'), 200)"
    shared.execute("DROP TABLE IF EXISTS t, u", "CREATE TABLE t (id int PRIMARY KEY, v int, w text)")
    shared.execute("ALTER TABLE t ALTER w SET STORAGE EXTERNAL", f"INSERT INTO t VALUES (1, 1, {big}), (2, 2, {big})")
    model.record(shared, tmp_path / "before")
    shared.execute("UPDATE t SET v = 3 WHERE id = 1", "UPDATE t SET id = 7 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    model.record(shared, tmp_path / "capture")
    rows = model.committed(model.changes(tmp_path / "capture"))
    [fold] = model.folds(rows, model.relations(tmp_path / "capture")).values()
    [row] = fold.rows()
    assert (row.values, fold.unknown(row)) == ({"id": "7", "v": "3"}, ["w"])
