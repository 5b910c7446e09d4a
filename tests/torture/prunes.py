"""Kills of pgtail record and pgtail capture prune beside each other: what is left is the end of the stream.

Most prunes are killed between two files that they remove, the others at any time, or not at all. The truth is a second
slot, made at the same time and read once at the end.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

from pgtail.capture.prune import Bound, Prunable
from pgtail.capture.reader import SegmentFile, segments
from pgtail.capture.state import NO_STATE, read_state
from pgtail.pgoutput.scalars import lsn_text
from pgtail.storage import Location
from tests.support.limits import within
from tests.support.run import Result, command
from tests.support.run_process import PROGRAM
from tests.support.tail import wait_for
from tests.torture.bench import Bench
from tests.torture.kills import Target, record_rest, started_on, written

PRUNES = 12
SMALL = "--segment-size", "6kB"
_FEW = 4
"""Segments that are there before one prunes, at least one more."""
_KILLED_AT = """
import os, signal, sys
from pgtail.storage.local import LocalLocation
from pgtail.storage.objects import ObjectLocation

left = int(sys.argv.pop(1))

def killed(delete):
    def delete_some(place):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        delete(place)
    return delete_some

for kind in (LocalLocation, ObjectLocation):
    kind.delete = killed(kind.delete)
from pgtail.cli import main
main(prog_name="pgtail")
"""
"""pgtail, killed when it has deleted so many files and is about to delete one more."""


class Prunes:
    """Prunes a capture again and again. `seen` counts what came of it."""

    def __init__(self, target: Target, rng: random.Random) -> None:
        self._target, self._rng = target, rng
        self.seen: Counter[str] = Counter()
        self._usual: float | None = None
        """Seconds that the last prune took that was not killed."""

    def run(self, *wanted: str, removable: int) -> None:
        """Prune what is `wanted`, as the options say, of which about so many segments can go; kill it, as a rule."""
        target, rng = self._target, self._rng
        before, there = read_state(target.location), _files(target.location)
        arguments = ["capture", "prune", target.place, *wanted, "--delete"]
        how, begun = rng.random(), time.monotonic()
        if self._usual is not None and how < 0.6:
            killed = self._killed_at(rng.randrange(max(removable, 1)), arguments)
        elif self._usual is not None and how < 0.9:
            killed = self._killed_after(rng.uniform(0.7, 1.1) * self._usual, arguments)
        else:
            killed = self._killed_after(None, arguments)
            self._usual = time.monotonic() - begun
        after, left = read_state(target.location), _files(target.location)
        removed = after.pruned != before.pruned
        self.seen["prunes"] += 1
        self.seen["removed something"] += removed
        self.seen["killed"] += killed
        gone = there - left
        if killed and removed and after.pruned is not None:
            over = {name for name in left if name <= after.pruned.segment}
            self.seen["killed in the middle"] += bool(gone and over)
            self.seen["killed before the first file"] += bool(over and not gone)
        self.seen["files removed"] += len(gone)

    def _killed_at(self, count: int, arguments: list[str]) -> bool:
        run = self._start([sys.executable, "-c", _KILLED_AT, str(count), *arguments])
        _, said = run.communicate(timeout=within(120))
        assert run.returncode in (0, -signal.SIGKILL), said.decode()
        return run.returncode != 0

    def _killed_after(self, seconds: float | None, arguments: list[str]) -> bool:
        run = self._start([*PROGRAM, *arguments])
        try:
            _, said = run.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            run.kill()
            run.communicate()
            return True
        assert run.returncode == 0, said.decode()
        return False

    def _start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **self._target.environment}
        return subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)

    def __str__(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in self.seen.items())


def trial(bench: Bench, choose: random.Random) -> str:
    """Kill both some times; raises AssertionError if what is left is not the end of what was committed."""
    with written(bench.newest, choose, bench.turn((None, bench.s3)), 0.015) as (database, target, writer):
        prunes, recorders = Prunes(target, choose), 0
        while prunes.seen["prunes"] < PRUNES:
            with started_on(database, target, *SMALL) as recorder, contextlib.ExitStack() as stack:
                stack.callback(recorder.kill)
                for _ in range(choose.randint(1, 6)):
                    wait_for("segments", lambda: len(closed(target)) > _FEW, 120)
                    time.sleep(choose.uniform(0, 1))
                    removable = _removable(target, choose.uniform(0.5, 1))
                    if choose.random() < 0.1:
                        prunes.run("--keep", f"{choose.uniform(1, 5):.1f}s", removable=removable)
                    else:
                        end = lsn_text(segments(target.location)[removable].name.position)
                        prunes.run("--before", end, removable=removable)
                    assert recorder.poll() is None
            recorders += 1
        writer.stop()
        record_rest(database, target)
        last = lsn_text(closed(target)[-1].name.position)
        _succeed(target, "capture", "prune", target.place, "--before", last, "--delete")
        ours = _succeed(target, "decode", "-o", "json", target.place)
        _succeed(target, "capture", "verify", target.place)
        truth = command("stream", database.conninfo(), "-S", "truth", "--until", "now", "-o", "json", timeout=300)
        assert 0 < len(ours.lines) < len(truth.lines)
        assert ours.lines == truth.lines[-len(ours.lines) :]
    return f"{len(ours.lines)} of {len(truth.lines)} changes are left; {prunes}; {recorders} recorders killed"


def _succeed(target: Target, *arguments: str) -> Result:
    ran = command(*arguments, timeout=300, environment=target.environment)
    assert ran.status == 0, ran.stderr
    return ran


def _removable(target: Target, part: float) -> int:
    """How many segments can be removed, if at most this part of them is to go."""
    if not closed(target):
        return 0
    capture = Prunable(target.location)
    return len(capture.plan([Bound(int(part * len(capture.stream)))], lasting=False).segments)


def closed(target: Target) -> list[SegmentFile]:
    """The closed segments that count."""
    return [] if read_state(target.location) is NO_STATE else [one for one in segments(target.location) if not one.open]


def _files(place: Location) -> set[str]:
    """The names of the files of closed segments, whether they count or not."""
    return {entry.name.removesuffix(".pgcap") for entry in place.list() if entry.name.endswith(".pgcap")}
