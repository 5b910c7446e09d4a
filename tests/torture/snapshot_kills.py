"""Kills of record --snapshot, and of the server, at random moments of a copy: nothing may be missing or there twice.

Into a directory, and into an object store. Between the kills the capture is read: each snapshot in it must be complete.

The truth are the tables at the end, when nobody writes.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Final

from pgtail.storage.local import LocalLocation
from tests.support.limits import within
from tests.support.replay import Replica, Snapshots
from tests.support.run import command
from tests.support.run_process import started
from tests.support.servers import Database, fresh_database
from tests.support.tail import parse, wait_for
from tests.torture.bench import Bench, Session, Writer
from tests.torture.kills import Target

KILLS: Final = 10
TABLES: Final = 4
_ROWS: Final = 1000
_SLOW: Final = """
import sys, time
from functools import partial
from pgtail.capture.snapshot_writer import SnapshotWriter
from pgtail.replication import record_snapshot

def finish(self, *given):
    time.sleep({pause})
    segments = finished(self, *given)
    print({part!r}, file=sys.stderr, flush=True)
    return segments

finished, SnapshotWriter.finish = SnapshotWriter.finish, finish
record_snapshot.snapshot_plan = partial(record_snapshot.snapshot_plan, part_bytes=3 * 8192)
from pgtail.cli import main
main()
"""
"""The command with small parts, and a pause at the end of each, which it tells."""
_PART: Final = "a part is written"
_PARTS: Final = 8
"""Fewer than a table has: a copy may be of the last table that an earlier one lacked."""


def _writing(database: Database, choose: random.Random) -> Writer:
    """Small transactions on random tables, and now and then a TRUNCATE."""

    def transaction(session: Session) -> None:
        table = f"t{choose.randrange(TABLES)}"
        count, some = choose.randint(1, 9), f"id IN (SELECT id FROM {table} ORDER BY random() LIMIT 3)"
        statements = [
            f"INSERT INTO {table} SELECT nextval('ids'), md5(i::text) FROM generate_series(1, {count}) i",
            f"UPDATE {table} SET text = md5(text) WHERE {some}",
            f"UPDATE {table} SET id = nextval('ids') WHERE {some}",
            f"DELETE FROM {table} WHERE {some}",
        ]
        if choose.random() < 0.004:
            statements = [f"TRUNCATE {table}"]
        with session.transaction():
            for statement in choose.sample(statements, min(2, len(statements))):
                session.execute(statement.encode())

    return Writer(database, transaction)


class _Kills:
    """The kills of one capture."""

    def __init__(self, database: Database, target: Target, rng: random.Random) -> None:
        self._database = database
        self._target = target
        self._rng = rng
        self._again: list[str] = []
        self.completed = self.killed = 0

    def kill(self, *, server: bool, pause: float) -> None:
        """Record with a snapshot, and end it at a random moment; another snapshot is begun when one is complete."""
        with tempfile.TemporaryFile() as file, self._started(file, pause, "--snapshot", *self._again) as run:
            self._wait_for_moment(run, file)
            if self._rng.random() < 0.2:
                self.read()
            if server:
                self._database.server.kill()
                self._database.server.start()
                time.sleep(self._rng.uniform(0, 0.5))
            # Without a server it cannot begin its stream: then it ends with status 75, and the next run goes on.
            assert run.poll() in ((None, 3, 75) if server else (None,)), _said(file)
            run.kill()
            run.wait()
            said = _said(file)
        assert "Traceback" not in said, said
        self.killed += 1
        done = "copied:" in said or "none is copied" in said
        self.completed += done
        self._again = ["--snapshot-table", self._rng.choice(["*", "t[0-2]", "t1"])] if done else []

    def _wait_for_moment(self, run: subprocess.Popen[bytes], file: IO[bytes]) -> None:
        """Most kills are while tables are copied, some before that or after."""
        if self._rng.random() < 0.2:
            time.sleep(self._rng.uniform(0.1, 1.5))
            return
        parts = self._rng.randrange(_PARTS)

        def reached() -> bool:
            said = _said(file)
            if re.search("copied:|none is copied", said) or run.poll() is not None:
                return True
            return "copying" in said and said.count(_PART) >= parts

        wait_for("copy", reached)
        time.sleep(self._rng.uniform(0, 0.05))

    def finish(self) -> None:
        """Record the rest."""
        with tempfile.TemporaryFile() as file, self._started(file, 0, "--snapshot", "--until", "now") as run:
            assert run.wait(within(120)) == 0, _said(file)

    def read(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Decode the capture, which a recorder may be writing; returns the changes, and the snapshots that are listed.

        Raises AssertionError unless each of the snapshots among the changes is complete.
        """
        if self._state() is None:
            return [], []
        found = command("decode", "-o", "json", self._target.place, timeout=120, environment=self._target.environment)
        assert found.status == 0, found.stderr
        # The last segment, which the recorder may have closed since the folder was listed, can end in a transaction.
        notes = found.stderr.splitlines()
        assert all(".pgcap.part" in note or "the input ends inside transaction" in note for note in notes), notes
        assert len(notes) <= 1, notes
        changes = [parse(line) for line in found.lines]
        listed: list[dict[str, Any]] = json.loads(self._state() or b"").get("snapshots", [])
        expected = {(one["lsn"], one["table"]): one["rows"] for one in listed}
        rows = Counter((_end(one["commit_lsn"]), one["table"]) for one in changes if one["op"] == "snapshot")
        assert all(expected[place] == count for place, count in rows.items()), (rows, expected)
        places = [(one["commit_lsn"], one["seq"]) for one in changes]
        assert len(places) == len({*places})
        return changes, listed

    def _state(self) -> bytes | None:
        """The content of capture.json."""
        store, folder = self._target.store, self._target.folder
        place = LocalLocation(folder / "capture") if store is None else store.locate(folder.name)
        found = (place / "capture.json").read()
        return None if found is None else bytes(found[0])

    def _started(self, file: IO[bytes], pause: float, *options: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Record. The slot may still be in use by the walsender of a killed run."""
        in_use = "SELECT 1 FROM pg_replication_slots WHERE slot_name = 'cap' AND active"
        wait_for("free slot", lambda: not self._database.query(in_use))
        arguments = ["record", self._database.conninfo(), "-S", "cap", *self._target.arguments, "--snapshot-jobs", "2"]
        arguments += ["--segment-size", "40kB", "--segment-age", "0.4", "--sync-interval", "0.05", *options]
        return started(
            [sys.executable, "-c", _SLOW.format(pause=pause, part=_PART), *arguments],
            stderr=file,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self._target.environment},
        )


def _said(file: IO[bytes]) -> str:
    """What the process has written so far; its position in the file stays."""
    return os.pread(file.fileno(), 1 << 20, 0).decode()


def _end(lsn: str) -> str:
    high, low = lsn.split("/")
    end = (int(high, 16) << 32 | int(low, 16)) + 1
    return f"{end >> 32:X}/{end & 0xFFFFFFFF:X}"


def trial(bench: Bench, choose: random.Random) -> str:
    """Kill the recorder some times, and in one case the server; raises AssertionError if the capture is wrong."""
    with fresh_database(bench.newest) as database, tempfile.TemporaryDirectory() as folder:
        database.execute("CREATE SEQUENCE ids", "CREATE PUBLICATION p FOR ALL TABLES")
        for table in range(TABLES):
            values = f"nextval('ids'), repeat(md5(i::text), 4) FROM generate_series(1, {_ROWS}) i"
            database.execute(
                f"CREATE TABLE t{table} (id bigint PRIMARY KEY, text text)", f"INSERT INTO t{table} SELECT {values}"
            )
        kills = _Kills(database, Target(Path(folder), bench.turn((None, bench.s3))), choose)
        with _writing(database, random.Random(choose.random())):
            crash = choose.randrange(KILLS)
            for number in range(KILLS):
                kills.kill(server=number == crash, pause=choose.choice([0.03, 0.1, 0.3]))
        kills.finish()
        changes, listed = kills.read()
        replica = Replica(Snapshots(listed))
        replica.apply(changes)
        replica.reach(1 << 64)
        assert replica.missed == set()
        for table in range(TABLES):
            found = Counter((row["id"], row["text"]) for row in replica.rows(f"public.t{table}"))
            assert found == Counter(database.query(f"SELECT id::text, text FROM t{table}"))
    return f"{kills.killed} killed, of which {kills.completed} after the snapshot was complete"
