"""Kills of a program with a stream of a capture's changes, with its JVM, at random: each change is in the sink once."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

from pgtail.spark.session import session
from tests.support.corpus import capture
from tests.support.spark.captures import record, rows_of
from tests.support.spark.quick import QUICK
from tests.support.spark.stream_program import append_all, committed, kill_after
from tests.torture.bench import Bench

KILLS = 20
COLUMNS = ("position", "ordinal", "seq", "op", "relation")


def trial(bench: Bench, chance: random.Random) -> str:
    """Raises AssertionError where a change was lost or repeated."""
    with tempfile.TemporaryDirectory() as name:
        folder, ran = Path(name), 0
        paths = record(capture("D_twophase", "p3_2pc"), folder / "capture", size=2_000)
        for kill in range(bench.size(KILLS, 2)):
            ran += kill_after(folder / "capture", folder / "out", chance.randint(0, 2), chance.uniform(0, 0.6))
            bench.say(f"{kill + 1} kills, {len(committed(folder / 'out'))} micro-batches")
        with session("local[2]", QUICK) as spark:
            append_all(spark, folder / "capture", folder / "out")
            found = spark.read.parquet(str(folder / "out" / "rows")).select(*COLUMNS).collect()
        expected = [tuple(row[name] for name in COLUMNS) for row in rows_of(paths)]
        assert Counter(map(tuple, found)) == Counter(expected)
    return f"{ran} kills while it ran"
