"""What metrics cost a recorder: two with and two without record the same stream at the same time."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from rich.console import Console

from pgtail.demo.server import free_port
from tests.support.run_process import PROGRAM
from tests.support.servers import Database, embedded_server, fresh_database, installations

SECONDS = 60.0
SCRAPED = 15.0
"""Seconds between two scrapes: Prometheus's usual interval is longer."""
_FOLLOWED = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"
_ROWS = "INSERT INTO t (note) SELECT md5(i::text) FROM generate_series(1, 20000) i"


def services(console: Console) -> None:
    """Print the CPU time of both."""
    with embedded_server([*installations().values()][-1]) as server, fresh_database(server) as database:
        database.execute("CREATE TABLE t (id bigserial PRIMARY KEY, note text)", "CREATE PUBLICATION p FOR ALL TABLES")
        with tempfile.TemporaryDirectory() as folder:
            plain, shown = _measured(database, Path(folder))
    console.print(f"\nrecord under a steady load, {SECONDS:.0f} s: CPU {plain:.2f} s, with metrics {shown:.2f} s")


def _measured(database: Database, folder: Path) -> tuple[float, float]:
    """Seconds of CPU without and with metrics."""
    ports = [free_port(), free_port()]
    options = [[], [], *(["--metrics", str(port), "--max-lag", "5m"] for port in ports)]
    recorders = [
        subprocess.Popen(
            [*PROGRAM, "record", database.conninfo(), "-S", f"s{number}", "-D", str(folder / f"{number}"), *more],
            stderr=subprocess.DEVNULL,
        )
        for number, more in enumerate(options)
    ]
    over = threading.Event()
    load = threading.Thread(target=_write, args=(database, over))
    try:
        while (
            len(database.query("SELECT 1 FROM pg_replication_slots WHERE active AND confirmed_flush_lsn > '0/0'")) < 4
        ):
            time.sleep(0.1)
        load.start()
        time.sleep(2)
        before = [_cpu(one.pid) for one in recorders]
        for _ in range(int(SECONDS / SCRAPED)):
            time.sleep(SCRAPED)
            for port in ports:
                for path in ("metrics", "healthz"):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}").close()
        used = [_cpu(one.pid) - start for one, start in zip(recorders, before, strict=True)]
    finally:
        over.set()
        for one in recorders:
            one.terminate()
        for one in recorders:
            one.wait()
    load.join()
    return sum(used[:2]) / 2, sum(used[2:]) / 2


def _write(database: Database, over: threading.Event) -> None:
    with database.connect() as connection:
        while not over.wait(0.1):
            connection.execute(_ROWS)


def _cpu(pid: int) -> float:
    """User and system time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
