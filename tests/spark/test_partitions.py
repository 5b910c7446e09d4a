"""Partitions with a weaker replica identity than that of their root, published via it: rows are found, or it stops."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pgtail.spark.lake.catalog import entries
from pgtail.storage import locate
from tests.spark.test_names import at
from tests.support import encode
from tests.support.captures import record
from tests.support.run import here
from tests.support.run_process import PROGRAM, pgtail, started
from tests.support.servers import Database, since
from tests.support.spark import model
from tests.support.spark.quick import CONF
from tests.support.spark.world import apply

ROOT = "CREATE TABLE ev (id int, d int, v text{}) PARTITION BY LIST (d)"
LEAVES = [f"CREATE TABLE ev_{number} PARTITION OF ev FOR VALUES IN ({number})" for number in (1, 2)]
FULL = "ALTER TABLE ev REPLICA IDENTITY FULL"
COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = '{}'::regclass AND attnum > 0 ORDER BY attnum"


class Recorded:
    """Tables of a server that are recorded, and their state and history."""

    def __init__(self, spark: Any, database: Database, folder: Path) -> None:
        self.spark, self.database, self.folder, self.out = spark, database, folder, folder / "out"

    def begin(self, *statements: str) -> None:
        """Run statements; from then on everything is published."""
        publication = f"{model.SETUP[0]} WITH (publish_via_partition_root)"
        self.database.execute(*statements)
        self.database.execute(publication, f"SELECT pg_create_logical_replication_slot('{model.SLOT}', 'pgoutput')")

    def run(self, *statements: str, options: Sequence[str] = ()) -> list[str]:
        """Run statements, record them, bring state and history up to date; returns why tables are stopped."""
        self.database.execute(*statements)
        model.record(self.database, self.folder / "capture", *options)
        applied = apply(self.spark, self.out, [str(self.folder / "capture")])
        return applied.stopped + apply(self.spark, self.out, [], history=True).stopped

    def has(self, table: str) -> bool:
        """Whether the state, and the rows that a history has now, are those of the server, and known."""
        state = DeltaTable(str(self.out / f"state/public.{table}")).to_pyarrow_table().to_pylist()
        history = DeltaTable(str(self.out / f"history/public.{table}")).to_pyarrow_table().to_pylist()
        history = [row for row in history if row["_valid_to"] is None]
        assert all(row["_unknown"] is None for row in state + history)
        names = [name for (name,) in self.database.query(COLUMNS.format(table))]
        rows = sorted(self.database.query(f"SELECT {', '.join(names)} FROM {table}"), key=repr)
        found = [sorted((tuple(row[name] for name in names) for row in some), key=repr) for some in (state, history)]
        return found == [rows, rows]


@pytest.fixture
def recorded(spark: Any, database: Database, tmp_path: Path) -> Recorded:
    return Recorded(spark, database, tmp_path)


@since(13)
def test_rows_are_found_by_the_key_of_the_partitions(recorded: Recorded) -> None:
    recorded.begin(ROOT.format(", PRIMARY KEY (id, d)"), *LEAVES, FULL)
    rows = "INSERT INTO ev VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'c'), (4, 2, NULL), (5, 2, 'e')"
    assert recorded.run(rows, "UPDATE ev SET v = 'a2' WHERE id = 1", "DELETE FROM ev WHERE id = 2") == []
    assert recorded.has("ev")
    # In a session of its own, in both partitions, to another key and to another partition.
    changes = ["UPDATE ev SET v = 'x' WHERE d = 2", "UPDATE ev SET id = 7 WHERE id = 3", "DELETE FROM ev WHERE id = 4"]
    assert recorded.run(*changes, "UPDATE ev SET d = 2 WHERE id = 1") == []
    assert recorded.has("ev")
    # The partitions get the root's identity: rows are found by all of their values again.
    full = [f"ALTER TABLE ev_{number} REPLICA IDENTITY FULL" for number in (1, 2)]
    assert recorded.run(*full, "UPDATE ev SET v = 'y' WHERE id = 1", "DELETE FROM ev WHERE id = 5") == []
    assert recorded.has("ev")


@since(13)
def test_a_table_that_began_with_whole_rows_goes_on_with_keys(recorded: Recorded) -> None:
    """Of the partition that comes later the key alone is sent; it is that of rows of before, too."""
    leaf = "CREATE TABLE ev_1 PARTITION OF ev FOR VALUES IN (1)"
    recorded.begin(ROOT.format(", PRIMARY KEY (id, d)"), leaf, FULL, "ALTER TABLE ev_1 REPLICA IDENTITY FULL")
    assert recorded.run("INSERT INTO ev VALUES (1, 1, NULL), (2, 1, 'b')", "UPDATE ev SET v = 'c' WHERE id = 2") == []
    later = ["CREATE TABLE ev_2 PARTITION OF ev FOR VALUES IN (2)", "INSERT INTO ev VALUES (1, 2, 'd'), (2, 2, 'e')"]
    changes = ["UPDATE ev SET v = 'f' WHERE d = 2 AND id = 1", "DELETE FROM ev WHERE id = 2"]
    assert recorded.run(*later, *changes, "UPDATE ev SET v = 'g', id = 9 WHERE d = 1") == []
    assert recorded.has("ev")


@since(13)
@pytest.mark.parametrize(
    ("keys", "rows", "change"),
    [
        (("id", "v"), "(1, 1, 'a'), (2, 1, 'b'), (3, 2, 'c')", "DELETE FROM ev WHERE v = 'a'"),
        # Both partitions have a row with this key.
        (("id", "id"), "(1, 1, 'a'), (1, 2, 'b')", "UPDATE ev SET v = 'c' WHERE d = 1"),
    ],
    ids=["other keys", "one key"],
)
def test_a_table_stops_where_a_row_is_not_known_and_the_others_go_on(
    recorded: Recorded, keys: Sequence[str], rows: str, change: str
) -> None:
    unique = [f"ALTER TABLE ev_{number} ADD PRIMARY KEY ({key})" for number, key in enumerate(keys, 1)]
    recorded.begin(ROOT.format(""), *LEAVES, *unique, FULL, "CREATE TABLE o (id int PRIMARY KEY)")
    assert recorded.run(f"INSERT INTO ev VALUES {rows}", "INSERT INTO o VALUES (1)") == []
    assert recorded.has("ev")
    described = "INSERT INTO ev VALUES (8, 1, 'x'), (9, 2, 'x2')"
    stopped = recorded.run(described, change, "INSERT INTO o VALUES (2)")
    assert len(stopped) == 2
    for kind, text in zip(("state", "history"), stopped, strict=True):
        assert text.startswith(f"{kind} of public.ev stops before ")
        assert 'ALTER TABLE "public"."ev_1" REPLICA IDENTITY FULL;' in text
        assert text.endswith("--snapshot-table public.ev")
    assert not recorded.has("ev")
    assert recorded.has("o")
    # It is said again, with and without new changes, and nothing is applied.
    before = at(recorded.out, "state/public.ev")
    assert recorded.run("INSERT INTO o VALUES (3)", "INSERT INTO ev VALUES (10, 1, 'y')") == stopped
    assert recorded.run() == stopped
    assert at(recorded.out, "state/public.ev") == before
    assert recorded.has("o")
    cure = [f"ALTER TABLE ev_{number} REPLICA IDENTITY FULL" for number in (1, 2)]
    assert recorded.run(*cure, "UPDATE ev SET v = 'z' WHERE d = 1") == stopped
    assert recorded.run("DELETE FROM ev WHERE id = 10", options=["--snapshot-table", "public.ev"]) == []
    assert recorded.run("UPDATE ev SET v = 'end' WHERE id = 9") == []
    assert recorded.has("ev")


@since(13)
def test_a_table_that_stops_in_its_first_batch_is_not_there(recorded: Recorded) -> None:
    keys = [f"ALTER TABLE ev_{number} ADD PRIMARY KEY ({key})" for number, key in ((1, "id"), (2, "v"))]
    recorded.begin(ROOT.format(""), *LEAVES, *keys, FULL, "CREATE TABLE o (id int PRIMARY KEY)")
    rows = "INSERT INTO ev VALUES (1, 1, 'a'), (2, 2, 'b')"
    assert len(recorded.run(rows, "DELETE FROM ev WHERE d = 1", "INSERT INTO o VALUES (1)")) == 2
    assert recorded.has("o")
    assert {one.table for one in entries(locate(str(recorded.out))) if one.kind != "tables"} == {"o"}
    places = [str(recorded.folder / name) for name in ("capture", "other")]
    _, said = pgtail("spark", "state", *places, *CONF, status=1)
    assert "error: state of public.ev stops before " in said
    assert "\\n" not in said
    assert not [*(recorded.folder / "other" / "state" / "public.ev").rglob("*")]


def test_a_capture_without_the_partition_stops_where_an_old_row_is_missing(spark: Any, tmp_path: Path) -> None:
    """As segments of an older recorder: REPLICA IDENTITY FULL sends an old row with every update, that of a partition
    with a key does not."""
    changes = [encode.insert("1", "a"), encode.update(["1", "b"]), encode.insert("2", "c", oid=101)]
    described = [encode.relation(101, "o"), encode.relation(identity="f")]
    record(tmp_path / "capture", map(encode.frame, [encode.begin(), *described, *changes, encode.commit()]))
    [stopped] = apply(spark, tmp_path / "out", [str(tmp_path / "capture")]).stopped
    assert stopped.startswith("state of public.t stops before 0/100: which row was changed there is not known, as a")
    assert at(tmp_path / "out", "state/public.o") == [(2, "c")]
    assert not (tmp_path / "out" / "state" / "public.t" / "_delta_log").exists()


@since(13)
def test_verify_names_what_a_partitioned_table_does_not_send(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.begin(ROOT.format(", PRIMARY KEY (id, d)"), *LEAVES, "CREATE TABLE o (id int PRIMARY KEY)")
    assert recorded.run("INSERT INTO ev VALUES (1, 1, 'a'), (2, 2, 'b')", "INSERT INTO o VALUES (1)") == []
    recorded.database.execute("TRUNCATE ev_1")
    monkeypatch.setattr("pgtail.commands.spark.verify.session", lambda *_, **__: contextlib.nullcontext(recorded.spark))
    capture, conninfo = str(recorded.folder / "capture"), recorded.database.conninfo()
    with started([*PROGRAM, "record", conninfo, "-S", model.SLOT, "-D", capture, "--segment-age=1s"]) as recorder:
        ran = here("spark", "verify", "-o", "table", capture, str(recorded.out), conninfo)
        recorder.terminate()
        recorder.wait()
    assert ran.status == 1, ran.stderr
    words = " ".join(ran.stdout.decode().split())
    assert "extra: id=1, d=1" in words
    assert (
        "public.ev: ATTACH PARTITION of a table with rows, DETACH PARTITION and TRUNCATE of a partition send" in words
    )
    assert "public.o:" not in words
