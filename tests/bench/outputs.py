"""What every output and option costs, as multiples of `decode -o json`; in plain Python, of a tenth of the changes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.measure import Cost, Failed, Run, run
from tests.bench.workload import SIZES, WORK, Backlog

_ROUNDS = 3
_NULL = Path("/dev/null")
_CSV, _CAPTURE = WORK / "csv", WORK / "capture"

_DECODE: dict[str, list[str]] = {
    "-o json": ["-o", "json"],
    "-o json-tx": ["-o", "json-tx"],
    "-o json --where": ["-o", "json", "--where", "aid > 1000"],
    "-o json --where AND": ["-o", "json", "--where", "aid > 9 and (bid in (1, 2, 3) or filler like '%7%')"],
    "-o json --where ~": ["-o", "json", "--where", "filler ~ '7 '"],
    "-o json --redact": ["-o", "json", "--redact", "filler,name"],
    "-o json --changed": ["-o", "json", "--changed"],
    "-o json --old-values": ["-o", "json", "--old-values", "seen"],
    "-o json --columns": ["-o", "json", "--columns", "*.aid,*balance"],
    "-o line": ["-o", "line"],
    "-o line --color always": ["-o", "line", "--color", "always"],
    "-o csv": ["-o", "csv", "-f", f"{_CSV}/"],
    "-o sql": ["-o", "sql"],
    "-o sql --undo": ["-o", "sql", "--undo"],
    "-o sql --undo --old-values": ["-o", "sql", "--undo", "--old-values", "seen"],
    "-o wal2json": ["-o", "wal2json"],
    "-o wal2json-v1": ["-o", "wal2json-v1"],
    "--format-string": ["--format-string", "%o %t %k %v"],
    "-o debezium": ["-o", "debezium"],
    "-o debezium --schema": ["-o", "debezium", "--schema"],
    "-o debezium --keys": ["-o", "debezium", "--keys"],
    "-o table": ["-o", "table"],
}
"""The options of `pgtail decode`, by the name that they have in the table."""


def outputs(backlog: Backlog, console: Console) -> None:
    """Run every output in turn, also in plain Python, and print what it costs."""
    console.print()
    console.print(_measured("every output", _commands(backlog), []))
    tenth = Backlog(SIZES["tenth"])
    if not tenth.is_there():
        tenth.record()
    pure = {name: command for name, command in _commands(tenth).items() if "decode" in command}
    console.print()
    console.print(_measured(f"in plain Python, {tenth.size.changes:,} changes", pure, ["env", "PGTAIL_PURE=1"]))


def _commands(backlog: Backlog) -> dict[str, list[str | Path]]:
    pgtail = Path(sys.executable).with_name("pgtail")
    found: dict[str, list[str | Path]] = {
        name: [pgtail, "decode", *options, backlog.lengths] for name, options in _DECODE.items()
    }
    found["pgtail stats"] = [pgtail, "stats", "-o", "json", backlog.lengths]
    found["pgtail record --from"] = [pgtail, "record", "-D", _CAPTURE, "--from", backlog.lengths]
    found["pgtail inspect"] = [pgtail, "inspect", "-o", "json", backlog.lengths]
    return found


def _remove_outputs() -> None:
    for directory in (_CSV, _CAPTURE):
        shutil.rmtree(directory, ignore_errors=True)


def _measured(title: str, commands: dict[str, list[str | Path]], before: list[str]) -> Table:
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(_ROUNDS):
        for name, command in commands.items():
            _remove_outputs()
            try:
                runs[name].append(run([*before, *command], _NULL))
            except Failed as failed:
                raise SystemExit(f"{name} failed: {failed}") from failed
    _remove_outputs()
    table = Table(title=f"{title}; medians of {_ROUNDS} in turn", title_justify="left", box=None)
    table.add_column("output", no_wrap=True)
    for heading in ("CPU s", "least-most", "of -o json", "peak MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    costs = {name: Cost(of_one) for name, of_one in runs.items()}
    for name, cost in costs.items():
        least, most = cost.spread
        ratio = cost.cpu / costs["-o json"].cpu
        table.add_row(name, f"{cost.cpu:.2f}", f"{least:.2f}-{most:.2f}", f"{ratio:.2f}", f"{cost.peak:.0f}")
    return table
