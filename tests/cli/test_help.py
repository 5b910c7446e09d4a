"""Help in groups, `pgtail help`, synonyms of other programs' options, and the one style of errors."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from pgtail import __version__
from pgtail.cli.command import GROUPS, Command, groups
from pgtail.cli.help import PAGES
from tests.support.corpus import capture
from tests.support.run import Result, decode, here
from tests.tools import make_man

CONTEXTS = {context.command_path: context for context in make_man.commands()}
LARGE = [path for path, context in CONTEXTS.items() if isinstance(context.command, Command) and context.command.first]
RECV = capture("Z_small", "p1").forms["recv.bin"]
TABLES = capture("A_ddl", "p1").forms["recv.bin"]
MANY = 13
"""Options that a command may have without a short help."""


def shown(*arguments: str) -> str:
    """The help that a command line prints."""
    ran = here(*arguments)
    assert (ran.status, ran.stderr) == (0, "")
    return ran.stdout.decode()


def listed(text: str) -> set[str]:
    """The names of the options that a help explains."""
    lines = [line.split("  ")[1] for line in text.splitlines() if line.startswith("  -")]
    return {word for line in lines for word in line.replace(",", " ").split() if word.startswith("-")}


def names(options: list[click.Option]) -> set[str]:
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


@pytest.mark.parametrize("path", LARGE)
def test_help_has_the_options_used_most_and_all_of_them_on_request(path: str) -> None:
    context, words = CONTEXTS[path], path.split()[1:]
    command = context.command
    assert isinstance(command, Command)
    options = command.options(context)
    first = [option for option in options if option.name in command.first]
    assert {option.name for option in first} == set(command.first), "a name without an option"
    short = shown(*words, "--help")
    assert listed(short) == names(first) | set(command.get_help_option_names(context))
    assert f"--help all shows all {len(options)} options" in short
    assert listed(shown(*words, "--help", "all")) == names(options)
    grouped = groups(options)
    for name, those in grouped.items():
        assert name in short.rpartition("--help GROUP")[2]
        text = shown(*words, "--help", name)
        assert text.startswith(f"{GROUPS[name]}:\n")
        assert listed(text) == names(those)


def test_a_command_with_many_options_has_a_short_help() -> None:
    for path, context in CONTEXTS.items():
        if not path.startswith("pgtail spark"):
            assert path in LARGE or len(make_man.options(context)) <= MANY, path


def test_the_short_help_of_stream_fits_two_screens() -> None:
    assert len(shown("stream", "--help").splitlines()) <= 50


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ((), ("--help",)),
        (("stream",), ("stream", "--help")),
        (("stream", "all"), ("stream", "--help", "all")),
        (("decode", "filter"), ("decode", "--help", "filter")),
        (("doctor", "all"), ("doctor", "--help")),
        (("slot",), ("slot", "--help")),
        (("slot", "create"), ("slot", "create", "--help")),
        (("decode",), ("decode", "-h")),
        (("decode",), ("decode", "--help", "no group")),
    ],
)
def test_pgtail_help(words: tuple[str, ...], same: tuple[str, ...]) -> None:
    assert shown("help", *words) == shown(*same)


@pytest.mark.parametrize(
    ("arguments", "message", "path"),
    [
        ("help nosuch", "no such command 'nosuch'.", "pgtail"),
        ("help slot nosuch", "no such command 'nosuch'.", "pgtail slot"),
        ("help stream nosuch", "'nosuch' after stream: expected all, connection, slot", "pgtail help"),
        ("help slot create x", "'x' after create: expected nothing", "pgtail help"),
        ("decode --since", "option '--since' requires an argument.", "pgtail decode"),
        ("stream -h", "option '-h' requires an argument.", "pgtail stream"),
        ("slot list -h", "option '-h' requires an argument.", "pgtail slot list"),
        ("decod", "no such command 'decod'. Did you mean decode?", "pgtail"),
        ("slot cat", "no such command 'cat'.", "pgtail slot"),
        ("completion", "missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish", "pgtail completion"),
        ("decode -n x y", "invalid value for '-n' / '--limit': 'x' is not a valid integer.", "pgtail decode"),
        ("stream --last 3", "no such option '--last'. It is an option of pgtail decode.", "pgtail stream"),
        (
            "record --no-pager",
            "no such option '--no-pager'. It is an option of pgtail stream, decode, ",
            "pgtail record",
        ),
        ("decode -o=json x", "-o=json: no = follows a short option: write -o json or --output=json", "pgtail decode"),
        ("stream -t=orders", "-t=orders: no = follows a short option: write -t orders or --table=", "pgtail stream"),
        (
            "slot list -d=shop",
            "-d=shop: no = follows a short option: write -d shop or --dbname=shop",
            "pgtail slot list",
        ),
        ("stats --jobs 2", "--jobs was removed: ", "pgtail stats"),
        ("slot list --yes", "no such option '--yes'. It is an option of pgtail stream, ", "pgtail slot list"),
        ("decode --outptu", "no such option '--outptu'. Did you mean --output?", "pgtail decode"),
        ("slot advance s", "missing argument 'LSN|now', such as 0/16B3748\n", "pgtail slot advance"),
        ("slot advance s abc", "missing argument 'LSN|now', such as 0/16B3748\n", "pgtail slot advance"),
        ("decode --tz", "no such option '--tz'. Did you mean --utc?", "pgtail decode"),
        ("stream --from x", "invalid value for '-I' / '--startpos': ", "pgtail stream"),
    ],
)
def test_a_wrong_command_line(arguments: str, message: str, path: str) -> None:
    ran = here(*arguments.split())
    first, cure = ran.stderr.splitlines()
    assert (ran.status, ran.stdout) == (2, b"")
    assert f"{first}\n".startswith(f"pgtail: error: {message}")
    assert cure == f"        for help: {path} --help"


def test_aliases_of_slot_commands() -> None:
    assert shown("slot", "ls", "--help").partition("\n")[2] == shown("slot", "list", "--help").partition("\n")[2]
    assert shown("slot", "rm", "--help").partition("\n")[2] == shown("slot", "drop", "--help").partition("\n")[2]


@pytest.mark.parametrize("word", PAGES)
def test_a_manual_page(word: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With a program `man` that prints which file it is given."""
    man = tmp_path / "man"
    man.write_text('#!/bin/sh\necho "page: $1"\n')
    man.chmod(0o755)
    assert here("help", word, PATH=str(tmp_path)).status == 0
    assert capfd.readouterr().out == f"page: {make_man.MAN / PAGES[word]}\n"
    assert f", {word}" in " ".join(shown("--help").split()).replace(" or ", ", ").replace("help ", ", ")


def test_every_page_that_belongs_to_no_command_is_known_to_help() -> None:
    commands = {make_man.page_name(context) for context in make_man.commands()}
    pages = {page.name for page in make_man.MAN.glob("*.[1-8]")}
    assert set(PAGES.values()) == pages - commands | {"pgtail.1"}


def test_a_manual_page_without_man(tmp_path: Path) -> None:
    ran = here("help", "filter", PATH=str(tmp_path))
    assert ran.status == 2
    assert "the program man is not installed" in ran.stderr
    assert str(make_man.MAN / "pgtail-filter.7") in ran.stderr


def test_a_wrong_command_line_does_not_drive_the_terminal() -> None:
    ran = here("decode", "--no\x1b[2Jsuch")
    assert "\x1b" not in ran.stderr
    assert r"--no\x1b[2Jsuch" in ran.stderr


def test_version_has_a_short_name() -> None:
    assert shown("-V") == shown("--version")
    assert shown("-V").startswith(f"pgtail {__version__}, ")


def test_tables_and_operations_take_commas() -> None:
    every = decode(TABLES).objects
    tables = {line["table"] for line in every if "table" in line}
    assert len(tables) > 1
    first, second, *_ = sorted(tables)
    both = decode("-t", f"{first}, {second}", TABLES).objects
    assert {line["table"] for line in both} == {first, second}
    assert both == decode("-t", first, "-t", second, TABLES).objects
    left = decode("--exclude", f"{first},{second}", TABLES).objects
    assert [line for line in every if line.get("table") not in (first, second)] == left
    assert {line["op"] for line in decode("--op", "insert,delete", TABLES).objects} == {"insert", "delete"}
    assert decode("--op", "INSERT", TABLES).stdout == decode("--op", "insert", TABLES).stdout
    assert decode("--op", "Insert", TABLES, name="inspect").lines


def noted(*more: str) -> Result:
    return decode("--where", "nosuch = 1", *more, RECV)


def test_quiet_leaves_out_notes_but_no_errors() -> None:
    assert "note: no table had a column nosuch" in noted().stderr
    assert noted("-q").stderr == ""
    assert noted().stderr, "it lasts for one command"
    cut = decode("-q", input=Path(RECV).read_bytes()[:-9])
    assert cut.status == 1
    assert cut.stderr.startswith("pgtail: error: ")


def test_password_and_no_password_exclude_each_other() -> None:
    ran = here("stream", "-w", "-W", PGHOST=os.devnull)
    assert ran.status == 2
    assert "--password and --no-password contradict each other" in ran.stderr
