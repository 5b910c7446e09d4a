"""Copying a table: `pgtail record --snapshot` and `stream --snapshot` beside psql's COPY TO STDOUT of that table.

What a copy may cost: the wall time of COPY times 1.3 with one job, 1.0 with two jobs on two cores, 0.75 on four; half
of the CPU time that COPY takes in the server, or half of what `decode -o json` takes, whichever is more.
"""

from __future__ import annotations

import os
import shutil
import statistics
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
ROWS = 16_000_000
"""So many that starting, half a second, counts little."""
_NULL = Path("/dev/null")
_SLOT = "copies"
_ONE, _TWO = "pgtail record --snapshot, 1 job", "pgtail record --snapshot, 2 jobs"
_DECODE = "pgtail decode -o json of it"
_MOST_WALL = {_ONE: 1.3, _TWO: 1.0 if (os.cpu_count() or 1) < 4 else 0.75}
"""As multiples of the first line's."""
_PGTAIL = Path(sys.executable).with_name("pgtail")
_SCHEMA = (
    "CREATE TABLE narrow (id int PRIMARY KEY, name text, total numeric)",
    f"INSERT INTO narrow SELECT i, 'row ' || i, i * 1.5 FROM generate_series(1, {ROWS}) i",
    "CREATE PUBLICATION p FOR ALL TABLES",
    "VACUUM ANALYZE narrow",
)


def copies(console: Console) -> None:
    """Print the comparison: seconds of the whole commands, in turn; `at most` is what the copy may cost."""
    installation = embedded_installations()[0]
    with closing(embedded_server(installation)) as server, TemporaryDirectory(dir="/dev/shm") as folder:
        server.start()
        database = Database(server, "postgres")
        database.execute(*_SCHEMA)
        found: dict[str, list[Run]] = {}
        of_server = []
        for _ in range(ROUNDS):
            of_server.append(_server_seconds(database))
            for name, measured in _programs(database, Path(folder)).items():
                found.setdefault(name, []).append(measured())
    costs = {name: Cost(runs) for name, runs in found.items()}
    first = next(iter(costs.values()))
    most_cpu = max(statistics.median(of_server), costs[_DECODE].cpu) / 2
    table = Table(
        title=f"a table of {ROWS:,} rows on PostgreSQL {installation.version}; medians of {ROUNDS} in turn",
        title_justify="left",
        box=None,
    )
    table.add_column("program", no_wrap=True)
    for heading in ("wall s", "ratio", "at most", "CPU s", "µs/row", "at most", "peak MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, cost in costs.items():
        most = _MOST_WALL.get(name)
        table.add_row(
            name,
            f"{cost.wall:.2f}",
            f"{cost.wall / first.wall:.2f}",
            "" if most is None else f"{most:.2f}",
            f"{cost.cpu:.2f}",
            f"{cost.cpu / ROWS * 1e6:.2f}",
            "" if most is None else f"{most_cpu / ROWS * 1e6:.2f}",
            f"{cost.peak:.0f}",
        )
    console.print()
    console.print(table)
    console.print(f"COPY takes {statistics.median(of_server) / ROWS * 1e6:.2f} µs/row of CPU in the server")


def _server_seconds(database: Database) -> float:
    """The CPU time that COPY takes in the server's process; 0 on systems that do not tell it."""
    with database.connect() as session, session.cursor() as cursor:
        stat = Path(f"/proc/{session.info.backend_pid}/stat")
        before = _ticks(stat)
        with cursor.copy("COPY narrow TO STDOUT") as copy:
            for _ in copy:
                pass
        return (_ticks(stat) - before) / os.sysconf("SC_CLK_TCK")


def _ticks(stat: Path) -> int:
    """User and system time in a file of proc(5)."""
    if not stat.exists():
        return 0
    _, _, fields = stat.read_text().rpartition(")")
    user, system = fields.split()[11:13]
    return int(user) + int(system)


def _programs(database: Database, folder: Path) -> dict[str, Callable[[], Run]]:
    conninfo, psql = database.conninfo(), database.server.installation.program("psql")
    capture = folder / "capture"

    def recorded(jobs: int) -> Run:
        shutil.rmtree(capture, ignore_errors=True)
        command: list[str | Path] = [_PGTAIL, "record", conninfo, "-S", _SLOT, "-D", capture]
        try:
            return run([*command, "--snapshot", "--snapshot-jobs", str(jobs), "--until", "now"], _NULL)
        finally:
            database.execute(f"SELECT pg_drop_replication_slot('{_SLOT}')")

    return {
        "psql, COPY TO STDOUT": lambda: run([psql, "-X", "-d", conninfo, "-c", "COPY narrow TO STDOUT"], _NULL),
        _ONE: lambda: recorded(1),
        _TWO: lambda: recorded(2),
        _DECODE: lambda: run([_PGTAIL, "decode", "--jobs", "1", "-o", "json", capture], _NULL),
        "pgtail stream --snapshot -o json": lambda: run(
            [_PGTAIL, "stream", conninfo, "--snapshot", "--until", "now", "-o", "json"], _NULL
        ),
    }
