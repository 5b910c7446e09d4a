"""Kills of pgtail record, spark --watch and capture prune --applied beside each other, at any time.

What Spark has in the end is everything that was committed, once, without a gap; the truth is a second slot.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pgtail.capture.prune import Prunable
from pgtail.capture.reader import segments
from pgtail.spark.lake.batches import Batches, applied_to
from pgtail.spark.lake.delta import LakeTable
from pgtail.storage import NO_OPTIONS, locate
from tests.support.run import command
from tests.support.spark import quick
from tests.support.tail import wait_for
from tests.torture.bench import Bench
from tests.torture.kills import Target, record_rest, started_on, written
from tests.torture.prunes import Prunes, closed

PRUNES = 12
_WATCH_KILLED = 0.2
"""How often the kill of a recorder is one of the watch, too: it needs long to start."""
_FEW = 3
"""Segments that Spark has applied at least before one prunes."""


class _Watch:
    """`pgtail spark all --watch` on a capture."""

    def __init__(self, target: Target) -> None:
        self._place, self.out, self._log = target.place, target.folder / "out", target.folder / "spark.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            arguments = ["all", "--master=local[1]", *quick.CONF, *more, self._place, str(self.out)]
            self._process = quick.start(arguments, stderr=log)
        return self._process

    def kill(self) -> None:
        """Kill it with its JVM."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def check_runs(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.said

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def batch(self) -> int:
        """The number of the last batch."""
        return Batches(locate(str(self.out))).plan.batch

    def has_some(self) -> bool:
        """Whether a batch of the capture is complete."""
        return bool(Batches(locate(str(self.out))).plan.captures)


@contextmanager
def _watching(target: Target) -> Iterator[_Watch]:
    watch = _Watch(target)
    try:
        yield watch
    finally:
        watch.kill()


def trial(bench: Bench, rng: random.Random) -> str:
    """Kill them some times; raises AssertionError if Spark has not everything that was committed, once."""
    recorders = again = 0
    with (
        written(bench.newest, rng, None, 0.03) as (database, target, writer),
        _watching(target) as watch,
    ):
        prunes = Prunes(target, rng)
        while prunes.seen["prunes"] < PRUNES:
            with started_on(database, target, "--segment-size", "30kB") as recorder, contextlib.ExitStack() as stack:
                stack.callback(recorder.kill)
                if not recorders:
                    wait_for("something recorded", lambda: closed(target))
                    watch.start("--watch", "--every=1s")
                    wait_for("the first batch", watch.has_some, 300)
                recorders += 1
                for _ in range(rng.randint(1, 6)):
                    wait_for("applied segments", lambda: _applied(target, watch) > _FEW, 300)
                    time.sleep(rng.uniform(0, 3))
                    prunes.run("--applied", str(watch.out), removable=_applied(target, watch))
                    assert recorder.poll() is None
                    watch.check_runs()
                    bench.say(f"{prunes}; batch {watch.batch}, {len(segments(target.location))} segments")
                if rng.random() < _WATCH_KILLED:
                    again += 1
                    watch.kill()
                    watch.start("--watch", "--every=1s")
        writer.stop()
        record_rest(database, target)
        watch.kill()
        assert watch.start().wait() == 0, watch.said
        pruned = command("capture", "prune", target.place, "--applied", watch.out, "--delete")
        assert pruned.status == 0, pruned.stderr
        assert "gap" not in watch.said, watch.said
        truth = command("stream", database.conninfo(), "-S", "truth", "--until", "now", "-o", "json", timeout=300)
        found = LakeTable(locate(f"{watch.out}/changes")).delta.to_pyarrow_table(columns=["xid", "ordinal", "op"])
        ours = Counter([(row["xid"], row["ordinal"], row["op"]) for row in found.to_pylist()])
        theirs = Counter([(row["xid"], row["seq"], row["op"]) for row in truth.objects])
        assert ours == theirs, [*(ours - theirs)][:5] + [*(theirs - ours)][:5]
    return f"{len(truth.objects)} changes; {prunes}; {recorders} recorders killed, Spark {again} times"


def _applied(target: Target, watch: _Watch) -> int:
    """How many segments `capture prune --applied` removes now."""
    capture = Prunable(target.location)
    return len(capture.plan([applied_to(str(watch.out), capture, NO_OPTIONS)], lasting=True).segments)
