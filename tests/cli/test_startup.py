"""What commands import: most of the time of a short run. A number here that grows is a slower start."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.corpus import capture

SMALL = str(capture("Z_small", "p1").forms["walsender.bin"])
_COUNT = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from pgtail.__main__ import main
sys.argv[0] = "pgtail"
main()
"""
SLOW = frozenset(("asyncio", "dataclasses", "json", "orjson", "pathlib", "psycopg", "rich", "subprocess", "tempfile"))
"""Libraries that take long to import."""

MODULES = {
    "--help": 6,
    "stream --help": 38,
    "record --help": 38,
    f"decode -o json {SMALL}": 126,
    f"decode -o json -n 1 {SMALL}": 126,
    f"decode -o csv {SMALL}": 126,
    f"decode -o sql {SMALL}": 129,
    f"decode -o line {SMALL}": 131,
    f"stats {SMALL}": 141,
}
"""Command -> the modules of pgtail that it may import. None of these commands needs a library in SLOW, except that rich
draws the tables of stats."""

_AWAY = "-h /there/is/no/server"
CONNECTING = {f"slot list {_AWAY}": 58, f"completion of slot drop {_AWAY}": 48}
"""The same for what connects to a server: it imports psycopg, and with it most of SLOW."""


def imported(command: str, **variables: str) -> list[str]:
    run = [sys.executable, "-c", _COUNT, *command.split()]
    done = subprocess.run(run, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    return done.stderr.splitlines()[-1].split()


def libraries(modules: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def own(modules: list[str]) -> int:
    return len([name for name in modules if name.partition(".")[0] == "pgtail"])


@pytest.mark.parametrize("command", MODULES)
def test_a_command_imports_what_it_needs(command: str) -> None:
    modules = imported(command)
    assert libraries(modules) & SLOW == ({"dataclasses", "rich"} if command.startswith("stats") else set())
    assert own(modules) <= MODULES[command]


@pytest.mark.parametrize("command", CONNECTING)
def test_what_connects_imports_psycopg_and_little_else(command: str) -> None:
    _, asks, line = command.rpartition("completion of ")
    completing = {"_PGTAIL_COMPLETE": "bash_complete", "COMP_WORDS": f"pgtail {line} "} if asks else {}
    modules = imported("" if asks else line, **completing)
    assert "psycopg" in modules
    assert libraries(modules) & {"rich", "click", "pgtail"} == {"click", "pgtail"}
    assert own(modules) <= CONNECTING[command]
