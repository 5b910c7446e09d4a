"""`make torture`: kill pgtail record and pgtail capture prune beside each other; what is left is the end of the stream.

The truth is a second slot, made at the same time and read once at the end.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from functools import partial

from pgtail.capture.state import CaptureState, read_state
from pgtail.demo.server import EmbeddedServer
from pgtail.pgoutput.scalars import lsn_text
from tests.capture.torture import Say, Target, each_place, record_rest, started_on, written
from tests.support.object_store import ObjectStore
from tests.support.run import command
from tests.support.run_process import PROGRAM
from tests.support.tail import wait_for

KILLS = 100


def torture(server: EmbeddedServer, kills: int, seed: int, say: Say, store: ObjectStore | None) -> None:
    """Kill both so often; raises AssertionError if what is left is not the end of what was committed."""
    rng = random.Random(seed)
    say(f"seed {seed}")
    with written(server, seed, store, 0.3) as (database, target, workload):
        removed = 0
        for _ in range(kills):
            before = read_state(target.location)
            recorder = started_on(database, target)
            wait_for("something recorded", partial(has_changed, target, before))
            time.sleep(rng.uniform(0, 2))
            removed += prune_and_kill(target, rng.uniform(0.3, 1.5))
            recorder.kill()
            recorder.communicate()
        workload.end()
        record_rest(database, target)
        prune_and_kill(target, None)
        ours = command("decode", "-o", "json", target.place, timeout=300, environment=target.environment)
        assert ours.status == 0, ours.stderr
        whole = command("capture", "verify", target.place, timeout=300, environment=target.environment)
        assert whole.status == 0, whole.stderr
        truth = command("stream", database.conninfo(), "-S", "truth", "--until", "now", "-o", "json", timeout=300)
        say(f"{len(ours.lines)} of {len(truth.lines)} changes are left; {removed} of {kills} prunes removed something")
        assert 0 < len(ours.lines) < len(truth.lines)
        assert ours.lines == truth.lines[-len(ours.lines) :]


def has_changed(target: Target, before: CaptureState | None) -> bool:
    return read_state(target.location) != before


def prune_and_kill(target: Target, seconds: float | None, *more: str) -> bool:
    """Prune what was recorded before now, killed after so long; returns whether the beginning has moved."""
    before = read_state(target.location)
    if before is None:
        return False
    arguments = ["capture", "prune", target.place, "--before", lsn_text(before.position), "--delete", *more]
    run = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **target.environment},
    )
    try:
        _, said = run.communicate(timeout=seconds)
        assert run.returncode == 0, said.decode()
    except subprocess.TimeoutExpired:
        run.kill()
        run.communicate()
    after = read_state(target.location)
    return after is not None and after.pruned != before.pruned


if __name__ == "__main__":
    each_place(KILLS, torture)
