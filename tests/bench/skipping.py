"""What it costs to read one rare table of a capture whose segments say what they contain, beside reading all of it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rich.console import Console

from pgtail.capture.recorder import Recorder, Rotation
from pgtail.pgoutput.frames import LENGTHS, walk
from tests.bench.measure import Cost, Run, run
from tests.bench.workload import WORK
from tests.support.captures import lengths
from tests.support.encode import begin, commit, frame, insert, relation

ROUNDS = 3
SEGMENTS, RARE = 1000, 10
_ROWS = 16_000
"""Of a transaction, which has eight megabytes and a segment of its own. Segments have 64 by default."""
_NULL = Path("/dev/null")
_CAPTURE = WORK / "segments"


def skipping(console: Console) -> None:
    """Print the comparison."""
    try:
        _record()
        pgtail = Path(sys.executable).with_name("pgtail")
        selections = {"all": [], "rare": ["-t", "rare"], "nothing": ["-t", "nosuch"], "start": ["-n", "1"]}
        runs: dict[str, list[Run]] = {}
        for _ in range(ROUNDS):
            for name, options in selections.items():
                command: list[str | Path] = [pgtail, "decode", "--jobs", "1", "-o", "json", *options, _CAPTURE]
                runs.setdefault(name, []).append(run(command, _NULL))
    finally:
        shutil.rmtree(_CAPTURE, ignore_errors=True)
    everything, rare, nothing, start = (Cost(of_one).cpu for of_one in runs.values())
    console.print(
        f"\n{SEGMENTS} segments: CPU {everything:.2f} s; a table that {RARE} of them have {rare:.2f} s,"
        f" {100 * rare / everything:.1f} %; a table that none has {nothing:.2f} s; the first transaction {start:.2f} s"
    )


def _record() -> None:
    shutil.rmtree(_CAPTURE, ignore_errors=True)
    _CAPTURE.mkdir(parents=True)
    recorder = Recorder(_CAPTURE, {}, rotation=Rotation(size=1 << 30))
    names = {100: "often", 101: "rare"}
    rows = {oid: lengths([frame(insert("1", "x" * 450, oid=oid), 1)]) * _ROWS for oid in names}
    for oid, name in names.items():
        recorder.take(frame(relation(oid, name), 1))
    for number in range(SEGMENTS):
        lsn = 1000 * (number + 1)
        data = rows[100 + (number % (SEGMENTS // RARE) == 50)]
        recorder.take(frame(begin(number + 1, lsn, number), 1))
        pos = 0
        while pos < len(data):
            pos, _ = recorder.take_run(data, pos, len(data), LENGTHS)
            if pos < len(data):  # a member is full
                start, pos = next(walk(data, pos))
                recorder.take(data[start:pos])
        recorder.take(frame(commit(lsn, lsn + 8, number), 1))
        recorder.follow({"pgtail.options": f"of segment {number + 1}"})
    recorder.close()
