"""Copying a table: `pgtail record --snapshot` and `stream --snapshot` beside psql's COPY TO STDOUT of that table."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from pgtail.demo.installation import embedded_installations
from tests.bench.measure import Cost, Run, run
from tests.support.servers import Database, embedded_server

ROUNDS = 5
ROWS = 4_000_000
_NULL = Path("/dev/null")
_SLOT = "copies"
_PGTAIL = Path(sys.executable).with_name("pgtail")
_SCHEMA = (
    "CREATE TABLE narrow (id int PRIMARY KEY, name text, total numeric)",
    f"INSERT INTO narrow SELECT i, 'row ' || i, i * 1.5 FROM generate_series(1, {ROWS}) i",
    "CREATE PUBLICATION p FOR ALL TABLES",
    "VACUUM ANALYZE narrow",
)


def copies(console: Console) -> None:
    """Print the comparison: seconds of the whole commands, in turn."""
    installation = embedded_installations()[0]
    with closing(embedded_server(installation)) as server, TemporaryDirectory(dir="/dev/shm") as folder:
        server.start()
        database = Database(server, "postgres")
        database.execute(*_SCHEMA)
        found: dict[str, list[Run]] = {}
        for _ in range(ROUNDS):
            for name, measured in _programs(database, Path(folder)).items():
                found.setdefault(name, []).append(measured())
    costs = {name: Cost(runs) for name, runs in found.items()}
    first = next(iter(costs.values()))
    table = Table(
        title=f"a table of {ROWS:,} rows on PostgreSQL {installation.version}; medians of {ROUNDS} in turn",
        title_justify="left",
        box=None,
    )
    table.add_column("program", no_wrap=True)
    for heading in ("wall s", "ratio", "CPU s", "peak MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, cost in costs.items():
        table.add_row(name, f"{cost.wall:.2f}", f"{cost.wall / first.wall:.2f}", f"{cost.cpu:.2f}", f"{cost.peak:.0f}")
    console.print()
    console.print(table)


def _programs(database: Database, folder: Path) -> dict[str, Callable[[], Run]]:
    conninfo, psql = database.conninfo(), database.server.installation.program("psql")

    def recorded(jobs: int) -> Run:
        capture = folder / "capture"
        command: list[str | Path] = [_PGTAIL, "record", conninfo, "-S", _SLOT, "-D", capture]
        try:
            return run([*command, "--snapshot", "--snapshot-jobs", str(jobs), "--until", "now"], _NULL)
        finally:
            database.execute(f"SELECT pg_drop_replication_slot('{_SLOT}')")
            shutil.rmtree(capture)

    return {
        "psql, COPY TO STDOUT": lambda: run([psql, "-X", "-d", conninfo, "-c", "COPY narrow TO STDOUT"], _NULL),
        "pgtail record --snapshot, 1 job": lambda: recorded(1),
        "pgtail record --snapshot, 2 jobs": lambda: recorded(2),
        "pgtail stream --snapshot -o json": lambda: run(
            [_PGTAIL, "stream", conninfo, "--snapshot", "--until", "now", "-o", "json"], _NULL
        ),
    }
