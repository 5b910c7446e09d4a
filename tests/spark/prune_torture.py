"""`make torture`: pgtail record, spark --watch and capture prune --applied beside each other, each killed at any time.

What Spark has in the end is everything that was committed, once, without a gap; the truth is a second slot.
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
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from pgtail.capture.reader import segments
from pgtail.capture.state import read_state
from pgtail.spark.lake.batches import Batches
from pgtail.spark.lake.delta import LakeTable
from pgtail.storage import locate
from tests.capture.prune_torture import has_changed, prune_and_kill
from tests.capture.torture import Target, record_rest, started_on, written
from tests.support.run import command
from tests.support.servers import Servers, installations
from tests.support.spark import quick
from tests.support.tail import wait_for

KILLS = 100
_WATCH_KILLED = 0.1
"""How often the kill of a recorder is one of the watch, too: it needs long to start."""


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


def torture(kills: int, seed: int) -> None:
    """Kill them so often; raises AssertionError if Spark has not everything that was committed, once."""
    rng, servers, removed, again = random.Random(seed), Servers(), 0, 0
    print(f"seed {seed}", flush=True)
    usual: float | None = None  # how long a prune takes that is not killed
    with (
        contextlib.closing(servers),
        written(servers.get([*installations()][-1]), seed, None, 0.5) as (database, target, workload),
        _watching(target) as watch,
    ):
        for kill in range(kills):
            before = read_state(target.location)
            with started_on(database, target) as recorder, contextlib.ExitStack() as stack:
                stack.callback(recorder.kill)
                wait_for("something recorded", partial(has_changed, target, before))
                if kill == 0:
                    watch.start("--watch", "--every=1s")
                    wait_for("the first batch", watch.has_some, 300)
                time.sleep(rng.uniform(0, 3))
                begun = time.monotonic()
                seconds = None if usual is None else rng.uniform(0.3, 1.5) * usual
                removed += prune_and_kill(target, seconds, "--applied", str(watch.out))
                usual = usual or time.monotonic() - begun
                watch.check_runs()
                if rng.random() < _WATCH_KILLED:
                    again += 1
                    watch.kill()
                    watch.start("--watch", "--every=1s")
            if kill % 10 == 9:
                print(f"{kill + 1} kills, batch {watch.batch}, {len(segments(target.location))} segments", flush=True)
        workload.end()
        record_rest(database, target)
        watch.kill()
        assert watch.start().wait() == 0, watch.said
        prune_and_kill(target, None, "--applied", str(watch.out))
        assert "gap" not in watch.said, watch.said
        truth = command("stream", database.conninfo(), "-S", "truth", "--until", "now", "-o", "json", timeout=300)
        found = LakeTable(locate(f"{watch.out}/changes")).delta.to_pyarrow_table(columns=["xid", "ordinal", "op"])
        ours = Counter([(row["xid"], row["ordinal"], row["op"]) for row in found.to_pylist()])
        theirs = Counter([(row["xid"], row["seq"], row["op"]) for row in truth.objects])
        print(f"{len(truth.objects)} changes, {watch.batch} batches; {removed} of {kills} prunes removed something")
        assert ours == theirs, [*(ours - theirs)][:5] + [*(theirs - ours)][:5]
    print(f"{kills} kills of recorders and prunes, {again} of Spark: nothing lost, nothing twice, no gap")


if __name__ == "__main__":
    torture(
        int(sys.argv[1]) if len(sys.argv) > 1 else KILLS,
        int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 1_000_000,
    )
