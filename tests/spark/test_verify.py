"""`pgtail spark verify`: a state against the server, beside a recorder and writers."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import obstore
import pyarrow as pa
import pytest

from pgtail.capture.reader import reach_of
from pgtail.demo.server import EmbeddedServer
from pgtail.postgres.table_copy import sample_condition
from pgtail.spark.lake.batches import Batches
from pgtail.spark.lake.catalog import folder_in
from pgtail.spark.lake.delta import Commit, LakeTable
from pgtail.spark.lake.parquet import TableFolder, rows_in, write_file
from pgtail.spark.lake.update import Lake
from pgtail.spark.state.settings import Settings
from pgtail.spark.state.update import update_state
from pgtail.spark.verify.tables import sampled
from pgtail.storage import locate
from pgtail.storage.objects import ObjectLocation
from tests.support.object_store import ObjectStore
from tests.support.run import Result, here
from tests.support.run_process import PROGRAM, started
from tests.support.servers import Database, fresh_database
from tests.support.spark.world import apply
from tests.support.tail import wait_for
from tests.support.threads import meanwhile

ROWS = 600
TABLES = (
    "CREATE TABLE keyed (id int PRIMARY KEY, name text, total numeric, at timestamptz, body text)",
    "CREATE TABLE pair (a int, b text, n float8, PRIMARY KEY (a, b))",
    "CREATE TABLE bag (a int, b text)",
    "ALTER TABLE bag REPLICA IDENTITY FULL",
    "CREATE TABLE added (a int, b text)",
    "ALTER TABLE added REPLICA IDENTITY NOTHING",
    "CREATE TABLE empty (id int PRIMARY KEY)",
    f"INSERT INTO keyed SELECT i, 'n' || i, i / 7.0, 'epoch', repeat('x', 9) FROM generate_series(1, {ROWS}) i",
    f"INSERT INTO pair SELECT i, 'k,' || i, i / 3.0 FROM generate_series(1, {ROWS}) i",
    "INSERT INTO bag SELECT i % 10, NULLIF('b' || i % 3, 'b0') FROM generate_series(1, 200) i",
    "INSERT INTO added SELECT i % 10, 'a' FROM generate_series(1, 200) i",
    "CREATE PUBLICATION p FOR TABLE keyed, pair, bag, added, empty",
)


def statements(choose: Random) -> Iterator[str]:
    """Random writes, without an end."""
    while True:
        one, other = choose.randrange(1, ROWS), choose.randrange(1, ROWS)
        yield choose.choice(
            (
                f"UPDATE keyed SET name = 'u{other}' WHERE id % 50 = {one % 50}",
                f"UPDATE keyed SET body = repeat('{other}', 900), total = NULL WHERE id = {one}",
                f"DELETE FROM keyed WHERE id = {one}",
                f"INSERT INTO keyed VALUES ({one}, 'again', 'NaN', 'infinity') ON CONFLICT DO NOTHING",
                f"BEGIN; UPDATE pair SET a = -a WHERE a = {one}; UPDATE pair SET n = '-0' WHERE a = {other}; COMMIT",
                f"UPDATE bag SET b = 'c{other}' WHERE a = {one % 10}",
                f"DELETE FROM bag WHERE a = {one % 10} AND b IS NULL",
                f"INSERT INTO bag VALUES ({one % 10}, NULL), ({one % 10}, NULL)",
                f"INSERT INTO added VALUES ({one}, 'i')",
            )
        )


@dataclass
class Recorded:
    """A database that a recorder with --snapshot follows, and a state that has its rows."""

    database: Database
    capture: Path
    out: Path

    def reach(self) -> int:
        return reach_of(locate(str(self.capture))).position

    def wait(self) -> None:
        """Until what was committed so far can be read."""
        lsn = self.database.value("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")
        wait_for("closed segments", lambda: (self.capture / "capture.json").exists() and self.reach() >= lsn)


@pytest.fixture(scope="module")
def recorded(spark: Any, newest_server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    folder = tmp_path_factory.mktemp("verify")
    with fresh_database(newest_server) as database:
        database.execute(*TABLES)
        found = Recorded(database, folder / "capture", folder / "out")
        record = ["record", "-S", "verified", "--two-phase", "-D", str(found.capture), "--snapshot", "--segment-age=1s"]
        with started([*PROGRAM, *record, database.conninfo()]) as recorder:
            found.wait()
            apply(spark, found.out, [str(found.capture)], bucket_size=4_000)
            yield found
            recorder.terminate()
            recorder.wait()


@pytest.fixture
def stopped(recorded: Recorded, tmp_path: Path) -> Iterator[Path]:
    """A capture whose recorder has ended."""
    capture = tmp_path / "stopped"
    record = ["record", "-S", "stopped", "-D", str(capture), "-P", "p", "--until=now", recorded.database.conninfo()]
    with started([*PROGRAM, *record]) as recorder:
        assert recorder.wait() == 0
    yield capture
    recorded.database.execute("SELECT pg_drop_replication_slot('stopped')")


Verify = Callable[..., Result]


@pytest.fixture
def verify(spark: Any, recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> Verify:
    """Runs the command in the tests' session, with buckets for few rows."""
    monkeypatch.setattr("pgtail.spark.verify.tables.BUCKET", 4_000)

    def run(*options: str, status: int = 0, out: Path | str = recorded.out) -> Result:
        monkeypatch.setattr("pgtail.commands.spark.verify.session", lambda *_, **__: contextlib.nullcontext(spark))
        places = [str(recorded.capture), str(out), recorded.database.conninfo()]
        ran = here("spark", "verify", "-o", "json", *options, *places)
        assert ran.status == status, (ran.stdout, ran.stderr)
        assert not list(Path(out).glob("_verify-*")), "nothing is left of it"
        return ran

    return run


def tables(ran: Result) -> dict[str, dict[str, Any]]:
    return {line["table"]: line for line in ran.objects}


def versions(out: Path) -> dict[str, int]:
    """The version of every table."""
    return {str(log.parent): LakeTable(locate(str(log.parent))).version for log in out.rglob("_delta_log")}


def rows_of(database: Database, table: str) -> int:
    found: int = database.value(f"SELECT count(*) FROM {table}")
    return found


def repeated(work: Callable[[], object]) -> Callable[[threading.Event], None]:
    """Do this again and again, until the event is set."""

    def repeat(stop: threading.Event) -> None:
        while not stop.wait(0.02):
            work()

    return repeat


def writer(database: Database, seed: int) -> Callable[[], None]:
    some = statements(Random(seed))
    return lambda: database.execute(next(some))


def all_equal(found: dict[str, dict[str, Any]]) -> None:
    assert found.keys() == {"keyed", "pair", "bag", "added", "empty"}
    for one in found.values():
        assert one["rows"] == one["equal"]
        assert (one["unknown"], one["missing"], one["extra"], one["different"]) == (0, 0, 0, 0)
    assert found["keyed"]["rows"] > ROWS / 2
    assert found["empty"]["rows"] == 0


def test_equal_beside_writers_and_nothing_is_written(recorded: Recorded, verify: Verify) -> None:
    before = versions(recorded.out)
    with meanwhile(repeated(writer(recorded.database, 1)), repeated(writer(recorded.database, 2))):
        all_equal(tables(verify("-o", "json")))
    assert versions(recorded.out) == before
    notes = Batches(locate(str(recorded.out))).plan.notes["state"]
    assert max(one.buckets for one in notes.tables.values()) > 1
    slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    wait_for("end of the temporary slot", lambda: recorded.database.query(slots) == [("verified",)])


def test_equal_while_the_state_goes_on(spark: Any, recorded: Recorded, verify: Verify) -> None:
    """As with --watch, where files are removed as soon as they are replaced."""

    def bring_up() -> None:
        apply(spark, recorded.out, [str(recorded.capture)], retain=0.0)

    before = versions(recorded.out)
    with meanwhile(repeated(writer(recorded.database, 3)), repeated(bring_up)):
        all_equal(tables(verify("-o", "json")))
    assert (
        versions(recorded.out)[str(recorded.out / "state/public.keyed")]
        > before[str(recorded.out / "state/public.keyed")]
    )


def test_a_state_that_is_behind_the_changes_of_its_folder(spark: Any, recorded: Recorded, verify: Verify) -> None:
    """Also with a transaction that was prepared before the state's end, and committed after that of the changes."""
    database = recorded.database
    database.execute("UPDATE pair SET n = n")
    recorded.wait()
    database.execute("BEGIN; UPDATE keyed SET name = 'prepared' WHERE id < 100; PREPARE TRANSACTION 'before'")
    recorded.wait()
    apply(spark, recorded.out, [str(recorded.capture)])
    assert Batches(locate(str(recorded.out))).plan.notes["state"].pending
    database.execute("UPDATE pair SET n = 1.5 WHERE a % 2 = 0", "DELETE FROM keyed WHERE id > 500", "TRUNCATE bag")
    recorded.wait()
    assert Lake(spark, str(recorded.out)).update([str(recorded.capture)], typed=True).segments
    database.execute("COMMIT PREPARED 'before'", "INSERT INTO bag VALUES (1, 'after')")
    found = tables(verify("-o", "json"))
    assert {name: one["equal"] for name, one in found.items()} == {name: rows_of(database, name) for name in found}


def plant(out: Path, table: str, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the rows of a state's table, in a commit like that of a batch."""
    batches = Batches(locate(str(out)))
    name = folder_in(batches.out, "state", f"public.{table}")
    found = batches.table(name)
    assert found.schema is not None
    files = found.files()
    rows = pa.concat_tables([rows_in(found.place / file.path) for file in files])
    values = rows.to_pylist()
    change(values)
    added = write_file(
        TableFolder(found.place, "zstd").named_like(files[0].path), pa.Table.from_pylist(values, rows.schema)
    )
    batches.plan.batch += 1
    commit = Commit(name, found.schema, [added], [(file.path, file.size) for file in files])
    batches.commit(batches.plan, [commit])


@pytest.fixture
def planted(spark: Any, recorded: Recorded, tmp_path: Path) -> Path:
    """A state of its own, in which a value is changed, a row is missing, and there is a row too many."""
    out = tmp_path / "out"
    recorded.wait()
    apply(spark, out, [str(recorded.capture)])

    def change(rows: list[dict[str, Any]]) -> None:
        by_key = {row["a"]: row for row in rows}
        by_key[2]["n"] = 77.0
        rows.remove(by_key[4])
        rows.append({**by_key[6], "a": 10_000, "b": "extra"})

    recorded.database.execute(
        "DELETE FROM pair WHERE a IN (2, 4, 6)", "INSERT INTO pair VALUES (2, 'two', 1), (4, 'four', 1), (6, 'six', 1)"
    )
    recorded.wait()
    apply(spark, out, [str(recorded.capture)])
    plant(out, "pair", change)
    return out


def test_what_was_planted_is_found_with_its_key(recorded: Recorded, planted: Path, verify: Verify) -> None:
    found = tables(verify("-o", "json", "-t", "pair,keyed", status=1, out=planted))
    assert found.keys() == {"pair", "keyed"}
    pair = found["pair"]
    assert (pair["missing"], pair["extra"], pair["different"], pair["unknown"]) == (1, 1, 1, 0)
    assert pair["rows"] == rows_of(recorded.database, "pair") == pair["equal"] + 2
    assert pair["examples"] == {
        "different": [{"row": {"a": "2", "b": "two"}, "columns": ["n"]}],
        "extra": [{"row": {"a": "10000", "b": "extra"}, "columns": []}],
        "missing": [{"row": {"a": "4", "b": "four"}, "columns": []}],
    }
    assert found["keyed"]["equal"] == found["keyed"]["rows"]
    shown = verify("-o", "table", "-t", "pair", status=1, out=planted).stdout.decode()
    for words in (
        "different: a=2, b=two (n)",
        "missing: a=4, b=four",
        "1 table of 1 different at ",
        f"pgtail record -S verified -D {recorded.capture} --snapshot-table public.pair",
    ):
        assert words in shown


def no_links(source: Path, target: Path) -> None:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def test_a_sample_has_the_same_rows_on_both_sides(
    recorded: Recorded, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system without links, too."""
    monkeypatch.setattr("pgtail.spark.verify.scratch.os", SimpleNamespace(link=no_links))
    ran = verify("--sample", "25%", "-t", "keyed,added")
    found = tables(ran)
    keyed, added = found["keyed"], found["added"]
    assert f"2 tables copied: {keyed['rows'] + added['rows']} rows" in ran.stderr, "the server has sent no other"
    assert keyed["sample"] == 25
    assert 0 < keyed["rows"] < rows_of(recorded.database, "keyed") / 2
    assert keyed["equal"] == keyed["rows"]
    assert added["equal"] == rows_of(recorded.database, "added"), "without a key all are compared"


def test_what_the_stream_does_not_show(recorded: Recorded, verify: Verify) -> None:
    """A default of an added column is unknown to the state, a USING of the same type makes it wrong."""
    database = recorded.database
    database.execute(
        "DELETE FROM pair WHERE a = 3",
        "INSERT INTO pair VALUES (3, 'three', 1)",
        "ALTER TABLE keyed ADD COLUMN extra int DEFAULT 5",
        "ALTER TABLE added ADD COLUMN extra int DEFAULT 5",
        "INSERT INTO keyed VALUES (20000, 'new'), (20001, 'new')",
    )
    count = rows_of(database, "keyed")
    ran = verify("-o", "json", "-t", "keyed,added")
    found = tables(ran)
    assert (found["keyed"]["equal"], found["keyed"]["unknown"]) == (2, count - 2)
    assert len(found["keyed"]["examples"]["unknown"]) == 10
    assert {tuple(one["columns"]) for one in found["keyed"]["examples"]["unknown"]} == {("extra",)}
    assert found["added"]["unknown"] == found["added"]["rows"] == rows_of(database, "added")
    database.execute("ALTER TABLE pair ALTER n TYPE float8 USING CASE WHEN a = 3 THEN n + 1 ELSE n END")
    assert b"different: a=3, b=three (n)" in verify("-o", "table", "-t", "pair", status=1).stdout
    database.execute("DELETE FROM pair WHERE a = 3")


def test_what_cannot_be_compared_is_refused(recorded: Recorded, verify: Verify, tmp_path: Path) -> None:
    database = recorded.database
    assert "has no state" in verify(status=1, out=tmp_path).stderr
    (tmp_path / "file").touch()
    assert "has no state" in verify(status=1, out=tmp_path / "file").stderr
    assert "no table to compare" in verify("-t", "other", status=2).stderr
    database.execute("CREATE PUBLICATION few FOR TABLE keyed WITH (publish = 'insert, delete')")
    refused = verify("-P", "few", status=3).stderr
    assert 'publication "few" leaves out update, truncate' in refused
    assert "ALTER PUBLICATION" in refused
    database.execute("DROP PUBLICATION few")
    few = here("spark", "verify", recorded.capture, recorded.out)
    assert few.status == 2
    assert "expected CAPTURE... OUT DSN" in few.stderr


def test_another_database_is_refused(recorded: Recorded, tmp_path: Path, newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    ran = here("spark", "verify", recorded.capture, recorded.out, newest_database.conninfo())
    assert ran.status == 2
    assert f"was recorded from database {recorded.database.name}, not {newest_database.name}" in ran.stderr
    other = tmp_path / "other"
    record = ["record", "-S", "elsewhere", "-D", str(other), "--until=now", newest_database.conninfo()]
    with started([*PROGRAM, *record]) as recorder:
        assert recorder.wait() == 0
    ran = here("spark", "verify", other, recorded.out, newest_database.conninfo())
    assert ran.status == 1
    assert "is of another server or database than the state" in ran.stderr


def test_interrupted_while_it_waits(recorded: Recorded, stopped: Path) -> None:
    arguments = ["spark", "verify", str(stopped), str(recorded.out), recorded.database.conninfo()]
    with started([*PROGRAM, *arguments], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "waiting for captures" in line:
                break
        assert list(recorded.out.glob("_verify-*"))
        process.send_signal(signal.SIGINT)
        assert process.wait() == 128 + signal.SIGINT
        assert "interrupted" in process.stderr.read()
    assert not list(recorded.out.glob("_verify-*"))


def test_a_capture_that_does_not_go_on(recorded: Recorded, stopped: Path) -> None:
    ran = here("spark", "verify", "-q", "--timeout=1s", stopped, recorded.out, recorded.database.conninfo())
    assert ran.status == 1
    assert f"{stopped} is complete up to " in ran.stderr
    assert "(--timeout): does pgtail record run?" in ran.stderr
    assert not list(recorded.out.glob("_verify-*"))


def test_the_sample_is_by_the_md5_of_the_texts(spark: Any, recorded: Recorded) -> None:
    """So that SQL can choose the same rows."""
    versions_ = Lake(spark, str(recorded.out)).versions()["public", "pair"]
    rows = [(number, f"k,{number}") for number in range(500)]
    columns = {"a": pa.array([a for a, _ in rows], pa.int32()), "b": pa.array([b for _, b in rows])}
    rescued = pa.nulls(len(rows), pa.map_(pa.string(), pa.string()))
    found = pa.table({**columns, "n": pa.nulls(len(rows), pa.float64()), "_rescued": rescued})
    chosen = sampled(found, versions_[0], 300_000).tolist()
    condition = sample_condition(["a", "b"], 300_000)
    expected = recorded.database.query(
        f"SELECT {condition} FROM (SELECT i AS a, 'k,' || i AS b FROM generate_series(0, 499) i) keys ORDER BY a"
    )
    assert chosen == [one for (one,) in expected]
    assert 100 < sum(chosen) < 200


def test_a_state_in_an_object_store(spark: Any, recorded: Recorded, s3: ObjectStore, verify: Verify) -> None:
    out = s3.locate(f"verify/{uuid.uuid4().hex}")
    lake = Lake(spark, str(out), storage=out.storage)
    recorded.wait()
    lake.update([str(recorded.capture)], typed=True)
    update_state(lake, Settings())
    recorded.database.execute("UPDATE pair SET n = 2.5 WHERE a % 7 = 0", "DELETE FROM bag WHERE a = 2")
    before = {name: LakeTable(out / name).version for name in ("changes", "_batches", "state/public.pair")}
    found = tables(verify("-o", "json", "-t", "pair,bag", *s3.arguments, out=str(out)))
    assert {name: one["equal"] for name, one in found.items()} == {
        name: rows_of(recorded.database, name) for name in ("bag", "pair")
    }
    assert {name: LakeTable(out / name).version for name in before} == before
    assert isinstance(out, ObjectLocation)
    keys = [meta["path"] for page in obstore.list(out.store(), out.key) for meta in page]
    assert keys
    assert not [key for key in keys if "_verify-" in key], "nothing is left of it"
