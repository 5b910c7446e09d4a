"""The pager on a terminal: when it is used, what it gets, and how the command ends; and a terminal that is resized."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.stopping.trial import PROGRAM, no_terminal, run_trial, time_limit
from tests.support.corpus import capture
from tests.support.servers import Database
from tests.support.tail import COMMAND, wait_for
from tests.support.terminals import on_terminal, open_terminal

RECV = str(capture("Z_small", "p1").forms["recv.bin"])
MARK = {"PAGER": "sed s/^/paged:/", "NO_COLOR": "1"}


def shown(*arguments: str, env: dict[str, str] | None = None, status: int = 0) -> list[str]:
    """The lines on the terminal."""
    ended, text = on_terminal([*PROGRAM, *arguments], env={**MARK, **(env or {})})
    assert ended == status, text
    return text.splitlines()


@pytest.mark.parametrize("command", ["decode", "inspect", "stats"])
def test_output_on_a_terminal_goes_through_the_pager(command: str) -> None:
    lines = shown(command, RECV)
    assert lines
    assert all(line.startswith("paged:") for line in lines)
    plain = shown(command, "--no-pager", RECV)
    assert not any(line.startswith("paged:") for line in plain)
    assert len(lines) == len(plain)


@pytest.mark.parametrize(
    "variables", [{"PAGER": "cat"}, {"PAGER": ""}, {"PAGER": "no-such-pager -x"}, {"TERM": "dumb"}, {"PAGER": "'"}]
)
def test_without_a_usable_pager_the_output_comes_directly(variables: dict[str, str]) -> None:
    lines = shown("inspect", RECV, env=variables)
    assert lines == shown("inspect", "--no-pager", RECV)


def test_the_pager_gets_colours_the_width_and_the_defaults_of_git() -> None:
    asked = {"PAGER": 'echo "$LESS $COLUMNS"; cat >/dev/null', "NO_COLOR": ""}
    assert shown("decode", RECV, env=asked) == ["FRX 80"]
    assert shown("decode", RECV, env={**asked, "LESS": "X", "COLUMNS": "132"}) == ["X 132"]
    assert any("\x1b[" in line for line in shown("decode", RECV, env={"NO_COLOR": ""}))


def test_json_and_notes_go_there_too() -> None:
    lines = shown("decode", "-o", "json", "--table", "nosuch", RECV)
    assert ["matched" in line or "no selected table" in line for line in lines] == [True, True]
    lines = shown("decode", "-o", "json", RECV)
    assert lines[0].startswith('paged:{"op":')


def test_in_a_pager_every_change_is_shown_unless_a_number_is_given() -> None:
    path = str(capture("A_dml", "p1").forms["recv.bin"])
    assert not any("not shown" in line for line in shown("decode", "-o", "table", path))
    for options in (("--no-pager",), ("--max-rows", "20")):
        assert any("280 not shown (--max-rows 20)" in line for line in shown("decode", "-o", "table", *options, path))


def test_messages_wrap_in_the_pager_too() -> None:
    path = str(capture("A_dml", "p1").forms["recv.bin"])
    lines = shown("decode", "-o", "table", "--max-rows", "1", path)
    first = next(number for number, line in enumerate(lines) if line.startswith("paged:pgtail: note: without"))
    assert max(len(line) for line in lines[first : first + 4]) <= len("paged:") + 80
    assert lines[first + 3].startswith("paged:            ALTER TABLE ")


def test_values_cannot_control_the_terminal_through_the_pager(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(Path(RECV).read_bytes().replace(b"one", b"\x9b2J"))
    assert "\x9b" not in "".join(shown("decode", "-o", "json", "--encoding", "latin1", str(text)))


def test_a_pager_that_ends_early_ends_the_command() -> None:
    assert shown("decode", "-q", *[RECV] * 500, env={"PAGER": "head -n 1"})[0].startswith("●")


def test_an_error_comes_after_the_output_and_keeps_its_status(tmp_path: Path) -> None:
    cut = tmp_path / "cut.bin"
    cut.write_bytes(Path(RECV).read_bytes()[:-9])
    lines = shown("decode", str(cut), status=1)
    first = next(number for number, line in enumerate(lines) if line.startswith("pgtail: error:"))
    assert first > 0
    assert all(line.startswith("paged:") for line in lines[:first])
    assert all(line.startswith("        ") for line in lines[first + 1 :])
    assert shown("decode", "/no/such", status=1) == ["pgtail: error: /no/such: No such file or directory"]


def test_what_comes_through_a_pipe_is_shown_at_once() -> None:
    terminal, slave = open_terminal()
    os.close(terminal)
    os.close(slave)
    shell = ["/bin/sh", "-c", f"cat '{RECV}' | '{sys.executable}' -m pgtail decode -"]
    status, text = on_terminal(shell, env=MARK)
    assert (status, "paged:" in text, "●" in text) == (0, False, True)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_pager_too_and_restores_the_terminal(
    sent: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pager is in a session of its own: only pgtail gets the signal."""
    if reason := no_terminal():
        pytest.skip(reason)
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\nstty raw -echo <&1\necho shown\nexec sleep 1000\n")
    pager.chmod(0o755)
    monkeypatch.setenv("PAGER", f"setsid {pager}")
    trial = run_trial(["inspect", RECV], sent, 0.1, terminal=True, begun=b"shown", limit=time_limit())
    assert trial.complaints == []
    assert trial.status in (0, 128 + sent)  # whether the dump was read to its end by then


def test_ctrl_c_is_the_pagers(monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := no_terminal() or (None if shutil.which("less") else "less is not installed"):
        pytest.skip(reason)
    monkeypatch.setenv("PAGER", "less")
    monkeypatch.setenv("LESS", "RX")
    trial = run_trial(
        ["inspect", RECV], signal.SIGINT, 0.1, terminal=True, begun=b"Begin", typed=b"q", limit=time_limit()
    )
    assert trial.complaints == []
    assert trial.status == 0


@pytest.fixture
def backlog(newest_database: Database) -> list[str]:
    """The command that shows a slot with 20,000 changes."""
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    newest_database.execute("INSERT INTO t SELECT generate_series(1, 20000)")
    return ["stream", newest_database.conninfo(), "-S", "s", "-o", "line"]


def test_a_stream_that_the_server_has_already_goes_through_the_pager(backlog: list[str]) -> None:
    lines = shown(*backlog, "--until", "now")
    assert all(line.startswith("paged:") for line in lines)
    assert "id=20000" in lines[-2]
    assert re.search("pgtail: 1 transaction shown; resume at [0-9A-F]+/", lines[-1])
    for options in (["--no-pager", "--until", "now"], [], ["--until", "FFFFFFFF/0"]):
        lines = shown(*backlog, *options, "--idle-exit", "2s")
        assert "id=20000]" in "".join(lines)
        assert not any(line.startswith("paged:") for line in lines)


def test_a_pager_that_ends_early_ends_the_stream(backlog: list[str]) -> None:
    lines = shown(*backlog, "--until", "now", env={"PAGER": "head -n 9"})
    assert "id=1]" in "".join(lines)
    assert len(lines) == 9
    assert "error" not in "".join(lines)


def test_an_error_of_the_server_comes_without_a_pager(backlog: list[str]) -> None:
    [line, *_] = shown(*backlog[:2], "-S", "nosuch", "--until", "now", status=3)
    assert line.startswith("pgtail: error: ")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_pager_shows_a_stream(
    backlog: list[str], sent: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := no_terminal() or (None if shutil.which("less") else "less is not installed"):
        pytest.skip(reason)
    monkeypatch.setenv("PAGER", "less")
    monkeypatch.setenv("LESS", "RX")
    typed = b"q" if sent == signal.SIGINT else b""
    trial = run_trial(
        [*backlog, "--until", "now"], sent, 0.5, terminal=True, begun=b"id=9", typed=typed, limit=time_limit()
    )
    assert trial.complaints == []
    assert trial.status == 0


def _resize(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def test_the_width_follows_the_terminal_while_streaming(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY, a text, b text)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    terminal, slave = open_terminal()
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    _resize(terminal, 60)
    command = [*COMMAND, newest_database.conninfo(), "-S", "s", "--color", "never"]
    seen = b""

    def read(count: int) -> bool:
        nonlocal seen
        seen += os.read(terminal, 65536)
        return seen.count(b"end ") >= count

    with subprocess.Popen(command, stdout=slave, stderr=subprocess.DEVNULL, env=environment) as running:
        os.close(slave)
        insert = "INSERT INTO t VALUES ({}, repeat('x', 40), repeat('y', 40))"
        newest_database.execute(insert.format(1))
        wait_for("the first transaction", lambda: read(1))
        _resize(terminal, 160)
        newest_database.execute(insert.format(2))
        wait_for("the second", lambda: read(2))
        running.terminate()
        os.close(terminal)
    narrow, _, wide = seen.decode().partition("id=2")
    first, _, _ = narrow.rpartition("●")
    assert max(map(len, first.splitlines())) <= 60
    assert "x" * 40 in wide.splitlines()[0]
    assert "y" * 40 in wide.splitlines()[0]
