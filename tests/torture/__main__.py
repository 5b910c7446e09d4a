"""`make torture`: trials at random, kind after kind, for hours; with --short each kind for some seconds.

A trial is complete in itself: the seed of the run, its kind and its number repeat it, and a wrong one says how. A run
that was interrupted goes on where it ended: what is done is kept in .venv/torture. The table at the end is of all.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.signals import reset_ignored_signals
from tests.torture import (
    damaged_runs,
    fault_round,
    faults,
    fuzz,
    kills,
    loads,
    old_values,
    outbox_kills,
    prunes,
    replays,
    sanitized,
    services,
    snapshot_histories,
    snapshot_kills,
    soak,
    spark_cluster,
    spark_kills,
    stop_signals,
    store_faults,
    stream_kills,
    streams,
    takeovers,
)
from tests.torture.bench import Bench

KEPT: Final = Path(sys.prefix, "torture")
MOST_WRONG: Final = 3
"""After so many wrong trials a kind ends."""


@dataclass(frozen=True)
class Kind:
    """A kind of trial. `run` makes one, and returns what it saw; it raises an error if something was wrong."""

    run: Callable[[Bench, random.Random], str]
    minutes: float = 0
    """The time for all trials of a whole run."""
    least: int = 1
    """How many trials there are at least, and in a short run exactly; 0: the kind is not part of it."""


KINDS: Final = {
    "random streams": Kind(streams.trial, 60),
    "damaged rows": Kind(damaged_runs.trial, 10),
    "known cases": Kind(sanitized.trial),
    "fuzzing": Kind(fuzz.trial, least=len(fuzz.TARGETS)),
    "replays": Kind(replays.trial, 60, 2),
    "kills of record": Kind(kills.trial, 20, 2),
    "kills of an outbox": Kind(outbox_kills.trial),
    "kills of snapshots": Kind(snapshot_kills.trial, 20, 2),
    "histories of snapshots": Kind(snapshot_histories.trial, 20),
    "recorders that take over": Kind(takeovers.trial, 20, 2),
    "prune beside record": Kind(prunes.trial, 15),
    "faults of object stores": Kind(store_faults.trial, 10),
    "signals": Kind(stop_signals.trial, 90, 4),
    "faults": Kind(faults.trial, 90, len(fault_round.KINDS)),
    "faults that end a slot": Kind(faults.last_trial, 15, 2),
    "loads": Kind(loads.trial, least=len(loads.LOADS)),
    "soak": Kind(soak.trial),
    "old values over reconnections": Kind(old_values.trial, 20),
    "services": Kind(services.trial, 60),
    "kills of spark": Kind(spark_kills.trial, 20),
    "kills of streams on spark": Kind(stream_kills.trial),
    "spark on a cluster": Kind(spark_cluster.trial, least=0),
}


@dataclass(frozen=True)
class Done:
    """A trial that was made: how long it took, and what was `wrong`, if anything."""

    seed: int
    kind: str
    number: int
    seconds: float
    saw: str
    wrong: str = ""


def make_trial(bench: Bench, seed: int, name: str, number: int) -> Done:
    """Make one trial, and print what came of it."""
    begun, saw, wrong = time.monotonic(), "", ""
    bench.number = number
    try:
        saw = KINDS[name].run(bench, random.Random(f"{seed} {name} {number}"))
    except pytest.skip.Exception as reason:
        saw = f"skipped: {reason}"
    except Exception as error:  # noqa: BLE001 -- whatever is wrong is what is looked for
        wrong = str(error) or type(error).__name__
        print(
            traceback.format_exc(), f'repeat: python -m tests.torture "{name}" --seed {seed} --from {number}', sep="\n"
        )
    done = Done(seed, name, number, time.monotonic() - begun, saw, wrong)
    print(f"{name} {number}, {done.seconds:.0f} s: {'WRONG' if wrong else saw}", flush=True)
    return done


def make_trials(bench: Bench, seed: int, name: str, first: int, done: list[Done], keep: Callable[[Done], None]) -> None:
    """Make what is missing of a kind in this run, of which `done` were made before."""
    kind, done = KINDS[name], [one for one in done if one.kind == name]
    minutes, least = (0.0, kind.least) if bench.short else (kind.minutes, max(kind.least, 1))
    while len(done) < least or sum(one.seconds for one in done) < 60 * minutes:
        if sum(bool(one.wrong) for one in done) >= MOST_WRONG or (done and done[-1].saw.startswith("skipped")):
            break
        done.append(make_trial(bench, seed, name, first + len(done)))
        keep(done[-1])


def table(done: list[Done]) -> str:
    """One line for each kind."""
    lines = [f"{'kind':30} {'trials':>7} {'minutes':>8} {'wrong':>6}"]
    for name in KINDS:
        if some := [one for one in done if one.kind == name]:
            minutes, wrong = sum(one.seconds for one in some) / 60, sum(bool(one.wrong) for one in some)
            last = some[-1].wrong.partition("\n")[0] or some[-1].saw
            lines.append(f"{name:30} {len(some):7} {minutes:8.1f} {wrong:6}  {last}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; nothing of these is kept")
    parser.add_argument("--short", action="store_true", help="few trials of most kinds, in minutes")
    parser.add_argument("--seed", type=int, help="of the run")
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="N", help="the number of the first trial")
    parser.add_argument("--restart", action="store_true", help="do not go on with a run that was interrupted")
    given = parser.parse_args()
    if unknown := {*given.kind} - {*KINDS}:
        parser.error(f"no such kind: {', '.join(unknown)}")
    reset_ignored_signals()
    done: list[Done] = []
    kept = KEPT / ("short" if given.short else "whole")
    if given.restart and kept.exists():
        kept.unlink()
    if not given.kind and given.seed is None and kept.exists():
        done = [Done(**json.loads(line)) for line in kept.read_text().splitlines()]
    seed = done[0].seed if done else random.randrange(1 << 30) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)

    def keep(one: Done) -> None:
        new.append(one)
        if not given.kind:
            KEPT.mkdir(exist_ok=True)
            with kept.open("a") as file:
                file.write(json.dumps(asdict(one)) + "\n")

    new: list[Done] = []
    bench = Bench(short=given.short)
    try:
        for name in given.kind or KINDS:
            make_trials(bench, seed, name, given.first, done, keep)
    finally:
        bench.close()
        print(f"\n{table(done + new)}")
    if not given.kind:
        kept.unlink()
    sys.exit(1 if any(one.wrong for one in done + new) else 0)


if __name__ == "__main__":
    main()
