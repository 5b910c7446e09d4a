"""A program with a stream of a capture's changes: `python -m tests.support.spark.stream_program CAPTURE OUT`.

It appends every change to Parquet files below OUT, one segment in each micro-batch, and ends when it has all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pgtail.spark.session import session
from tests.support.limits import within
from tests.support.spark.quick import QUICK


def append_all(spark: Any, capture: Path, out: Path) -> None:
    """Append what was not appended before."""
    stream = spark.readStream.format("pgtail").option("maxSegmentsPerTrigger", "1").load(str(capture))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(out / "checkpoint"))
    query = writer.option("path", str(out / "rows")).start()
    query.processAllAvailable()
    query.stop()


def kill_after(capture: Path, out: Path, batches: int, seconds: float = 0) -> bool:
    """Start the program, and kill it, with its JVM, that long after so many micro-batches; whether it still ran."""
    command = [sys.executable, "-m", __name__, str(capture), str(out)]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    end, done = time.monotonic() + within(120), len(committed(out)) + batches
    while process.poll() is None and len(committed(out)) < done:
        assert time.monotonic() < end
        time.sleep(0.02)
    time.sleep(seconds)
    ran = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return ran


def committed(out: Path) -> list[Path]:
    """The micro-batches that are in the stream's checkpoint as complete."""
    return list((out / "checkpoint" / "commits").glob("[0-9]*"))


if __name__ == "__main__":
    with session("local[2]", QUICK) as started:
        append_all(started, *map(Path, sys.argv[1:]))
