"""Kills of `pgtail spark all --watch`, its JVM or a worker, while segments arrive and readers read.

Three of four kills come while a batch is being written, however long the start of Spark takes; the others at any time.
Then it runs undisturbed: changes, state and history are those of an undisturbed run.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl

from pgtail.spark.lake.batches import Batches
from pgtail.spark.lake.catalog import entries
from pgtail.spark.lake.delta import LakeTable
from pgtail.spark.session import DRIVER_BYTES
from pgtail.storage import locate
from tests.support.corpus import capture
from tests.support.spark import model, quick
from tests.support.spark.captures import record, rows_of
from tests.support.spark.world import same_as_model, same_lives, stored
from tests.torture.bench import Bench

KILLS = 6
PATIENCE = 180.0
"""Seconds in which a process has written its first file."""


def trial(bench: Bench, chance: random.Random) -> str:
    """Raises AssertionError where something was lost, repeated, or seen by half."""
    written, kills = 0, bench.size(KILLS, 2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = record(capture("D_twophase", "p3_2pc"), folder / "whole", size=2_000)
        growing, out = folder / "growing", folder / "out"
        growing.mkdir()
        waiting = list(paths)
        for kill in range(kills):
            for _ in range(chance.randint(1, max(2 * len(paths) // kills, 1))):
                if waiting:
                    shutil.copy(waiting.pop(0), growing)
            known, batch = files_in(out), Batches(locate(str(out))).plan.batch
            # Every other one does its batches in the driver.
            most = f"--conf={DRIVER_BYTES}={16 << 20 if kill % 2 else 0}"
            watching = arguments(growing, out, "--watch", "--every=1s", most)
            process = quick.start(watching, stderr=subprocess.DEVNULL)
            if chance.random() < 0.75 and waiting:
                read_until(out, PATIENCE, functools.partial(grown, out, known))
                read_until(out, chance.uniform(0, 5))
            else:
                read_until(out, chance.uniform(2, 25))
            victims = [process.pid, *below(process.pid)]
            os.kill(chance.choice(victims), signal.SIGKILL)
            time.sleep(chance.random())
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            written += grown(out, known)
            bench.say(f"{kill + 1} of {kills}: batches {batch} to {Batches(locate(str(out))).plan.batch}")
        for path in waiting:
            shutil.copy(path, growing)
        assert quick.start(arguments(growing, out)).wait() == 0
        same(folder / "whole", paths, out)
    assert written > kills // 3, "the processes were killed before they did anything"
    return f"{written} of {kills} processes had written files"


def read_until(out: Path, seconds: float, done: Callable[[], object] = lambda: False) -> None:
    """Read the tables again and again until something is so, or the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not done():
        look(out)
        time.sleep(0.2)


def files_in(out: Path) -> set[Path]:
    return set(out.rglob("*.parquet"))


def grown(out: Path, known: set[Path]) -> bool:
    return bool(files_in(out) - known)


def arguments(growing: Path, out: Path, *more: str) -> list[str]:
    return ["all", "--master=local[2]", *quick.CONF, *more, str(growing), str(out)]


def below(pid: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    return [one for child in map(int, found) for one in (child, *below(child))]


def look(out: Path) -> None:
    """A reader opens changes first, then what they need; it sees whole commits."""
    if LakeTable(locate(f"{out}/changes")).schema is None:
        return
    changes = pl.scan_delta(f"{out}/changes").select("relation", "position", "xid", "op").collect()
    known = set(pl.scan_delta(f"{out}/relations").collect()["relation"])
    assert set(changes["relation"].drop_nulls()) <= known
    own = changes.filter(pl.col("xid").is_not_null() & ~pl.col("op").str.ends_with("_prepared"))
    assert set(own["position"]) <= set(pl.scan_delta(f"{out}/transactions").collect()["position"])
    for entry in entries(locate(str(out))):
        if LakeTable(locate(f"{out}/{entry.folder}")).schema is not None:
            pl.scan_delta(f"{out}/{entry.folder}").select(pl.len()).collect()


def same(whole: Path, paths: list[Path], out: Path) -> None:
    """Everything is that of an undisturbed run."""
    columns = ["position", "ordinal", "op", "lsn"]
    found = LakeTable(locate(f"{out}/changes")).delta.to_pyarrow_table(columns=columns).to_pylist()
    expected = [{name: row[name] for name in columns} for row in rows_of(paths)]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    rows, versions = model.committed(model.changes(whole)), model.relations(whole)
    same_as_model(model.folds(rows, versions), stored(out, "state"))
    same_lives(model.folds(rows, versions, history=True), stored(out, "history"))
