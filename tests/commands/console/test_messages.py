"""Messages on a terminal: wrapped between words, with commands that are not; elsewhere one line."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtail.commands.console.messages import laid_out, messages
from pgtail.commands.console.stderr_thread import StderrThread
from pgtail.errors import COMMAND
from pgtail.log import log_detail, log_outcome, log_summary, log_trace
from tests.support.run import command
from tests.support.tail import wait_for
from tests.support.terminals import on_terminal, open_terminal

ALTER = 'ALTER TABLE "public"."a table with a long name" REPLICA IDENTITY FULL;'
MESSAGE = f"note: without the old row, columns may be unchanged. To send it:{COMMAND}{ALTER}\nThat is slower."


def test_a_command_stands_alone() -> None:
    assert laid_out(MESSAGE, 40).split("\n") == [
        "pgtail: note: without the old row,",
        "        columns may be unchanged. To",
        "        send it:",
        f"            {ALTER}",
        "        That is slower.",
    ]
    assert laid_out(MESSAGE, 30).split("\n")[:2] == ["pgtail: note: without the old", "  row, columns may be"]
    assert laid_out(MESSAGE, None).split("\n") == [
        f"pgtail: note: without the old row, columns may be unchanged. To send it: {ALTER}",
        "        That is slower.",
    ]


def test_json_is_not_broken() -> None:
    line = '{"op":"insert","new":{"note":"some words and some more"}}'
    assert laid_out(f"the last ones:\n{line}", 50).split("\n")[1:] == [f"        {line}"]


@pytest.mark.parametrize("columns", [None, 80])
@pytest.mark.parametrize("place", [0, 4, 9])
def test_a_mark_below_a_line_stays_there(columns: int | None, place: int) -> None:
    mark = " " * place + "^"
    assert laid_out(f"error: no operator\nv == 'value'\n{mark}", columns).split("\n")[1:] == [
        "        v == 'value'",
        f"        {mark}",
    ]


@given(st.lists(st.text(st.sampled_from("ab語"), min_size=1, max_size=12), min_size=1), st.integers(20, 200))
def test_words_stay_whole_at_any_width(words: list[str], columns: int) -> None:
    lines = laid_out(" ".join(words), columns).split("\n")
    assert " ".join(lines).split() == ["pgtail:", *words]
    assert all(sum(1 + (char == "語") for char in line) <= max(columns, 8 + 24) for line in lines)


@pytest.mark.parametrize("columns", [80, 160])
def test_errors_wrap_on_a_terminal_only(columns: int) -> None:
    one_line, help_line = command("decode", "--since", "not a time at all", "/no/file").stderr.splitlines()
    assert help_line == "        for help: pgtail decode --help"
    program = str(Path(sys.executable).with_name("pgtail"))
    resized = f"stty cols {columns}; exec {program} decode --since 'not a time at all' /no/file"
    status, shown = on_terminal(["/bin/sh", "-c", resized])
    lines = shown.replace("\r\n", "\n").splitlines()
    assert status == 2
    assert max(map(len, lines)) <= columns
    assert lines[-2:] == ["        for help:", "            pgtail decode --help"]
    assert " ".join(" ".join(lines[:-2]).split()) == one_line


@pytest.mark.parametrize("quiet", [False, True])
def test_messages_come_before_what_is_written_later_to_the_same_terminal(
    monkeypatch: pytest.MonkeyPatch, quiet: bool
) -> None:
    """Also with -q, which leaves out notes and the status line, not warnings."""
    ours, programs = open_terminal()
    with open(programs, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        shown = b""
        with messages(quiet=quiet), StderrThread(quiet=quiet) as stderr:
            for number in range(200):
                log_outcome(f"message {number}")
                with stderr.quiet():
                    os.write(programs, b"output\n")
                while shown.count(b"output") <= number:
                    shown += os.read(ours, 1000)
    os.close(ours)
    lines = shown.decode().splitlines()
    assert lines == [line for number in range(200) for line in (f"pgtail: message {number}", "output")]


def test_quiet_leaves_out_the_details_that_json_includes(capsys: pytest.CaptureFixture[str]) -> None:
    with messages(quiet=True, json=True):
        log_detail("a detail")
        log_summary("a summary")
        log_outcome("an outcome")
    [line] = capsys.readouterr().err.splitlines()
    assert '"message":"an outcome"' in line


def test_a_blocked_terminal_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has no room for is counted where it is missing."""
    ours, programs = open_terminal()
    with open(programs, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        with messages(verbose=2), StderrThread():
            for number in range(20_000):
                log_trace(f"line {number} {'.' * 80}")
            reader = threading.Thread(target=lines_of, args=(ours, lines := list[str]()))
            reader.start()
            wait_for("room", lambda: len(lines) > 10_000)
            log_outcome("the last one")
    reader.join()
    os.close(ours)
    *shown, last = lines
    number = dropped = 0
    for line in shown:  # once or more: a terminal may take some lines late
        if gap := re.fullmatch("pgtail: ([1-9][0-9]*) lines were dropped here: standard error was blocked", line):
            dropped += int(gap[1])
            number += int(gap[1])
        else:
            assert line.split()[1] == str(number)
            number += 1
    assert dropped
    assert number == 20_000
    assert last == "pgtail: the last one"


def lines_of(terminal: int, lines: list[str]) -> None:
    """Read a terminal to its end."""
    with contextlib.suppress(OSError), open(terminal, closefd=False) as shown:
        lines.extend(line.rstrip() for line in shown)


def test_a_message_waits_for_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    """The lock of the handler, which logging enters from Python 3.13 on, stays free."""
    with messages() as logger:
        [handler] = logger.handlers
        assert handler.lock is not None
        with handler.lock:
            writer = threading.Thread(target=log_outcome, args=["written"], daemon=True)
            writer.start()
            wait_for("the message", lambda: "pgtail: written\n" in capsys.readouterr().err)
