"""`make torture`: all long trials, one after another, for hours; a run that was interrupted goes on where it ended.

Each trial prints what it does and its seed. What is done is kept in .venv/torture. The table at the end is of all.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.signals import reset_ignored_signals

KEPT: Final = Path(sys.prefix, "torture")
_ALL: Final = {"PGTAIL_TEST_ALL": "1"}
Trial = tuple[Sequence[str], dict[str, str]]
TRIALS: Final[dict[str, Trial]] = {
    "random streams": (["tests.torture.streams"], {}),
    "kills of record": (["tests.torture.kills"], {}),
    "recorders that take over": (["tests.torture.takeovers"], {}),
    "prune beside record": (["tests.torture.prunes"], {}),
    "kills of snapshots": (["tests.torture.snapshot_kills"], {}),
    "histories of snapshots": (["pytest", "tests/capture/test_snapshot.py", "-k", "random_histories"], _ALL),
    "faults of object stores": (["pytest", "tests/capture/test_store_faults.py"], _ALL),
    "signals": (["tests.torture.stop_signals"], {}),
    "faults": (["tests.torture.faults", "--state", str(KEPT / "faults")], {}),
    "loads": (["tests.torture.loads"], {}),
    "soak": (["tests.torture.soak"], {}),
    "old values over reconnections": (["tests.torture.old_values"], {}),
    "fuzzing": (["tests.torture.fuzz"], {}),
    "services": (["tests.torture.services"], {}),
    "spark": (["tests.torture.spark_kills"], {}),
    "prune beside spark": (["tests.torture.spark_prunes"], {}),
    "spark on a cluster": (["pytest", "tests/spark/test_cluster.py"], {"PGTAIL_CLUSTER": "full"}),
}


def run(name: str) -> dict[str, Any]:
    """Run a trial, and show what it prints; returns what is kept of it."""
    words, variables = TRIALS[name]
    begun, last = time.monotonic(), ""
    print(f"== {name}: {' '.join(words)}", flush=True)
    with subprocess.Popen(
        [sys.executable, "-m", *words],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return {"trial": name, "seconds": time.monotonic() - begun, "status": process.returncode, "last": last}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--anew", action="store_true", help="forget what an interrupted run has done")
    parser.add_argument("--only", action="append", choices=[*TRIALS], help="these trials; nothing is kept")
    given = parser.parse_args()
    reset_ignored_signals()
    KEPT.mkdir(exist_ok=True)
    if given.only:
        done = [run(name) for name in given.only]
    else:
        if given.anew:
            shutil.rmtree(KEPT)
            KEPT.mkdir()
        kept = KEPT / "done"
        done = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
        for name in TRIALS:
            if name not in {one["trial"] for one in done}:
                done.append(run(name))
                with kept.open("a") as file:
                    file.write(json.dumps(done[-1]) + "\n")
        shutil.rmtree(KEPT)
    print(f"\n{'trial':26} {'minutes':>8} {'result':>7}")
    for one in done:
        result = "wrong" if one["status"] else "ok"
        print(f"{one['trial']:26} {one['seconds'] / 60:8.1f} {result:>7}  {one['last']}")
    sys.exit(1 if any(one["status"] for one in done) else 0)


if __name__ == "__main__":
    main()
