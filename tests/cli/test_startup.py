"""What commands import: most of the time of a short run. A number here that grows is a slower start."""

from __future__ import annotations

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
    "stream --help": 26,
    "record --help": 26,
    f"decode -o json {SMALL}": 102,
    f"decode -o json -n 1 {SMALL}": 102,
    f"decode -o csv {SMALL}": 102,
    f"decode -o sql {SMALL}": 106,
}
"""Command -> the modules of pgtail that it may import. None of these commands needs a library in SLOW."""


@pytest.mark.parametrize("command", MODULES)
def test_a_command_imports_what_it_needs(command: str) -> None:
    run = [sys.executable, "-c", _COUNT, *command.split()]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    modules = done.stderr.splitlines()[-1].split()
    assert {name.partition(".")[0] for name in modules} & SLOW == set()
    assert len([name for name in modules if name.partition(".")[0] == "pgtail"]) <= MODULES[command]
