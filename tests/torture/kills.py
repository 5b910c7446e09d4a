"""Kills of pgtail record at random moments during a workload: nothing may be lost or doubled.

Into a directory, and into an object store: there some kills also lose the spool, as a machine that is gone.

The truth is a second slot, made at the same time and read once at the end, and the workload's own tables.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pgtail.capture import reader
from pgtail.demo.server import EmbeddedServer
from pgtail.storage import Location
from pgtail.storage.local import LocalLocation
from tests.support.captures import segments
from tests.support.limits import within
from tests.support.object_store import ObjectStore
from tests.support.run import command
from tests.support.servers import Database, fresh_database
from tests.support.tail import wait_for
from tests.torture.bench import Bench, Session, Writer

KILLS = 20
_RECORD = [sys.executable, "-c", "from pgtail.__main__ import main; main()", "record"]
_OPTIONS = ["--segment-size", "60kB", "--segment-age", "0.7", "--sync-interval", "0.05"]
SCHEMA = (
    "CREATE TABLE log (id bigint PRIMARY KEY, text text)",
    "CREATE TABLE counter (id int PRIMARY KEY, value bigint)",
    "INSERT INTO counter VALUES (1, 0)",
    "CREATE PUBLICATION everything FOR ALL TABLES",
    *[f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')" for slot in ("cap", "truth")],
)


@dataclass(frozen=True)
class Target:
    """Where to record: a directory, or a prefix of an object store with a spool."""

    folder: Path
    store: ObjectStore | None = None

    @property
    def place(self) -> str:
        return str(self.folder / "capture") if self.store is None else self.store.uri(self.folder.name)

    @property
    def location(self) -> Location:
        return LocalLocation(self.folder / "capture") if self.store is None else self.store.locate(self.folder.name)

    @property
    def arguments(self) -> list[str]:
        return ["-D", self.place, *([] if self.store is None else ["--spool", str(self.folder / "spool")])]

    @property
    def environment(self) -> dict[str, str]:
        return {} if self.store is None else self.store.environment

    def lose_spool(self) -> None:
        shutil.rmtree(self.folder / "spool", ignore_errors=True)

    def segments(self) -> list[Path]:
        """The segments; those of a store are downloaded."""
        if self.store is None:
            return segments(self.folder / "capture")
        directory = self.folder / "downloaded"
        directory.mkdir()
        for found in reader.segments(self.location):
            with found.location.open() as file:
                (directory / found.location.name).write_bytes(file.read())
        return segments(directory)


@contextlib.contextmanager
def written(
    server: EmbeddedServer, choose: random.Random, store: ObjectStore | None, pause: float = 0.003
) -> Iterator[tuple[Database, Target, Writer]]:
    """A database that is being written, with the slots `cap`, to be recorded, and `truth`; and where to record."""
    random_rows = random.Random(choose.random())

    def transaction(session: Session) -> None:
        rows = 2000 if random_rows.random() < 0.01 else random_rows.randint(1, 5)
        with session.transaction():
            session.execute("UPDATE counter SET value = value + 1")
            session.execute(
                "INSERT INTO log SELECT coalesce((SELECT max(id) FROM log), 0) + i, repeat(md5(i::text), 4)"
                " FROM generate_series(1, %s) i",
                (rows,),
            )
            if random_rows.random() < 0.1:
                session.execute("DELETE FROM log WHERE id = (SELECT min(id) FROM log)")

    with fresh_database(server) as database, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        database.execute(*SCHEMA)
        with Writer(database, transaction, pause) as writer:
            yield database, Target(Path(folder), store), writer


def trial(bench: Bench, choose: random.Random) -> str:
    """Kill it some times; the server is restarted once."""
    return kill(bench.newest, choose, KILLS, bench.turn((None, bench.s3)), restart=True)


def kill(
    server: EmbeddedServer, choose: random.Random, kills: int, store: ObjectStore | None, *, restart: bool = False
) -> str:
    """Kill it so often; raises AssertionError if the capture differs from the workload."""
    with written(server, choose, store) as (database, target, writer):
        restarted = choose.randrange(kills) if restart else None
        for number in range(kills):
            _record_and_kill(database, target, choose.uniform(0.15, 0.9 if store is None else 2.5))
            if store is not None and choose.random() < 0.25:
                target.lose_spool()
            if number == restarted:
                server.restart(choose.choice(["fast", "immediate"]))
        writer.stop()
        record_rest(database, target)
        return compare(database, target)


def started_on(database: Database, target: Target, *options: str) -> subprocess.Popen[bytes]:
    """Record. The slot may still be in use by the walsender of a killed run."""
    wait_for(
        "free slot",
        lambda: not database.value("SELECT active FROM pg_replication_slots WHERE slot_name = 'cap'"),
    )
    arguments = [database.conninfo(), "-S", "cap", *target.arguments, *_OPTIONS, *options]
    environment = {**os.environ, **target.environment}
    return subprocess.Popen([*_RECORD, *arguments], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment)


def record_rest(database: Database, target: Target) -> None:
    """Record up to now. Where the kills left no time to upload, there are thousands of segments."""
    run = started_on(database, target, "--until", "now")
    _, said = run.communicate(timeout=within(300))
    assert run.returncode == 0, said


def _record_and_kill(database: Database, target: Target, seconds: float) -> None:
    run = started_on(database, target)
    try:
        _, said = run.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        run.kill()
        run.communicate()
    else:
        raise AssertionError(f"record ended by itself: {run.returncode} {said.decode()}")


def compare(database: Database, target: Target) -> str:
    """Compare the capture with the other slot and the table; returns what is in it."""
    recorded = command("decode", "-o", "json", target.place, timeout=300, environment=target.environment)
    assert (recorded.status, recorded.stderr) == (0, ""), recorded.stderr
    truth = command("stream", database.conninfo(), "-S", "truth", "--until", "now", "-o", "json", timeout=300)
    assert truth.status == 0, truth.stderr
    ours, theirs = recorded.lines, truth.lines
    files = target.segments()
    assert len(ours) == len(theirs)
    assert ours == theirs
    updates = [change["new"]["value"] for change in recorded.objects if change["table"] == "counter"]
    assert updates[-1] == database.value("SELECT value FROM counter")
    for path in files[:: max(1, len(files) // 20)]:
        alone = command("decode", "-o", "json", path)
        assert alone.status == 0, alone.stderr
        assert set(alone.lines) <= set(ours)
        subprocess.run(["gzip", "-t", path], check=True)
    return f"{len(ours)} changes in {len(files)} segments"
