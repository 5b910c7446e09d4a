"""A name that passes from one table to another: state has the table under its name, history and tables/* keep both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pgtail.spark import read
from pgtail.spark.lake.catalog import entries
from pgtail.spark.lake.compact import vacuum
from pgtail.spark.lake.delta import LakeTable
from pgtail.spark.lake.update import Lake
from pgtail.spark.state.settings import Settings
from pgtail.spark.state.update import update_state
from pgtail.storage import locate
from tests.spark.test_lake import Crash, crashing
from tests.support.servers import Database
from tests.support.spark import model
from tests.support.spark.world import apply

CREATE = "CREATE TABLE t (id int PRIMARY KEY, v text)"
OLD = (CREATE, "INSERT INTO t SELECT g, 'old' FROM generate_series(1, 3) g")
AGAIN = ("DROP TABLE t", CREATE, "INSERT INTO t VALUES (1, 'new')")
OTHER = ("DROP TABLE t", "CREATE TABLE t (at timestamp, id int)", "INSERT INTO t VALUES ('2026-01-01', 1)")


@pytest.fixture
def recorded(newest_database: Database, tmp_path: Path) -> Callable[[Sequence[str]], str]:
    """Runs statements on the server, and records what they change."""
    model.begin(newest_database)

    def run(statements: Sequence[str]) -> str:
        newest_database.execute(*statements)
        model.record(newest_database, tmp_path / "capture")
        return str(tmp_path / "capture")

    return run


def at(out: Path, folder: str, version: int | None = None) -> list[tuple[Any, ...]]:
    """Rows as a reader by path has them."""
    table = DeltaTable(str(out / folder), version=version).to_pyarrow_table()
    own = [name for name in table.column_names if not name.startswith("_")]
    return sorted((tuple(row.values()) for row in table.select(own).to_pylist()), key=repr)


def folders(out: Path, kind: str) -> dict[int | None, str]:
    return {one.relid: one.folder for one in entries(locate(str(out))) if one.kind == kind}


def oid(database: Database, name: str) -> int:
    return int(database.value(f"SELECT '{name}'::regclass::oid"))


@pytest.mark.parametrize("again", [AGAIN, OTHER])
def test_a_table_that_was_created_again_has_its_name_in_the_state(
    spark: Any, newest_database: Database, recorded: Callable[..., str], tmp_path: Path, again: Sequence[str]
) -> None:
    out = tmp_path / "out"
    apply(spark, out, [recorded(OLD)])
    apply(spark, out, [], history=True)
    one, before = oid(newest_database, "t"), at(out, "state/public.t")
    version = DeltaTable(str(out / "state/public.t")).version()
    capture = recorded(again)
    lake = Lake(spark, str(out))
    [note] = lake.update([capture], typed=True).notes
    two = oid(newest_database, "t")
    assert note == (
        f"tables/public.t has the changes of several tables that had this name (_relid {one}, {two}): dropped and"
        " created again, or renamed"
    )
    [passed] = update_state(lake, Settings()).passed
    assert passed == (
        f"another table has the name public.t now: OID {two}, in state/public.t; the one before, OID {one}, was dropped"
        f" or renamed, and is in state/public.t~~{one}"
    )
    rows = sorted(newest_database.query("SELECT * FROM t"), key=repr)
    assert at(out, "state/public.t") == rows
    assert at(out, "state/public.t", version) == before
    # Columns of a type that the table had not, such as a timestamp, are enabled by a commit of their own.
    assert DeltaTable(str(out / "state/public.t")).version() == version + 1 + (again is OTHER)
    assert at(out, f"state/public.t~~{one}") == before
    names = [name for name in read(spark, str(out), "state/public.t").columns if not name.startswith("_")]
    assert [tuple(row) for row in read(spark, str(out), "state/public.t", columns=names).collect()] == rows
    assert folders(out, "state") == {one: f"state/public.t~~{one}", two: "state/public.t"}

    [passed] = update_state(lake, Settings(history=True)).passed
    assert passed.startswith(f"another table has the name public.t now: OID {two}, in history/public.t~~{two}; the one")
    assert folders(out, "history") == {one: "history/public.t", two: f"history/public.t~~{two}"}
    assert at(out, "history/public.t") == before
    assert read(spark, str(out), "history/public.t", columns=names).collect() == [tuple(row) for row in rows]
    # It goes on in its place, and is said once.
    capture = recorded(["INSERT INTO t (id) VALUES (7)"])
    for history in (False, True):
        assert apply(spark, out, [capture], history=history).passed == []
    assert at(out, "state/public.t") == sorted(newest_database.query("SELECT * FROM t"), key=repr)
    # In one go it is the same.
    assert apply(spark, tmp_path / "once", [capture]).passed
    assert folders(tmp_path / "once", "state") == folders(out, "state")
    for folder in folders(out, "state").values():
        assert at(tmp_path / "once", folder) == at(out, folder)


def test_names_that_are_exchanged(
    spark: Any, newest_database: Database, recorded: Callable[..., str], tmp_path: Path
) -> None:
    """Each table comes under its name when a change shows it: two of them change places, then one is archived."""
    out = tmp_path / "out"
    apply(spark, out, [recorded([*OLD, "CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (7)"])])
    one, two = oid(newest_database, "t"), oid(newest_database, "u")
    rename = ["ALTER TABLE t RENAME TO x", "ALTER TABLE u RENAME TO t", "ALTER TABLE x RENAME TO u"]
    apply(spark, out, [recorded([*rename, "INSERT INTO t VALUES (8)", "INSERT INTO u VALUES (9, 'x')"])])
    assert folders(out, "state") == {one: "state/public.u", two: "state/public.t"}
    for name in ("t", "u"):
        assert at(out, f"state/public.{name}") == sorted(newest_database.query(f"SELECT * FROM {name}"), key=repr)
    # The archived table sends nothing more: its rows stay. Nobody has its folder but the new table.
    archive = ["ALTER TABLE t RENAME TO t_1", "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"]
    apply(spark, out, [recorded(archive)])
    assert at(out, f"state/public.t~~{two}") == [(7,), (8,)]
    assert at(out, "state/public.t") == [(1,)]
    # A table takes a name, and nobody has the folder of its name before: it is empty.
    rename = ["ALTER TABLE u RENAME TO v", "ALTER TABLE t RENAME TO u"]
    apply(spark, out, [recorded([*rename, "INSERT INTO u VALUES (2)"])])
    assert at(out, "state/public.u") == [(1,), (2,)]
    assert at(out, "state/public.t") == []
    assert "state/public.t" not in folders(out, "state").values()
    lake = LakeTable(locate(str(out / "state/public.t")))
    assert [file for file in vacuum(locate(str(out)), delete=False) if file.startswith("state/public.t/")] == []
    assert lake.files() == []
    # The name is used again.
    apply(spark, out, [recorded([CREATE, "INSERT INTO t VALUES (5, 'y')", "INSERT INTO v VALUES (10, 'z')"])])
    assert at(out, "state/public.t") == [(5, "y")]
    assert at(out, f"state/public.u~~{one}") == sorted(newest_database.query("SELECT * FROM v"), key=repr)


def test_a_state_of_an_older_pgtail_is_put_right_by_the_next_run(
    spark: Any, newest_database: Database, recorded: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("pgtail.spark.state.update.folders_to_take", lambda *_: {})
        apply(spark, out, [recorded([*OLD, *AGAIN])])
    two = oid(newest_database, "t")
    assert at(out, "state/public.t") == [(1, "old"), (2, "old"), (3, "old")]
    assert at(out, f"state/public.t~~{two}") == [(1, "new")]
    applied = apply(spark, out, [])
    assert (applied.changes, len(applied.passed)) == (0, 1)
    assert at(out, "state/public.t") == [(1, "new")]
    assert at(out, f"state/public.t~~{two}") == []
    assert apply(spark, out, []).passed == []
    assert apply(spark, out, [recorded(["UPDATE t SET v = 'x'"])]).passed == []
    assert at(out, "state/public.t") == [(1, "x")]


def test_a_name_passes_once_wherever_a_run_is_killed(
    spark: Any, recorded: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and behind each commit a reader has the rows of one of the two tables, and the old ones are kept."""
    old, new = [(1, "old"), (2, "old"), (3, "old")], [(1, "new")]
    outs = [tmp_path / f"out{number}" for number in range(9)]
    capture = recorded(OLD)
    for out in outs:
        apply(spark, out, [capture])
    capture = recorded(AGAIN)
    crashes = 0
    for number, out in enumerate(outs):
        lake = Lake(spark, str(out))
        lake.update([capture], typed=True)
        with monkeypatch.context() as patch:
            patch.setattr(LakeTable, "commit", crashing(number))
            try:
                update_state(lake, Settings())
            except Crash:
                crashes += 1
        by_name = read(spark, str(out), "state/public.t", columns=["id", "v"]).collect()
        assert at(out, "state/public.t") in (old, new)
        assert sorted(map(tuple, by_name)) == at(out, "state/public.t")
        if at(out, "state/public.t") == new:
            [kept] = (out / "state").glob("public.t~~*")
            assert at(out, f"state/{kept.name}") == old
        apply(spark, out, [])
        assert at(out, "state/public.t") == new
        [kept] = (out / "state").glob("public.t~~*")
        assert at(out, f"state/{kept.name}") == old
        assert len(folders(out, "state")) == 2
    assert crashes == 8, "the plan, the two tables and the catalog are one commit each"
