"""Requests to stop: signals at random moments, signals ignored at the start, and terminals."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from pgtail.commands.console.full_screen import INTERVAL
from tests.stopping.trial import PROGRAM, no_terminal, run_trial
from tests.support.encode import begin, commit, insert, recvlogical, relation
from tests.support.limits import within
from tests.support.servers import Database
from tests.support.tail import PATIENCE, Tailing, stream, tailing
from tests.support.terminals import on_terminal, open_terminal

_LIMIT = 10.0
"""Seconds for what a command leaves to disappear."""
needs_terminal = pytest.mark.skipif(no_terminal() is not None, reason=no_terminal() or "")


@contextlib.contextmanager
def ignoring(number: signal.Signals) -> Iterator[None]:
    """Programs started in this context ignore it, as under nohup or in the background of a script."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(
    ("name", "number"), [("stream", signal.SIGINT), ("record", signal.SIGHUP), ("slot list", signal.SIGHUP)]
)
def test_signal_ignored_at_the_start_stays_ignored(
    newest_database: Database, name: str, number: signal.Signals, tmp_path: Path
) -> None:
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    dsn = newest_database.conninfo()
    arguments = {
        "stream": ["stream", dsn, "-S", "s", "-v"],
        "record": ["record", dsn, "-S", "s", "-D", str(tmp_path / "capture"), "-v"],
        "slot list": ["slot", "list", dsn, "--watch"],
    }[name]
    with ignoring(number):
        process = subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.terminate()
        process.communicate(timeout=within(PATIENCE))
    assert process.returncode == 0


@needs_terminal
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_watch_restores_the_terminal(newest_database: Database, sent: signal.Signals) -> None:
    arguments = ["slot", "list", newest_database.conninfo(), "--watch"]
    trial = run_trial(arguments, sent, 0.3, terminal=True, begun=b"\x1b[?1049h", limit=_LIMIT)
    assert b"\x1b[?1049h" in trial.out
    assert trial.complaints == []
    assert trial.status == 0


@needs_terminal
@pytest.mark.parametrize(
    ("command", "status"), [("slot list --watch", 0), ("decode --no-pager -o line dump", 128 + 15)]
)
def test_a_stopped_terminal_keeps_no_command(
    newest_database: Database, command: str, status: int, tmp_path: Path
) -> None:
    """After Ctrl-S a write waits for Ctrl-Q; the second request ends it at the latest, and its own message, too."""
    (tmp_path / "dump").write_bytes(recvlogical(relation(), begin(), *[insert("1", "x")] * 50_000, commit()))
    user, program = open_terminal()
    arguments = [*PROGRAM, *command.split(), *([newest_database.conninfo()] if "slot" in command else [])]
    with subprocess.Popen(arguments, cwd=tmp_path, stdin=program, stdout=program, stderr=program) as process:
        try:
            os.read(user, 1)
            os.write(user, b"\x13")
            time.sleep(INTERVAL + 0.5)  # until the next report
            for _ in range(2):
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1.5)  # what comes earlier is the same request
            assert process.wait(within(30)) == status
        finally:
            process.kill()
            os.close(user)
            os.close(program)


@needs_terminal
@pytest.mark.parametrize(
    ("command", "sent"),
    [
        ("stream", signal.SIGINT),
        ("stream", signal.SIGHUP),
        ("record -S s -D capture", signal.SIGINT),
        ("stats --slot s", signal.SIGINT),
        ("slot list --watch", signal.SIGINT),
        ("slot create s", signal.SIGINT),
        ("doctor", signal.SIGTERM),
    ],
)
def test_a_request_to_stop_at_a_password_prompt(
    newest_database: Database, command: str, sent: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal echoes again (a complaint else); nothing is reported, for nothing was begun."""
    monkeypatch.chdir(tmp_path)
    arguments = [*command.split(), "-W", newest_database.conninfo(tcp=True)]
    trial = run_trial(arguments, sent, 0.1, terminal=True, begun=b"Password", limit=_LIMIT)
    assert trial.complaints == []
    assert trial.status == 128 + sent
    if sent is signal.SIGINT:
        assert trial.out in (b"Password for user postgres: \r\n", b"Password for user postgres: ^C\r\n")


@needs_terminal
def test_no_password_at_the_prompt(newest_database: Database) -> None:
    """Ctrl-D: the server's own error follows, on a new line."""
    conninfo = newest_database.server.conninfo(newest_database.name, tcp=True, password="")
    command = [*PROGRAM, "doctor", "-W", conninfo]
    status, shown = on_terminal(command, until="Password", answer="\x04", env={"PGPASSWORD": ""})
    assert status == 3, shown
    assert shown.startswith("Password for user postgres: \r\npgtail: error: ")
    assert "no password supplied" in shown


@needs_terminal
def test_progress_of_a_long_file_restores_the_cursor(tmp_path: Path) -> None:
    long = tmp_path / "long"
    with long.open("wb") as file:
        for _ in range(40_000):
            file.write(b"B" + bytes(20) + b"C" + bytes(25) * 20)
    arguments = ["decode", str(long), "--resync", "-f", str(tmp_path / "out")]
    trial = run_trial(arguments, signal.SIGTERM, 0.3, terminal=True, begun=b"\x1b[?25l", limit=_LIMIT)
    assert trial.complaints == []


def test_second_hangup_is_ignored(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    # With options it is not a fork, whose interpreter ends more slowly: the second signal could come in between.
    with tailing(newest_database, "-S", "s", "--ack", "commit", start_new_session=True) as running:
        _insert_and_see(newest_database, running)
        running.process.send_signal(signal.SIGHUP)
        words = running.stop(signal.SIGHUP)
    held = newest_database.value("SELECT confirmed_flush_lsn FROM pg_replication_slots")
    assert words.rpartition("resume at ")[2].strip() == held


def _insert_and_see(database: Database, running: Tailing) -> None:
    running.wait_for_slot(database, "s")
    database.execute("INSERT INTO t VALUES (1)")
    running.wait_for_lines(1)


def test_stream_stopped_inside_a_large_transaction(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    newest_database.execute("INSERT INTO t SELECT generate_series(1, 200000)")
    for more, shown in (
        ((), r", after ([\d ]+) changes"),
        (("--where", "id > 10"), r", after ([\d ]+) changes, of which those selected were shown"),
    ):
        whole = ("-S", "s", "--ack", "none", "--streaming", "off", *more)
        with tailing(newest_database, *whole, env={"PGTAIL_PURE": "1"}) as running:
            running.wait_for_lines(1)
            words = running.stop()
        lines = running.changes
        found = re.search(rf"note: stopped inside transaction {lines[0]['xid']}{shown}\n", words)
        assert found is not None, words
        assert int(found[1].replace(" ", "")) == int(lines[-1]["new"]["id"]) < 200_000
    assert "stopped inside" not in stream(newest_database, "-S", "s", "-n", "1")[1]


@pytest.mark.parametrize("way", ["script", "module"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_before_a_command_begins_gives_its_own_status(sent: signal.Signals, way: str) -> None:
    [script] = entry_points(group="console_scripts", name="pgtail")
    begins = {
        "script": f"from {script.module} import {script.attr} as begin; begin()",
        "module": "import runpy; runpy.run_module('pgtail', run_name='__main__')",
    }
    program = f"""
import os, sys
class Signalling:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), {int(sent)})
sys.meta_path.insert(0, Signalling())
{begins[way]}
"""
    ran = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, check=False, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (128 + sent, "", "")
