"""`make torture`: kill pgtail record at random moments during a workload; nothing may be lost or doubled.

Into a directory, and into an object store: there some kills also lose the spool, as a machine that is gone.

The truth is a second slot, made at the same time and read once at the end, and the workload's own tables.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from pgtail.capture import reader
from pgtail.demo.server import EmbeddedServer
from pgtail.storage import Location
from pgtail.storage.local import LocalLocation
from tests.support.captures import segments
from tests.support.limits import within
from tests.support.object_store import ObjectStore, s3_store
from tests.support.run import command
from tests.support.servers import Database, Servers, fresh_database, installations
from tests.support.tail import wait_for

KILLS = 200
RESTARTS = 4
_RECORD = [sys.executable, "-c", "from pgtail.cli import main; main()", "record"]
Say = Callable[[str], None]
_OPTIONS = ["--segment-size", "60kB", "--segment-age", "0.7", "--sync-interval", "0.05"]


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


SCHEMA = """
CREATE TABLE log (id bigint PRIMARY KEY, text text);
CREATE TABLE counter (id int PRIMARY KEY, value bigint);
INSERT INTO counter VALUES (1, 0);
CREATE PUBLICATION everything FOR ALL TABLES;
"""


class Workload(threading.Thread):
    """Small transactions and some large ones, as fast as the server takes them; it survives a restart of the server."""

    def __init__(self, database: Database, rng: random.Random, pause: float = 0.05) -> None:
        super().__init__()
        self._database = database
        self._rng = rng
        self._pause = pause
        self.stopping = False
        self.restarting = threading.Lock()

    def run(self) -> None:
        while not self.stopping:
            with self.restarting, self._database.connect() as session:
                for _ in range(20):
                    self._transaction(session)
            time.sleep(self._pause)

    def end(self) -> None:
        """Write no more."""
        self.stopping = True
        self.join()

    def _transaction(self, session: psycopg.Connection[tuple[object, ...]]) -> None:
        rows = 2000 if self._rng.random() < 0.01 else self._rng.randint(1, 5)
        with session.transaction():
            session.execute("UPDATE counter SET value = value + 1")
            session.execute(
                "INSERT INTO log SELECT coalesce((SELECT max(id) FROM log), 0) + i, repeat(md5(i::text), 4)"
                " FROM generate_series(1, %s) i",
                (rows,),
            )
            if self._rng.random() < 0.1:
                session.execute("DELETE FROM log WHERE id = (SELECT min(id) FROM log)")


@contextmanager
def written(
    server: EmbeddedServer, seed: int, store: ObjectStore | None, pause: float = 0.05
) -> Iterator[tuple[Database, Target, Workload]]:
    """A database that is being written, with the slots `cap`, to be recorded, and `truth`; and where to record."""
    with fresh_database(server) as database, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for statement in SCHEMA.strip().split(";\n"):
            database.execute(statement)
        for slot in ("cap", "truth"):
            database.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        workload = Workload(database, random.Random(seed), pause)
        workload.start()
        try:
            yield database, Target(Path(folder), store), workload
        finally:
            workload.end()


def torture(
    server: EmbeddedServer,
    kills: int,
    restarts: int,
    seed: int,
    say: Say,
    store: ObjectStore | None = None,
) -> None:
    """Kill and restart; raises AssertionError if the capture differs from the workload."""
    rng = random.Random(seed)
    say(f"seed {seed}")
    with written(server, seed, store) as (database, target, workload):
        when = sorted(rng.sample(range(kills), restarts))
        for kill in range(kills):
            _record_and_kill(database, target, rng.uniform(0.15, 0.9 if store is None else 2.5))
            if store is not None and rng.random() < 0.25:
                target.lose_spool()
            if kill in when:
                say(f"restarting the server after {kill + 1} kills")
                with workload.restarting:
                    server.restart(rng.choice(["fast", "immediate"]))
        workload.end()
        record_rest(database, target)
        compare(database, target, say)


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


def compare(database: Database, target: Target, say: Say) -> None:
    recorded = command("decode", "-o", "json", target.place, timeout=300, environment=target.environment)
    assert (recorded.status, recorded.stderr) == (0, ""), recorded.stderr
    truth = command("stream", database.conninfo(), "-S", "truth", "--until", "now", "-o", "json", timeout=300)
    assert truth.status == 0, truth.stderr
    ours, theirs = recorded.lines, truth.lines
    files = target.segments()
    say(f"{len(ours)} changes recorded in {len(files)} segments, {len(theirs)} in the other slot")
    assert len(ours) == len(theirs)
    assert ours == theirs
    updates = [change["new"]["value"] for change in recorded.objects if change["table"] == "counter"]
    assert updates[-1] == database.value("SELECT value FROM counter")
    for path in files[:: max(1, len(files) // 20)]:
        alone = command("decode", "-o", "json", path)
        assert alone.status == 0, alone.stderr
        assert set(alone.lines) <= set(ours)
        subprocess.run(["gzip", "-t", path], check=True)


def each_place(count: int, torture: Callable[[EmbeddedServer, int, int, Say, ObjectStore | None], None]) -> None:
    """Do it on the newest server: into a directory, then into a store. The arguments of the command: count, seed."""
    servers = Servers()
    name = list(installations())[-1]
    count = int(sys.argv[1]) if len(sys.argv) > 1 else count
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 1_000_000
    begun = time.monotonic()
    try:
        with s3_store() as store:
            for place in (None, store):
                torture(servers.get(name), count, seed, lambda text: print(text, flush=True), place)
    finally:
        servers.close()
    print(f"{name}: twice {count}, nothing lost, nothing twice ({time.monotonic() - begun:.0f} s)")


if __name__ == "__main__":
    each_place(KILLS, lambda server, kills, *rest: torture(server, kills, RESTARTS, *rest))
