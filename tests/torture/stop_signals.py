"""SIGINT, SIGTERM and SIGHUP to every command at random moments, half of them on a pseudo-terminal.

Each ends in time, with the exit status of its man page, without a traceback, and leaves nothing behind: no slot in use,
no process, no temporary file, and the terminal as it was.
"""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.stopping.trial import Trial, no_terminal, run_trial, time_limit
from tests.support.captures import segments
from tests.support.run import command
from tests.support.servers import Database, fresh_database
from tests.torture.bench import Bench, Writer
from tests.torture.signal_targets import TARGETS, Place, Target

SENT = 12
"""Signals of one trial."""
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


@contextlib.contextmanager
def place(database: Database, chance: random.Random) -> Iterator[Place]:
    """The database set up and under a workload, and a folder with a capture and a dump of some of it."""
    with tempfile.TemporaryDirectory() as folder:
        database.execute(*_SCHEMA, *_TRANSACTIONS * 5)
        found = Place(database.conninfo(), Path(folder))
        recorded = command("record", found.conninfo, "-S", "cap", "-D", found.folder / "finished", "--until", "now")
        assert recorded.status == 0, recorded.stderr
        shutil.copy(segments(found.folder / "finished")[0], found.folder / "dump")
        writes = random.Random(chance.random())
        with Writer(database, lambda session: session.execute(writes.choice(_TRANSACTIONS).encode()), 0.03):
            yield found


def trial(bench: Bench, choose: random.Random) -> str:
    """Some signals to one of the commands."""
    target = choose.choice([*TARGETS.values()])
    with fresh_database(bench.newest) as database:
        return send_signals(database, target, SENT, choose)


def send_signals(database: Database, target: Target, count: int, chance: random.Random) -> str:
    """Send so many signals to a command that is started for each; raises AssertionError if something was wrong."""
    wrong, seconds, limit = list[str](), list[float](), time_limit()
    with place(database, chance) as where:
        for number in range(count):
            sent, terminal = SIGNALS[number % 3], number % 2 == 1 and no_terminal() is None
            one = _send(where, target, sent, chance, terminal=terminal, limit=limit)
            seconds.append(one.seconds)
            wait = _wait_until_released(database, limit)
            complaints = [*one.complaints, *wait, *_status(target, sent, one)]
            if one.seconds > limit and one.seconds > time_limit():
                complaints.append(f"it took {one.seconds:.1f} s, {limit:.1f} s are allowed")
            if complaints:
                on = "on a terminal" if terminal else "in a pipe"
                wrong.append(f"{number}: {sent.name} after {one.moment:.2f} s, {on}: {complaints}")
                wrong.append(f"status {one.status}\n{_tail(one.err)}")
        wrong += _whole(where)
    assert not wrong, "\n".join([target.name, *wrong])
    return f"{target.name}: the slowest end of {count} took {max(seconds):.1f} s"


def _send(
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
