"""Completion in the shells: commands, options, files, and the names of a server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgtail.commands.completion import LIMIT
from tests.support.limits import within
from tests.support.run import command
from tests.support.run_process import PROGRAM
from tests.support.servers import Database
from tests.support.tail import wait_for

SHELLS = ["bash", "zsh", "fish"]


def completed(shell: str, *words: str, **variables: str) -> set[str]:
    """The completions of the last word."""
    line = " ".join(["pgtail", *words])
    asked = {
        "_PGTAIL_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words)),
    }
    ran = command(environment=asked | variables)
    assert (ran.status, ran.stderr) == (0, "")
    shown = ran.stdout.decode()
    lines = shown.split("\n")[:-1] if shown.strip() else []
    return set(lines[1::3]) if shell == "zsh" else {line.partition(",")[2].split("\t")[0] for line in lines}


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_options_and_their_values(shell: str, tmp_path: Path) -> None:
    assert completed(shell, "con") == {"config"}
    assert completed(shell, "decode", "--red") == {"--redact", "--redact-hash", "--redact-key-file"}
    # A wrong config file is an error when a command runs, not here.
    wrong = tmp_path / "config.toml"
    wrong.write_text("[")
    assert completed(shell, "stream", "--show-", PGTAIL_CONFIG=str(wrong)) == {"--show-aborted", "--show-uncommitted"}
    assert completed(shell, "decode", "--color", "") == {"auto", "always", "never"}


@pytest.mark.parametrize("shell", SHELLS)
def test_an_option_and_its_value_in_one_word(shell: str) -> None:
    """bash replaces what comes after the =, the others the whole word."""
    assert completed(shell, "decode", "--op=ins") == {"insert" if shell == "bash" else "--op=insert"}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("decode", "--op", "insert,t"), {"insert,truncate"}),
        (("decode", "--op", "insert,i"), set()),
        (("decode", "--op", "insert", "--op", "i"), set()),
        (
            ("inspect", "--kind", "begin,stream-"),
            {f"begin,stream-{x}" for x in ["abort", "commit", "prepare", "start", "stop"]},
        ),
        (("decode", "--wal2json", "include-x"), {"include-xids=on"}),
        (("decode", "--since", "y"), {"yesterday"}),
        (("stream", "--until", "n"), {"now"}),
        (("decode", "--until", "n"), set()),
        (("decode", "--wal2json", "include-tr"), {"include-transaction=off"}),
        (("decode", "--colors", "insert=red:del"), {"insert=red:delete="}),
        (("decode", "--help", "f"), {"filter"}),
        (("help", "sl"), {"slot"}),
        (("help", "slot", "c"), {"copy", "create"}),
        (("help", "stream", "m"), {"masking"}),
        (("help", "stream", "filter", ""), set()),
    ],
)
def test_other_values(words: tuple[str, ...], values: set[str]) -> None:
    assert completed("fish", *words) == values


@pytest.fixture
def shop(newest_database: Database) -> Database:
    newest_database.execute(
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.orders (id int PRIMARY KEY)",
        'CREATE TABLE "not plain; $(x)" (id int)',
        "CREATE PUBLICATION shop_pub FOR TABLE sales.orders",
    )
    newest_database.query("SELECT pg_create_logical_replication_slot('shop_slot', 'pgoutput')")
    return newest_database


def environment(database: Database) -> dict[str, str]:
    server = database.server
    return {
        "PGHOST": str(server.directory),
        "PGPORT": str(server.port),
        "PGUSER": "postgres",
        "PGDATABASE": database.name,
    }


def wait_for_names(names: set[str], shell: str, *words: str, **variables: str) -> None:
    """Ask until these are the completions: a server that is slow once completes nothing."""
    wait_for(f"{names} after {words}", lambda: completed(shell, *words, **variables) == names)


@pytest.mark.parametrize("shell", SHELLS[::3])
def test_names_of_a_server(shop: Database, shell: str) -> None:
    where = environment(shop)
    for words in (("stream", "-S"), ("stream", "--fork"), ("record", "-S"), ("slot", "drop"), ("stats", "-S")):
        wait_for_names({"shop_slot"}, shell, *words, "shop_", **where)
    wait_for_names({"shop_pub"}, shell, "stream", "-P", "", **where)
    wait_for_names({"orders"}, shell, "stream", "-t", "", **where)
    wait_for_names({"x,sales.orders"}, shell, "stream", "-t", "x,sal", **where)
    wait_for_names({"sales.orders.id"}, shell, "stream", "--redact", "sal", **where)
    wait_for_names({"id = 1 and id"}, shell, "stream", "--where", "'id = 1 and i", **where)
    assert completed(shell, "decode", "-t", "", **where) == set(), "it reads no server"
    wait_for("the database", lambda: shop.name in completed(shell, "stream", "", **where))


def test_command_line_and_configuration_give_the_server(shop: Database, tmp_path: Path) -> None:
    server = shop.server
    conninfo = f"'host={server.directory} port={server.port} dbname={shop.name} user=postgres'"
    wait_for_names({"shop_pub"}, "fish", "stream", conninfo, "-P", "")
    uri = f"postgresql://postgres@localhost:1/{shop.name}"
    assert completed("bash", "stream", uri, "-P", "", **environment(shop)) == set()
    options = f"-h {server.directory} -p {server.port} -U postgres -d {shop.name}".split()
    wait_for_names({"shop_pub"}, "fish", "expect", *options, "--publication", "")
    config = tmp_path / "config.toml"
    config.write_text(f"dsn = {conninfo}\n")
    wait_for_names({"shop_pub"}, "fish", "stream", "-P", "", PGTAIL_CONFIG=str(config))


def test_services(tmp_path: Path) -> None:
    (tmp_path / "services").write_text("[shop]\nhost=/nowhere\n\n[stock]\nhost=/nowhere\n")
    where = {"PGSERVICEFILE": str(tmp_path / "services"), "PGHOST": "/nowhere"}
    assert completed("fish", "stream", "ser", **where) == {"service=shop", "service=stock"}
    assert completed("bash", "stream", "service=st", **where) == {"stock"}, "bash replaces what comes after the ="


def test_unresponsive_server_is_given_up_silently() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        where = {"PGHOST": "127.0.0.1", "PGPORT": str(silent.getsockname()[1])}
        assert completed("fish", "stream", "-S", "", **where) == set()
        assert time.monotonic() - begun < within(LIMIT)


def script(shell: str) -> str:
    return subprocess.run([*PROGRAM, "completion", shell], capture_output=True, text=True, check=True).stdout


def in_shell(shell: str, text: str, tmp_path: Path) -> list[str]:
    """The output of a shell that has the script and finds this pgtail; skips the test if there is no such shell."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "pgtail"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m pgtail \"$@\"\n")
    program.chmod(0o755)
    (tmp_path / "script").write_text(script(shell))
    ran = subprocess.run(
        [shell, {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}[shell], "-c", text],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""
    return ran.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "current", "replies"),
    [
        ("pgtail dec", "dec", ["decode"]),
        ("pgtail decode --op=ins", "ins", ["insert"]),
        ("pgtail decode --op insert,t", "insert,t", ["insert,truncate"]),
        ("pgtail decode script", "script", ["asked for default"]),
        ("pgtail stats script", "script", ["asked for default"]),
    ],
)
def test_bash_completes(line: str, current: str, replies: list[str], tmp_path: Path) -> None:
    """Without a terminal: the function is called as bash calls it."""
    called = f"""
        source ./script
        compopt() {{ echo "asked for $2"; }}
        COMP_LINE='{line}' COMP_POINT={len(line)}
        _pgtail_completion pgtail '{current}' decode
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    assert [line for line in in_shell("bash", called, tmp_path) if line] == replies


def test_fish_completes(tmp_path: Path) -> None:
    assert in_shell("fish", "source ./script; complete -C 'pgtail decode --op insert,t'", tmp_path) == [
        "insert,truncate"
    ]


def test_zsh_takes_the_script_without_compinit(tmp_path: Path) -> None:
    asked = "source ./script; whence compdef; print $_comps[pgtail]"
    assert in_shell("zsh", asked, tmp_path) == ["compdef", "_pgtail_completion"]
