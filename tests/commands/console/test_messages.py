"""Messages on a terminal: wrapped between words, with commands that are not; elsewhere one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtail.commands.console.messages import StderrThread, laid_out
from pgtail.errors import COMMAND
from tests.support.run import command
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
    monkeypatch.setattr("pgtail.commands.console.messages.quiet_mode", quiet)
    ours, programs = open_terminal()
    with open(programs, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        stderr = StderrThread(0)
        shown = b""
        for number in range(200):
            stderr.tell(f"message {number}")
            with stderr.quiet():
                os.write(programs, b"output\n")
            while shown.count(b"output") <= number:
                shown += os.read(ours, 1000)
        stderr.close()
    os.close(ours)
    lines = shown.decode().splitlines()
    assert lines == [line for number in range(200) for line in (f"pgtail: message {number}", "output")]
