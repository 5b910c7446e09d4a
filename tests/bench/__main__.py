"""`make bench`: pgtail's speed and others', on one workload: a tenth of the published size, or all with BENCH=full.

The programs run in turn, in several rounds, so that other work on the machine affects all of them. Medians count, and
CPU time more than wall time. No result is a pass or a failure.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pgtail.errors import ServerError
from tests.bench.contenders import Contender, contenders
from tests.bench.copies import copies
from tests.bench.latency import latency
from tests.bench.live import Drain, live_server
from tests.bench.measure import FLOOR, Cost, Failed, Run, run
from tests.bench.on_spark import on_spark
from tests.bench.outputs import outputs
from tests.bench.startup import startup
from tests.bench.workload import SIZES, WORK, Backlog, Size

ROUNDS = 5
LIVE_ROUNDS = 9
NULL = Path(os.devnull)
FILE = WORK / "output"

console = Console(highlight=False, width=110)


def main() -> None:
    name = os.environ.get("BENCH") or "tenth"
    if name not in SIZES:
        raise SystemExit(f"BENCH={name}: expected one of {', '.join(SIZES)}")
    backlog = Backlog(SIZES[name])
    if not backlog.is_there():
        console.print(f"making {backlog.size.changes:,} changes on an embedded PostgreSQL, kept in {WORK} ...")
        try:
            backlog.record()
        except ServerError as error:
            raise SystemExit(f"the workload could not be made: {error}") from error
    found, missing = contenders(backlog)
    for line in missing:
        console.print(f"left out: {line}", markup=False)
    console.print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {_cpu()}")
    try:
        for output in (NULL, FILE):
            costs = _in_turn(found, backlog, output)
            console.print()
            console.print(_table(costs, backlog, output))
    finally:
        FILE.unlink(missing_ok=True)
    startup(console)
    outputs(backlog, console)
    on_spark(backlog, console)
    _live(backlog.size)
    copies(console)
    console.print("\nCPU: user and system time; ratio: CPU time, as a multiple of the first line's.")
    console.print("framing (finding where frames end, nothing else) and cat show what limits there are.")


def _live(size: Size) -> None:
    """Programs that read a slot: how long they take for the backlog, and for a lone commit."""
    missing: list[str] = []
    with live_server(size, missing) as live:
        for line in missing:
            console.print(f"left out: {line}", markup=False)
        runs: dict[Drain, list[Run]] = {}
        drains = live.drains()
        for _ in range(LIVE_ROUNDS):
            for drain in drains:
                with live.slot(drain.plugin):
                    runs.setdefault(drain, []).append(run(drain.command, NULL))
        console.print()
        console.print(_live_table({drain: Cost(of_one) for drain, of_one in runs.items()}, size, live.words))
        console.print()
        for tail in live.tails():
            median, most = latency(live, tail)
            line = f"lone commits, {tail.name}: median {median:.2f} ms, 99th percentile {most:.2f} ms"
            console.print(line, markup=False)


def _live_table(costs: dict[Drain, Cost], size: Size, server: str) -> Table:
    table = Table(
        title=f"a slot with {size.changes:,} changes on {server}, to /dev/null; medians of {LIVE_ROUNDS} in turn",
        title_justify="left",
        box=None,
    )
    table.add_column("program", no_wrap=True)
    table.add_column("options", no_wrap=True)
    for heading in ("wall s", "least-most", "pgtail's is", "CPU s", "peak MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for drain, cost in costs.items():
        pgtail = next(other for first, other in costs.items() if first.group == drain.group)
        walls = [run.wall for run in cost.runs]
        table.add_row(
            drain.name,
            drain.group,
            f"{cost.wall:.2f}",
            f"{min(walls):.2f}-{max(walls):.2f}",
            f"{pgtail.wall / cost.wall:.2f}",
            f"{cost.cpu:.2f}",
            f"{cost.peak:.0f}" if cost.peak > FLOOR else f"<{FLOOR}",
        )
    return table


def _in_turn(found: list[Contender], backlog: Backlog, output: Path) -> dict[str, Cost]:
    runs: dict[str, list[Run]] = {contender.name: [] for contender in found}
    for _ in range(ROUNDS):
        for contender in found:
            runs[contender.name].append(_measured(contender, backlog, output))
    return {name: Cost(of_one) for name, of_one in runs.items()}


def _measured(contender: Contender, backlog: Backlog, output: Path) -> Run:
    """One run. Where lines can be counted, it is valid only with a line for every change."""
    try:
        cost = run(contender.command, output)
    except Failed as failed:
        raise SystemExit(f"{contender.name} failed: {failed}") from failed
    if output is FILE and contender.writes_changes:
        lines = _lines(output)
        if lines != backlog.size.changes:
            raise SystemExit(f"{contender.name} wrote {lines:,} lines for {backlog.size.changes:,} changes")
    return cost


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))


def _table(costs: dict[str, Cost], backlog: Backlog, output: Path) -> Table:
    where = "to /dev/null" if output is NULL else "to a file"
    size = backlog.lengths.stat().st_size / 1e6
    table = Table(
        title=f"{backlog.size.changes:,} changes, {size:.0f} MB, {where}; medians of {ROUNDS} in turn",
        title_justify="left",
        box=None,
    )
    table.add_column("program", no_wrap=True)
    for heading in ("CPU s", "least-most", "ratio", "wall s", "peak MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    pgtail = next(iter(costs.values()))
    for name, cost in costs.items():
        least, most = cost.spread
        table.add_row(
            name,
            f"{cost.cpu:.2f}",
            f"{least:.2f}-{most:.2f}",
            f"{cost.cpu / pgtail.cpu:.2f}",
            f"{cost.wall:.2f}",
            f"{cost.peak:.0f}" if cost.peak > FLOOR else f"<{FLOOR}",
        )
    return table


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


if __name__ == "__main__":
    main()
