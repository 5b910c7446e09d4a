"""`pgtail spark` from and to object stores: what is recorded there becomes the tables that a local run makes."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import polars as pl
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from pyarrow.fs import LocalFileSystem

import pgtail.spark
from pgtail.capture.state import FILE, read_state, state_json
from pgtail.cli import main
from pgtail.errors import InputError, OutputError
from pgtail.spark import changes, read, relations
from pgtail.spark.lake.batches import Batches
from pgtail.spark.lake.catalog import entries
from pgtail.spark.lake.update import Lake
from pgtail.spark.segments.listing import segments, survey_each
from pgtail.storage import NO_OPTIONS, Location, locate
from pgtail.storage.objects import ObjectLocation
from tests.spark.test_changes import in_order
from tests.support.corpus import capture
from tests.support.faulty_store import FaultyStore
from tests.support.limits import within
from tests.support.object_store import SECRET, AzureStore, EmulatedAzureStore, ObjectStore, Proxy
from tests.support.run import command
from tests.support.servers import Database, fresh_database
from tests.support.spark.captures import record, rows_of
from tests.support.spark.copied import Recording, Server, Snapshot
from tests.support.spark.quick import CONF, start

TABLES = ["changes", "transactions", "relations", "catalog"]


@pytest.fixture
def prefix() -> str:
    return uuid.uuid4().hex


@pytest.fixture(params=["s3", "gs", "az"])
def store(request: pytest.FixtureRequest, spark: Any, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """The server of each cloud; the address of Azurite is in the environment of the driver and the tasks."""
    found: ObjectStore = request.getfixturevalue(request.param)
    if not isinstance(found, AzureStore):
        return found
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", found.url)
    monkeypatch.setitem(spark.sparkContext.environment, "AZURITE_BLOB_STORAGE_URL", found.url)
    return EmulatedAzureStore(found.url)


def recorded(database: Database, s3: ObjectStore, prefix: str, spool: Path) -> str:
    """A capture in the bucket, by pgtail record, of several segments; returns its URI."""
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v text, big text)",
        "ALTER TABLE a ALTER big SET STORAGE EXTERNAL",
        "CREATE TABLE b (n numeric(10,2), at timestamp)",
        "ALTER TABLE b REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    uri = s3.uri(f"{prefix}/capture")
    place = ["-D", uri, "--spool", str(spool), *s3.arguments, "--until", "now"]
    for number in range(3):
        if number == 1:
            database.execute("ALTER TABLE b ADD c int[]")
        database.execute(
            f"INSERT INTO a SELECT g, 'v', repeat('x', 3000) FROM generate_series({number * 50}, {number * 50 + 49}) g",
            f"UPDATE a SET v = v || '!' WHERE id % 3 = {number % 3}",
            f"UPDATE a SET id = id + 1000 WHERE id = {number * 10}",
            "INSERT INTO b SELECT g / 4.0, timestamp '2020-01-01' + g * interval '1 h' FROM generate_series(1, 20) g",
            "DELETE FROM b WHERE n < 1",
        )
        done = command("record", database.conninfo(), "-S", f"s{prefix[:8]}", *place)
        assert done.status == 0, done.stderr
    return uri


@pytest.fixture
def here(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs `pgtail spark` in the session of the tests; returns what it says."""
    monkeypatch.setattr("pgtail.commands.spark.command.session", lambda *_, **__: contextlib.nullcontext(spark))

    def run(*arguments: str, status: int = 0) -> str:
        done = CliRunner().invoke(main, ["spark", *arguments])
        assert done.exit_code == status, done.output
        return done.output

    return run


def tables_of(out: Location) -> dict[str, list[str]]:
    """The rows of every table below OUT, as Polars reads them."""
    names = [*TABLES, *(entry.folder for entry in entries(out))]
    found = {}
    for name in names:
        rows = pl.scan_delta(str(out / name), storage_options=out.storage.as_dict()).collect()
        found[name] = sorted(map(repr, rows.select(sorted(rows.columns)).rows()))
    return found


def kill_in_the_middle(arguments: list[str], out: Location, store: ObjectStore) -> None:
    """Run the command, and kill it and its JVM when it has begun to commit.

    The store's keys are in the environment, and no command line of one of its processes has them.
    """
    process = start(arguments, env={**os.environ, **store.environment})
    words = dict[str, bytes]()
    try:
        end = time.monotonic() + within(100)
        while not (out / "_batches" / "_delta_log").list():
            assert process.poll() is None
            assert time.monotonic() < end
            words |= command_lines(process.pid)
            time.sleep(0.05)
        delay = random.uniform(0, 2)
        print("killed after", delay, "s")
        time.sleep(delay)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert len(words) > 1 or sys.platform != "linux"
    assert not [line for line in words.values() if SECRET.encode() in line]


def command_lines(group: int) -> dict[str, bytes]:
    """The command lines of the processes of a group, by process id; none where there is no /proc."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if os.getpgid(int(place.name)) == group:
                found[place.name] = (place / "cmdline").read_bytes()
    return found


def with_secrets(out: Location) -> list[str]:
    """The objects below OUT that have a key of the store in them: data, Delta logs, and what pgtail keeps."""
    assert isinstance(out, ObjectLocation)
    paths = [one["path"] for page in obstore.list(out.store(), prefix=out.key) for one in page]
    assert any("_delta_log" in path for path in paths)
    return [path for path in paths if SECRET.encode() in bytes(obstore.get(out.store(), path).bytes())]


def test_killed_in_the_middle_and_run_again_it_gives_the_local_result(
    spark: Any, newest_server: Any, s3: ObjectStore, prefix: str, tmp_path: Path, here: Callable[..., str]
) -> None:
    with fresh_database(newest_server) as database:
        uri = recorded(database, s3, prefix, tmp_path / "spool")
    out = s3.locate(f"{prefix}/out")
    local_master = ["--master=local[2]", *CONF]
    remote = [*local_master, *s3.arguments, uri, str(out)]
    kill_in_the_middle(["all", *local_master, uri, str(out)], out, s3)
    here("all", *remote)

    copy, local = tmp_path / "capture", tmp_path / "out"
    copy.mkdir()
    for name, _ in s3.locate(f"{prefix}/capture").list():
        (copy / name).write_bytes((s3.locate(f"{prefix}/capture") / name).read()[0])  # type: ignore[index]
    here("all", str(copy), str(local))
    expected = tables_of(locate(str(local)))
    assert tables_of(out) == expected
    assert len(expected) == len(TABLES) + 6
    assert all(expected.values())

    for name in (*TABLES, "tables/public.b", "state/public.a", "history/public.b"):
        found, plain = (
            read(spark, str(place), name, storage=storage) for place, storage in ((out, s3.options), (local, None))
        )
        assert found.schema == plain.schema
        assert sorted(map(repr, found.collect())) == sorted(map(repr, plain.collect())) != []
    plain_b = read(spark, str(local), "tables/public.b")
    assert plain_b.where("c IS NULL").count() > 0, "files from before the column was added"
    for columns in (["c"], ["c", "_position", "n"]):
        for place, storage in ((out, s3.options), (local, None)):
            found = read(spark, str(place), "tables/public.b", columns=columns, storage=storage)
            assert found.columns == columns
            assert sorted(map(repr, found.collect())) == sorted(map(repr, plain_b.select(columns).collect()))
            with pytest.raises(InputError, match="there is no column d; there are n, at, c, "):
                read(spark, str(place), "tables/public.b", columns=["n", "d"], storage=storage)

    listed = here("vacuum", *s3.arguments, str(out))
    assert "would be removed with --delete" in listed
    said = here("changes", "--compact", *remote)
    assert said.startswith("pgtail: 0 new segments\n")
    assert re.search(r"[1-9]\d* small files merged", said)
    assert tables_of(out) == expected
    assert with_secrets(out) == []


def test_the_data_source_and_the_functions_read_a_bucket(
    spark: Any, s3: ObjectStore, prefix: str, tmp_path: Path
) -> None:
    paths = record(capture("A_dml", "p1"), tmp_path / "capture")
    uri = s3.upload(tmp_path / "capture", prefix)
    assert in_order(changes(spark, uri, storage=s3.options)) == rows_of(paths)
    assert relations(spark, [uri], storage=s3.options).count() == relations(spark, str(tmp_path / "capture")).count()
    spark.dataSource.register(pgtail.spark.DataSource)
    storage = {f"storage.{name}": value for name, value in s3.options.items()}
    assert in_order(spark.read.format("pgtail").options(**storage).load(uri)) == rows_of(paths)


def test_the_snapshots_that_a_capture_in_a_bucket_lists_are_read(
    spark: Any, s3: ObjectStore, prefix: str, tmp_path: Path
) -> None:
    made = Server(random.Random(1), 3)
    made.snapshot(made.tables)
    made.run(3)
    made.snapshot(made.tables[:1])
    Recording(tmp_path / "capture").record(made.steps)
    uri = s3.upload(tmp_path / "capture", prefix)
    found = changes(spark, uri, storage=s3.options)
    local = changes(spark, str(tmp_path / "capture"))
    assert sorted(map(repr, found.collect())) == sorted(map(repr, local.collect()))
    rows = sum(len(table.rows) for step in made.steps if isinstance(step, Snapshot) for table in step.tables)
    assert found.where("op = 'snapshot'").count() == rows > 0


@pytest.mark.parametrize("store", ["gs", "az"], indirect=True)
def test_two_batches_in_other_clouds(
    spark: Any, store: ObjectStore, prefix: str, tmp_path: Path, here: Callable[..., str]
) -> None:
    first, *others = record(capture("A_big", "p1_msg"), tmp_path / "capture", size=100_000)
    place, out, local = store.locate(f"{prefix}/in"), store.locate(f"{prefix}/out"), tmp_path / "out"
    for kind, paths in (("changes", [first]), ("tables", others)):
        for path in paths:
            (place / path.name).create(path.read_bytes())
        assert f"{len(paths)} new segment" in here(kind, *store.arguments, str(place), str(out))
    here("tables", str(tmp_path / "capture"), str(local))
    expected = tables_of(locate(str(local)))
    assert tables_of(out) == expected
    assert all(expected.values())
    found = read(spark, str(out), "changes", storage=store.options)
    assert sorted(map(repr, found.collect())) == sorted(map(repr, read(spark, str(local), "changes").collect()))


def test_segments_that_do_not_count_are_not_listed(s3: ObjectStore, prefix: str, tmp_path: Path) -> None:
    """They are being uploaded, or a recorder left them behind."""
    paths = record(capture("A_dml", "p1"), tmp_path / "capture", size=20_000)
    assert len(paths) > 4
    state = read_state(locate(str(tmp_path / "capture")))
    place, names = s3.locate(f"{prefix}/in"), [path.name.removesuffix(".pgcap") for path in paths]
    for path in paths:
        (place / path.name).create(path.read_bytes())
    (place / FILE).create(state_json(state._replace(uploaded=names[-2], discarded=frozenset([names[1]]))))
    found = segments([str(place)], place.storage)
    assert list(found) == [str(place / path.name) for path in (paths[0], *paths[2:-1])]


def test_a_capture_on_hdfs_is_listed_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By pyarrow's file system of the same interface: there is no HDFS server to test with."""
    monkeypatch.setattr("pgtail.storage.hdfs.file_system", lambda server: LocalFileSystem())
    record(capture("A_dml", "p1"), tmp_path / "capture", size=20_000)
    local, remote = (f"{server}{tmp_path}/capture" for server in ("", "hdfs://host"))
    found = [survey_each(segments([place]), NO_OPTIONS) for place in (local, remote)]
    for one, other in zip(*found, strict=True):
        assert replace(other, path=other.path.removeprefix("hdfs://host")) == one
    assert len(found[0]) > 1


def test_of_two_writers_one_gets_an_error(spark: Any, store: ObjectStore, prefix: str, tmp_path: Path) -> None:
    paths = record(capture("D_twophase", "p3_2pc"), tmp_path / "capture", size=100_000)
    out = store.locate(f"{prefix}/out")
    for number in range(2):
        one, other = (Lake(spark, str(out), storage=out.storage) for _ in range(2))
        one.update([str(paths[number])])
        with pytest.raises(OutputError, match=f"another process writes to {out}/_batches"):
            other.update([str(paths[number])])
    assert Batches(out).plan.batch == 2
    assert in_order(read(spark, str(out), "changes", storage=store.options)) == rows_of(paths[:2])


def test_a_store_that_fails_now_and_then_gets_each_change_once(
    spark: Any, s3: ObjectStore, prefix: str, tmp_path: Path, seed: random.Random
) -> None:
    """Also where a commit of a table was carried out, and its answer lost: an update that failed is repeated."""
    paths = record(capture("A_dml", "p1"), tmp_path / "capture", size=20_000)
    proxy = FaultyStore(s3.url, seed, chance=0.1)
    out = ObjectStore(proxy.url).locate(f"{prefix}/out")
    failures: list[str] = []
    for number in range(1, 4):
        given = [str(path) for path in paths[: len(paths) * number // 3]]
        for _ in range(50):
            try:
                Lake(spark, str(out), storage=out.storage).update(given)
                break
            except (InputError, OutputError) as error:
                failures.append(str(error))
    print(len(failures), "updates failed;", proxy.tried)
    proxy.close()
    assert len(proxy.tried) > 3
    assert SECRET not in "".join(failures)
    direct = s3.locate(f"{prefix}/out")
    assert in_order(read(spark, str(direct), "changes", storage=s3.options)) == rows_of(paths)


def test_what_cannot_be_reached_is_an_error(spark: Any, s3: ObjectStore, prefix: str, tmp_path: Path) -> None:
    [path] = record(capture("Z_small", "p1"), tmp_path / "capture")
    missing = ObjectStore(s3.url, "no-such-bucket").locate("out")
    with pytest.raises(InputError, match="no-such-bucket/out.*NoSuchBucket"):
        Lake(spark, str(missing), storage=missing.storage)
    proxy = Proxy(s3.url)
    out = ObjectStore(proxy.url).locate(f"{prefix}/out")
    lake = Lake(spark, str(out), storage=out.storage)
    proxy.cut()
    with pytest.raises(OutputError, match="Connection refused") as error:
        lake.update([str(path)])
    assert SECRET not in str(error.value)
    proxy.restore()
    Lake(spark, str(out), storage=out.storage).update([str(path)])
    assert in_order(read(spark, str(out), "changes", storage=s3.options)) == rows_of([path])
