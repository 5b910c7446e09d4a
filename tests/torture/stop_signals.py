"""`make torture`: SIGINT, SIGTERM and SIGHUP to every command at random moments, half of them on a pseudo-terminal.

Each ends in time, with the exit status of its man page, without a traceback, and leaves nothing behind: no slot in use,
no process, no temporary file, and the terminal as it was.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.stopping.trial import Trial, no_terminal, run_trial, time_limit
from tests.support.captures import segments
from tests.support.run import command
from tests.support.servers import Database, Servers, fresh_database, installations
from tests.support.signals import reset_ignored_signals
from tests.torture.signal_targets import TARGETS, Place, Target

TRIALS = 300
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SCHEMA = (
    "CREATE TABLE t (id bigserial PRIMARY KEY, note text)",
    "ALTER TABLE t REPLICA IDENTITY FULL",
    "CREATE PUBLICATION p FOR ALL TABLES",
    "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
    "SELECT pg_create_logical_replication_slot('cap', 'pgoutput')",
)
_TRANSACTIONS = (
    "INSERT INTO t (note) SELECT md5(i::text) FROM generate_series(1, 5) i",
    "INSERT INTO t (note) SELECT repeat(md5(i::text), 3) FROM generate_series(1, 500) i",
    "UPDATE t SET note = note || 'x' WHERE id > (SELECT max(id) - 20 FROM t)",
    "DELETE FROM t WHERE id < (SELECT max(id) - 2000 FROM t)",
)
_IN_USE = """
SELECT 'slot ' || slot_name FROM pg_replication_slots WHERE database = current_database() AND (active OR temporary)
UNION ALL
SELECT 'session ' || left(query, 60) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'pgtail'
"""


class Workload(threading.Thread):
    """Transactions with very short pauses."""

    def __init__(self, database: Database, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._database = database
        self._chance = chance
        self._over = threading.Event()

    def run(self) -> None:
        with self._database.connect() as session:
            while not self._over.wait(0.03):
                session.execute(self._chance.choice(_TRANSACTIONS).encode())

    def stop(self) -> None:
        self._over.set()
        self.join()


@contextlib.contextmanager
def place(database: Database, chance: random.Random) -> Iterator[Place]:
    """The database set up and under a workload, and a folder with a capture and a dump of some of it."""
    with tempfile.TemporaryDirectory() as folder:
        database.execute(*_SCHEMA, *_TRANSACTIONS * 5)
        found = Place(database.conninfo(), Path(folder))
        (found.folder / "csv").mkdir()
        recorded = command("record", found.conninfo, "-S", "cap", "-D", found.folder / "finished", "--until", "now")
        assert recorded.status == 0, recorded.stderr
        shutil.copy(segments(found.folder / "finished")[0], found.folder / "dump")
        workload = Workload(database, chance)
        workload.start()
        try:
            yield found
        finally:
            workload.stop()


def torture(database: Database, target: Target, trials: int, seed: int, say: Callable[[str], None]) -> list[str]:
    """Run trials of one command; returns what was wrong."""
    chance, wrong = random.Random(f"{seed} {target.name}"), []
    seconds: list[float] = []
    with place(database, chance) as where:
        for number in range(trials):
            sent, terminal = SIGNALS[number % 3], number % 2 == 1 and no_terminal() is None
            if number % 20 == 0:
                limit = time_limit()
            trial = _trial(where, target, sent, chance, terminal=terminal, limit=limit)
            seconds.append(trial.seconds)
            wait = _wait_until_released(database, limit)
            complaints = [*trial.complaints, *wait, *_status(target, sent, trial)]
            if trial.seconds > limit and trial.seconds > time_limit():
                complaints.append(f"it took {trial.seconds:.1f} s, {limit:.1f} s are allowed")
            if complaints:
                on = "on a terminal" if terminal else "in a pipe"
                wrong.append(
                    f"{target.name}, trial {number}: {sent.name} after {trial.moment:.2f} s, {on}: {complaints}"
                )
                say(f"WRONG: {wrong[-1]}\n    status {trial.status}\n{_tail(trial.err)}")
        wrong += _whole(where)
    say(f"{target.name}: {trials} trials, {len(wrong)} wrong; the slowest end took {max(seconds):.1f} s")
    return wrong


def _trial(
    where: Place, target: Target, sent: signal.Signals, chance: random.Random, *, terminal: bool, limit: float
) -> Trial:
    """Half of the signals come at any moment, half after it has begun, if it shows that."""
    slow = limit / 2
    after = target.begun is not None and chance.random() < 0.5
    moment = chance.uniform(0, 0.3 if after else target.span * slow)
    arguments = target.arguments(where, chance)
    begun = target.begun if after else None
    typed = b"q" if target.dump and sent is signal.SIGINT else b""
    limit *= 5 if target.spark else 1
    return run_trial(arguments, sent, moment, terminal=terminal, begun=begun, typed=typed, limit=limit)


def _status(target: Target, sent: signal.Signals, trial: Trial) -> list[str]:
    """What is wrong with the status: until it has begun, it may be that of the signal."""
    if trial.status in target.statuses or (trial.status == 128 + sent and (target.dump or not trial.began)):
        return []
    return [f"status {trial.status}" + (", though it had begun" if trial.status == 128 + sent else "")]


def _wait_until_released(database: Database, seconds: float) -> list[str]:
    deadline = time.monotonic() + seconds
    while left := [words for (words,) in database.query(_IN_USE)]:
        if time.monotonic() > deadline:
            return [f"in use: {left}"]
        time.sleep(0.02)
    return []


def _whole(where: Place) -> list[str]:
    """The recorded capture can be read completely."""
    if not (where.folder / "capture").is_dir():
        return []
    read = command("decode", "-o", "json", where.folder / "capture", timeout=300)
    return [] if read.status == 0 else [f"the capture: {read.status} {read.stderr}"]  # an open segment is noted


def _tail(text: str) -> str:
    return "".join(f"    | {line[:200]}\n" for line in re.sub(r"[^\n -~]", "?", text).splitlines()[-15:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trials", nargs="?", type=int, default=TRIALS)
    parser.add_argument("seed", nargs="?", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("targets", nargs="*", help="a part of their names; default: all of them")
    given = parser.parse_args()
    reset_ignored_signals()
    chosen = [one for one in TARGETS.values() if not given.targets or any(part in one.name for part in given.targets)]
    print(f"seed {given.seed}; {no_terminal() or 'half of the trials are on a pseudo-terminal'}", flush=True)
    servers, started, wrong = Servers(), time.monotonic(), []
    try:
        server = servers.get(list(installations())[-1])
        for target in chosen:
            with fresh_database(server) as database:
                wrong += torture(database, target, given.trials, given.seed, lambda text: print(text, flush=True))
    finally:
        servers.close()
    took = time.monotonic() - started
    print(f"{given.trials} trials at each of {len(chosen)} commands: {len(wrong)} wrong ({took:.0f} s)")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
