"""`pgtail demo` shows the commands on an embedded server, and leaves nothing behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import psycopg

from tests.support.limits import within
from tests.support.run_process import started
from tests.support.tail import PATIENCE

DEMO = [sys.executable, "-m", "pgtail", "demo"]


def test_demo_shows_tables_then_the_same_as_lines_and_json() -> None:
    run = subprocess.run(DEMO, capture_output=True, text=True, timeout=within(90), check=False)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    changes = [json.loads(line) for line in lines if line.startswith("{")]
    tables = "\n".join(line for line in lines if not line.startswith("{"))
    for shown in (
        "'new' → 'paid'",
        "?balance=",
        "id=2 → 3",
        "TRUNC",
        "MESSAGE",
        "prepared 'transfer-91'",
        "not shown",
    ):
        assert shown in tables
    assert "\x1b" not in run.stdout
    assert re.search(r"^\S+ \S+ \d+ UPDATE  public\.customers +\[id=2→3\]", tables, re.MULTILINE)
    ops = {change["op"] for change in changes}
    assert ops == {"insert", "update", "delete", "message", "commit_prepared"}  # sessions is excluded
    (moved,) = [change for change in changes if change.get("table") == "customers" and change["op"] == "update"]
    assert (moved["old"], moved["new"]["id"]) == ({"id": 2}, 3)


def test_serve_ends_cleanly_with_ctrl_c() -> None:
    with started([*DEMO, "--serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        command = next(line for line in demo.stdout if "PGHOST=" in line)
        directory = Path(command.split("PGHOST=")[1].split()[0])
        assert directory.exists()
        exports = command + next(demo.stdout)
        script = f"{exports}createdb shop && psql -d shop -XAtc 'SELECT current_database()' && which -a psql"
        tried = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        assert tried.stdout.startswith("shop\n"), tried.stderr
        assert "/pginstall" in tried.stdout  # the server's own programs serve where no others are installed
        demo.send_signal(signal.SIGINT)
        _, said = demo.communicate(timeout=within(PATIENCE))
    assert demo.returncode == 0, said
    assert not directory.exists()


def test_the_server_runs_on_after_its_workload_has_failed() -> None:
    with started([*DEMO, "--serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        words = next(line for line in demo.stdout if "PGHOST=" in line).split()
        host, port = (word.partition("=")[2] for word in words[1:])
        with psycopg.connect(f"host={host} port={port} user=postgres dbname=demo") as connection:
            connection.execute("DROP TABLE orders")
            connection.commit()
            said = next(line for line in demo.stderr if "workload" in line)
            assert 'the workload has ended: relation "orders" does not exist' in said
            assert connection.execute("SELECT 1").fetchone() == (1,)
        demo.send_signal(signal.SIGINT)
        _, said = demo.communicate(timeout=within(PATIENCE))
    assert (demo.returncode, "Traceback" in said) == (0, False)
