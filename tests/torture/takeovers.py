"""Two recorders with --wait on one slot; one takes over from the other, again and again.

The one that records is killed, ended, frozen without its connection, or only loses its connection; a frozen one wakes
up when the other has gone on. Into an object store, where each has a spool of its own, which is lost at times; and into
a directory that both have, where it is killed or ended.

The truth is a second slot, made at the same time and read once at the end, and the workload's own tables.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from pgtail.capture.state import read_state
from tests.support.limits import within
from tests.support.run_process import PROGRAM
from tests.support.servers import Database
from tests.support.tail import wait_for
from tests.torture.bench import Bench
from tests.torture.kills import Target, compare, written

TAKEOVERS = 10
_OPTIONS = ["--wait", "--segment-size", "60kB", "--segment-age", "0.7", "--sync-interval", "0.05"]
_WAYS = ["kill", "kill", "end", "freeze", "cut"]
"""How the one that records is disturbed; into a directory only by the first three: a frozen one has it locked."""
_ACTIVE = (
    "SELECT a.application_name FROM pg_replication_slots s JOIN pg_stat_activity a ON a.pid = s.active_pid"
    " WHERE s.slot_name = 'cap'"
)
_CUT = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'cap'"


@dataclass
class Machine:
    """One of the two recorders."""

    name: str
    database: Database
    target: Target
    running: subprocess.Popen[bytes] | None = None
    said: Path = field(init=False)

    def __post_init__(self) -> None:
        self.said = self.target.folder / f"{self.name}.log"

    def start(self) -> None:
        environment = {**os.environ, **self.target.environment, "PGAPPNAME": self.name}
        arguments = ["record", self.database.conninfo(), "-S", "cap", *self.arguments, *_OPTIONS]
        with self.said.open("ab") as log:
            self.running = subprocess.Popen(
                [*PROGRAM, *arguments], stderr=log, stdin=subprocess.DEVNULL, env=environment
            )

    @property
    def arguments(self) -> list[str]:
        spool = [] if self.target.store is None else ["--spool", str(self.spool)]
        return ["-D", self.target.place, *spool]

    @property
    def spool(self) -> Path:
        return self.target.folder / f"spool {self.name}"

    def send(self, number: signal.Signals) -> None:
        assert self.running is not None
        self.running.send_signal(number)

    def end(self, number: signal.Signals) -> None:
        self.send(number)
        assert self.running is not None
        self.running.wait(within(60))

    def check_runs(self) -> None:
        assert self.running is not None
        assert self.running.poll() is None, self.said.read_text()


class _Pair:
    """The two recorders of a capture, and what happens to them."""

    def __init__(self, database: Database, target: Target, rng: random.Random) -> None:
        self._database = database
        self._target = target
        self._rng = rng
        self.machines = [Machine(name, database, target) for name in ("pgtail_a", "pgtail_b")]
        self.seconds: list[float] = []
        """From the loss of the one to when the other has the slot."""

    def active(self) -> Machine | None:
        """Who has the slot."""
        names = [name for (name,) in self._database.query(_ACTIVE)]
        return next((one for one in self.machines if one.name in names), None)

    def _has_slot(self, one: Machine) -> bool:
        """Whether this one has it; a session that the other, frozen one had just begun is ended."""
        active = self.active()
        if active is not one:
            self._database.query(_CUT)
        return active is one

    def disturb(self) -> None:
        """One takes over from the other."""
        rng = self._rng
        time.sleep(rng.uniform(0.2, 1.5))
        first: Machine = wait_for("recorder", self.active)
        other = next(one for one in self.machines if one is not first)
        how = rng.choice(_WAYS if self._target.store is not None else _WAYS[:3])
        begun, before = time.monotonic(), self._position()
        if how == "kill":
            first.end(signal.SIGKILL)
        elif how == "end":
            first.end(signal.SIGTERM)
        else:
            if how == "freeze":
                first.send(signal.SIGSTOP)
            self._database.query(_CUT)
        if how != "cut":
            wait_for("take-over", lambda: self._has_slot(other), 60)
            self.seconds.append(time.monotonic() - begun)
        wait_for("progress", lambda: self._position() > before, 60)
        if how == "freeze":
            first.send(signal.SIGCONT)
        elif how != "cut":
            if self._target.store is not None and rng.random() < 0.25:
                shutil.rmtree(first.spool, ignore_errors=True)
            first.start()
        for one in self.machines:
            one.check_runs()

    def _position(self) -> int:
        return read_state(self._target.location).position

    def finish(self) -> None:
        """Record the rest with one of them."""
        for one in self.machines:
            one.end(signal.SIGTERM)
        last = self.machines[self._rng.randrange(2)]
        arguments = ["record", self._database.conninfo(), "-S", "cap", *last.arguments, *_OPTIONS, "--until", "now"]
        environment = {**os.environ, **self._target.environment}
        subprocess.run([*PROGRAM, *arguments], env=environment, check=True, timeout=within(120))


def trial(bench: Bench, choose: random.Random) -> str:
    """Let one take over from the other some times; raises AssertionError if the capture differs from the workload."""
    with written(bench.newest, choose, bench.turn((None, bench.s3)), 0.03) as (database, target, writer):
        pair = _Pair(database, target, choose)
        try:
            for one in pair.machines:
                one.start()
            for _ in range(TAKEOVERS):
                pair.disturb()
            writer.stop()
        except BaseException:
            for one in pair.machines:
                if one.running is not None:
                    one.running.kill()
                    bench.say(one.said.read_text()[-2000:])
            raise
        pair.finish()
        same = compare(database, target)
    some = sorted(pair.seconds) or [0.0]
    return f"{same}, taken over after {statistics.median(some):.1f} s, at most {some[-1]:.1f} s"
