"""An hour of a steady load as pgbench's, with broken connections now and then.

Memory and descriptors stay flat, changes arrive as soon at the end as at the beginning, and none is missing or twice.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import orjson

from pgtail.demo.server import EmbeddedServer
from tests.support.limits import within
from tests.support.servers import Database, fresh_database
from tests.support.tail import wait_for
from tests.torture.bench import Bench, Session, Writer

WRITERS: Final = 3
_ACCOUNTS: Final = 1000
_PAUSE: Final = 0.01
"""Seconds between two transactions of a writer."""
_GROWTH: Final = 4096
"""Kilobytes of memory that may be more at the end than after a quarter of the time."""
_PARTS: Final = 4
_SCHEMA: Final = (
    "CREATE TABLE accounts (aid int PRIMARY KEY, balance bigint NOT NULL, filler char(84))",
    "CREATE TABLE history (hid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aid int, delta int, at float8)",
    f"INSERT INTO accounts SELECT i, 0, '' FROM generate_series(1, {_ACCOUNTS}) i",
    "CREATE PUBLICATION p FOR TABLE accounts, history",
    "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
)
_NOW: Final = "extract(epoch FROM clock_timestamp())"


class Soak:
    """A load, its reader, and what was measured."""

    def __init__(self, database: Database, choose: random.Random) -> None:
        self._database = database
        self._choose = choose
        self.arrived: list[tuple[int, float]] = []
        """The key of each row of history, and how many seconds after it was written it came."""
        self.sizes: list[tuple[int, int]] = []
        """The memory in kilobytes and the number of descriptors, once a second or more often."""

    def run(self, seconds: float) -> list[str]:
        """Returns what is wrong."""
        words = ["stream", self._database.conninfo(), "-S", "s", "-P", "p", "--ack", "commit", "-o", "json"]
        with subprocess.Popen(
            [sys.executable, "-m", "pgtail", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            reader = threading.Thread(target=self._read, args=[process])
            said: list[bytes] = []
            assert process.stderr is not None
            told = threading.Thread(target=said.extend, args=[process.stderr])
            for thread in (reader, told):
                thread.start()
            with contextlib.ExitStack() as stack:
                for _ in range(WRITERS):
                    stack.enter_context(Writer(self._database, self._transaction, _PAUSE))
                wait_for("first row", lambda: self.arrived)
                self._watch(process.pid, seconds)
            rows = [hid for (hid,) in self._database.query("SELECT hid FROM history ORDER BY 1")]
            wait_for("last row", lambda: len(self.arrived) >= len(rows) or process.poll() is not None)
            process.terminate()
            status = process.wait(within(30))
            reader.join()
            told.join()
        wrong = [] if status == 0 else [f"exit status {status}: {b''.join(said)[-600:].decode()}"]
        if sorted(hid for hid, _ in self.arrived) != rows:
            wrong.append(f"{len(self.arrived)} rows came, {len({hid for hid, _ in self.arrived})} of {len(rows)}")
        return wrong + self._grown()

    def _transaction(self, session: Session) -> None:
        account, delta = self._choose.randint(1, _ACCOUNTS), self._choose.randint(-5000, 5000)
        with session.transaction():
            session.execute("UPDATE accounts SET balance = balance + %s WHERE aid = %s", (delta, account))
            session.execute(f"INSERT INTO history (aid, delta, at) VALUES (%s, %s, {_NOW})".encode(), (account, delta))

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            change = orjson.loads(line)
            if change["table"] == "history":
                self.arrived.append((change["new"]["hid"], time.time() - change["new"]["at"]))

    def _watch(self, pid: int, seconds: float) -> None:
        """Measure, and break the connection now and then."""
        end = time.monotonic() + seconds
        pause = min(1.0, seconds / 40)
        while time.monotonic() < end:
            time.sleep(pause)
            status = Path(f"/proc/{pid}/status").read_text()
            found = re.search(r"VmRSS:\s+(\d+) kB", status)
            assert found is not None
            self.sizes.append((int(found[1]), len(os.listdir(f"/proc/{pid}/fd"))))
            if self._choose.random() < max(0.05, 4 * pause / seconds):
                self._database.query("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")

    def _grown(self) -> list[str]:
        """What is more at the end."""
        memory, descriptors, delays = (
            _parts([size for size, _ in self.sizes]),
            _parts([count for _, count in self.sizes]),
            _parts([delay for _, delay in self.arrived]),
        )
        wrong = []
        if memory[-1] > memory[1] + _GROWTH:
            wrong.append(f"memory grew from {memory[1]:.0f} to {memory[-1]:.0f} kB")
        if descriptors[-1] > descriptors[1] + 1:
            wrong.append(f"descriptors grew from {descriptors[1]:.0f} to {descriptors[-1]:.0f}")
        if delays[-1] > 3 * delays[1] + within(0.3):
            wrong.append(f"the delay grew from {delays[1]:.3f} to {delays[-1]:.3f} s")
        return wrong

    def report(self) -> str:
        """What was measured, in a few words."""
        delays = sorted(delay * 1000 for _, delay in self.arrived)
        shown = [f"p{share} {delays[len(delays) * share // 100]:.1f} ms" for share in (50, 95, 99)]
        return (
            f"{len(delays)} rows, {', '.join(shown)}, at most {delays[-1]:.0f} ms; memory at most"
            f" {max(size for size, _ in self.sizes) / 1024:.0f} MB, {max(count for _, count in self.sizes)} descriptors"
        )


def _parts(values: Sequence[float]) -> list[float]:
    """The median of each quarter."""
    size = len(values) / _PARTS
    return [statistics.median(values[int(n * size) : int((n + 1) * size)]) for n in range(_PARTS)]


def trial(bench: Bench, choose: random.Random) -> str:
    """A load of an hour."""
    return load(bench.newest, choose, bench.size(3600, 20))


def load(server: EmbeddedServer, choose: random.Random, seconds: float) -> str:
    """A load of so many seconds; raises AssertionError if something was wrong."""
    with fresh_database(server) as database:
        database.execute(*_SCHEMA)
        soak = Soak(database, choose)
        wrong = soak.run(seconds)
        assert not wrong, f"{soak.report()}: {wrong}"
        return soak.report()
