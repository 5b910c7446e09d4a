"""`pgtail spark changes` and the usual way: spark.read.json of wal2json's lines with a given schema, to Parquet.

The command's tasks write their Parquet themselves; changes() is a DataFrame, which Spark writes like the usual way's.
Both in one session that is warm, in turn; CPU time is that of the whole process tree, which only Linux reports.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from rich.console import Console
from rich.table import Table

from pgtail.capture.format import CLOSED
from pgtail.capture.recorder import Rotation
from pgtail.commands.options.common import DumpOptions
from pgtail.commands.record.dumps import record_dumps
from pgtail.errors import OptionError
from pgtail.spark.session import check_installed
from tests.bench.workload import HEADER, WORK, Backlog

ROUNDS: Final = 5
_TICK: Final = os.sysconf("SC_CLK_TCK")
_LINES: Final = (
    "action string, xid bigint, lsn string, timestamp string, schema string, `table` string, "
    "columns array<struct<name: string, type: string, value: string>>, "
    "identity array<struct<name: string, type: string, value: string>>"
)
"""What wal2json's format-version 2 has, for a row."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one run: seconds, and the largest worker's megabytes."""

    wall: float
    cpu: float
    worker: float


def on_spark(backlog: Backlog, console: Console) -> None:
    """Print the comparison, or why there is none."""
    try:
        check_installed()
    except OptionError as error:
        console.print(f"left out: Spark: {str(error).splitlines()[0]}", markup=False)
        return
    if not Path("/proc/self/stat").exists():
        console.print("left out: Spark: only Linux reports the CPU time of a process tree")
        return
    from pgtail.spark.session import session

    capture, lines = _capture(backlog), _lines(backlog)
    began = time.monotonic(), _tree_cpu()
    with session("local[2]") as spark:
        spark.range(1).count()
        start = Cost(time.monotonic() - began[0], _tree_cpu() - began[1], 0)
        ways = _ways(spark, capture, lines)
        runs: dict[str, list[Cost]] = {name: [] for name in ways}
        for round_ in range(ROUNDS + 1):
            for name, way in ways.items():
                cost = _measured(way)
                if round_:  # the first one warms up
                    runs[name].append(cost)
        small = _small_batches(spark, backlog)
    console.print()
    console.print(_table(runs, backlog, start))
    for line in small:
        console.print(line, markup=False)
    with session("local[1]") as spark:
        one = _decoding(spark, capture)
    with session("local[2]") as spark:
        two = _decoding(spark, capture)
    console.print(f"decoding alone, rows per CPU-second: on two cores {one / two:.0%} of those on one", markup=False)


def _ways(spark: Any, capture: Path, lines: Path) -> dict[str, Callable[[], None]]:
    from pgtail.spark import changes
    from pgtail.spark.lake.update import Lake
    from pgtail.spark.state.settings import Settings
    from pgtail.spark.state.update import update_state

    out = WORK / "on_spark"

    def dataframe() -> None:
        changes(spark, str(capture)).write.mode("overwrite").parquet(str(out / "changes"))

    def usual() -> None:
        spark.read.schema(_LINES).json(str(lines)).write.mode("overwrite").parquet(str(out / "usual"))

    def whole() -> None:
        shutil.rmtree(out / "changes only", ignore_errors=True)
        Lake(spark, str(out / "changes only")).update([str(capture)])

    def everything() -> None:
        shutil.rmtree(out / "all", ignore_errors=True)
        lake = Lake(spark, str(out / "all"))
        lake.update([str(capture)], typed=True)
        for history in (False, True):
            update_state(lake, Settings(history=history))

    return {
        "read.json of wal2json, written by Spark": usual,
        "changes(), written by Spark": dataframe,
        "pgtail spark changes: sorted, 3 tables": whole,
        "pgtail spark all: typed tables, state, history": everything,
    }


def _small_batches(spark: Any, backlog: Backlog) -> list[str]:
    """What batches of few changes cost after one of many, and what they write, each in words."""
    from pgtail.spark.lake.update import Lake
    from pgtail.spark.state.settings import Settings
    from pgtail.spark.state.update import update_state

    out, found = WORK / "on_spark" / "batches", []
    shutil.rmtree(out, ignore_errors=True)
    for changes, segments in _parts(backlog):
        written: list[int] = []

        def batch(segments: Sequence[str] = segments, written: list[int] = written) -> None:
            lake = Lake(spark, str(out))
            lake.update(segments, typed=True)
            written += [update_state(lake, Settings(history=history)).rewritten for history in (False, True)]

        cost = _measured(batch)
        state, history = (f"{size / 1e6:.1f} MB" for size in written)
        found.append(f"a batch of {changes:,} changes: {cost.cpu:.2f} s CPU; {state} of state, {history} of history")
    return found


def _parts(backlog: Backlog) -> list[tuple[int, list[str]]]:
    """The transactions before the last one as segments: nearly all, then some with 150 changes, and with 20,000."""
    folder = WORK / f"{backlog.size.name}.parts"
    shutil.rmtree(folder, ignore_errors=True)
    capture = folder / "capture"
    capture.mkdir(parents=True)
    found, known, relations = list[tuple[int, list[str]]](), set[Path](), dict[bytes, bytes]()
    with backlog.lengths.open("rb") as whole:
        for changes in (backlog.size.accounts + backlog.size.wide - 25_000, 150, 20_000):
            part = folder / "part.lengths.bin"
            with part.open("wb") as file:
                copied = _copy_transactions(whole, file, changes, relations)
            dump = DumpOptions(input_format="lengths")
            record_dumps([str(part)], capture, dump, rotation=Rotation(), compress=True)
            segments = set(capture.glob(f"*{CLOSED}"))
            found.append((copied, sorted(map(str, segments - known))))
            known = segments
    return found


def _copy_transactions(whole: BinaryIO, part: BinaryIO, least: int, relations: dict[bytes, bytes]) -> int:
    """Copy frames after their lengths up to a Commit, with at least so many changes; returns how many there are.

    `relations` are the Relation messages so far by the table's OID: the server sends each once, every dump needs them.
    """
    changes, known = 0, b"".join(relations.values())
    while size := whole.read(4):
        frame = whole.read(int.from_bytes(size, "big"))
        part.write(size + frame)
        kind = frame[HEADER : HEADER + 1]
        if kind == b"B":
            part.write(known)
            known = b""
        elif kind == b"R":
            relations[frame[HEADER + 1 : HEADER + 5]] = size + frame
        changes += kind in (b"I", b"U", b"D")
        if kind == b"C" and changes >= least:
            break
    return changes


def _decoding(spark: Any, capture: Path) -> float:
    """CPU seconds of the decode stage alone, the least of three."""
    from pgtail.spark import changes

    def decode() -> None:
        changes(spark, str(capture)).write.format("noop").mode("overwrite").save()

    decode()
    return min(_measured(decode).cpu for _ in range(3))


def _measured(way: Callable[[], None]) -> Cost:
    wall, cpu = time.monotonic(), _tree_cpu()
    way()
    return Cost(time.monotonic() - wall, _tree_cpu() - cpu, _largest_worker())


def _tree() -> list[tuple[int, list[str]]]:
    """This process and its descendants: number, and the fields of its stat after the name."""
    found: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                found[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
    below = {os.getpid()}
    while more := {pid for pid, fields in found.items() if int(fields[1]) in below} - below:
        below |= more
    return [(pid, found[pid]) for pid in below if pid in found]


_used: Final[dict[tuple[int, str], float]] = {}
"""Seconds of each process that was ever seen, by its number and when it started: idle workers end between the runs."""


def _tree_cpu() -> float:
    """Seconds that all processes of the tree have used so far."""
    for pid, fields in _tree():
        user, system, started = int(fields[11]), int(fields[12]), fields[19]
        _used[pid, started] = (user + system) / _TICK
    return sum(_used.values())


def _largest_worker() -> float:
    """The most memory, in megabytes, that one of Spark's Python workers had so far."""
    peaks = [0]
    for pid, _ in _tree():
        try:
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                status = Path(f"/proc/{pid}/status").read_text()
                peaks += [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
        except OSError:
            continue
    return max(peaks) / 1024


def _capture(backlog: Backlog) -> Path:
    """The backlog as a capture, in segments of 64 MiB."""
    folder = WORK / f"{backlog.size.name}.capture"
    if not folder.exists():
        draft = folder.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        record_dumps(
            [str(backlog.lengths)],
            draft,
            DumpOptions(input_format="lengths"),
            rotation=Rotation(),
            compress=True,
        )
        draft.rename(folder)
    return folder


def _lines(backlog: Backlog) -> Path:
    """The same changes as wal2json writes them."""
    path = WORK / f"{backlog.size.name}.wal2json"
    if not path.exists():
        draft = path.with_suffix(".draft")
        options = ["include-transaction=off", "include-xids", "include-lsn", "include-timestamp"]
        command = [sys.executable, "-m", "pgtail", "decode", "-o", "wal2json", "-f", str(draft), str(backlog.lengths)]
        subprocess.run([*command, *[f"--wal2json={option}" for option in options]], check=True)
        draft.rename(path)
    return path


def _table(runs: dict[str, list[Cost]], backlog: Backlog, start: Cost) -> Table:
    table = Table(
        title=f"{backlog.size.changes:,} changes to Parquet on Spark, local[2], warm; medians of {ROUNDS} in turn;"
        f" starting a session: {start.wall:.1f} s, {start.cpu:.1f} s CPU",
        title_justify="left",
        box=None,
    )
    table.add_column("way", no_wrap=True)
    for heading in ("CPU s", "ratio", "wall s", "ratio", "worker MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    [usual, *_] = runs.values()
    cpu, wall = [statistics.median(getattr(cost, name) for cost in usual) for name in ("cpu", "wall")]
    for name, costs in runs.items():
        own_cpu, own_wall = [statistics.median(getattr(cost, kind) for cost in costs) for kind in ("cpu", "wall")]
        peak = max(cost.worker for cost in costs)
        table.add_row(
            name,
            f"{own_cpu:.2f}",
            f"{own_cpu / cpu:.2f}",
            f"{own_wall:.2f}",
            f"{own_wall / wall:.2f}",
            f"{peak:.0f}" if peak else "-",
        )
    return table
