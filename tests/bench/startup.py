"""How long a command takes to start: CPU time of short runs, as multiples of `pgtail --help`."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from rich.console import Console

from pgtail.demo.installation import embedded_installations
from tests.bench.measure import Cost, Run, run
from tests.support.corpus import capture
from tests.support.servers import embedded_server

ROUNDS = 15
_NULL = Path("/dev/null")


def startup(console: Console) -> None:
    """Print the comparison, with a server that has no slot."""
    pgtail = Path(sys.executable).with_name("pgtail")
    small = capture("Z_small", "p1").forms["walsender.bin"]
    with closing(embedded_server(embedded_installations()[0])) as server:
        server.start()
        line = f"COMP_WORDS=pgtail slot drop -d '{server.conninfo()}' "
        commands: dict[str, list[str | Path]] = {
            "--help": [pgtail, "--help"],
            "decode -o json of a small dump": [pgtail, "decode", "-o", "json", small],
            "slot list": [pgtail, "slot", "list", "-d", server.conninfo()],
            "completion of slots": ["env", "_PGTAIL_COMPLETE=bash_complete", line, pgtail],
        }
        runs: dict[str, list[Run]] = {}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                runs.setdefault(name, []).append(run(command, _NULL))
    costs = {name: Cost(of_one).cpu for name, of_one in runs.items()}
    least = costs["--help"]
    words = [f"{name} {1000 * cost:.0f} ms ({cost / least:.1f})" for name, cost in costs.items()]
    console.print(f"\nstarting, CPU, medians of {ROUNDS} in turn: {'; '.join(words)}")
