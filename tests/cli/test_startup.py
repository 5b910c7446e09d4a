"""`pgtail --help` costs little more than click: it loads click and nothing heavier."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pgtail.cli import COMMANDS, main
from tests.support.corpus import capture

PROGRAM = [sys.executable, "-c", "from pgtail.cli import main; main(prog_name='pgtail')"]
RECV = capture("Z_small", "p1").forms["recv.bin"]
HEAVY = {"rich", "psycopg", "orjson", "pyspark"}
ROUNDS = 9


def _cpu(*arguments: str) -> float:
    """CPU seconds of a Python with these arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["decode", "--help"],
        ["stream", "--help"],
        ["slot", "list", "--help"],
        ["doctor", "--help"],
        ["--version"],
    ],
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from pgtail.cli import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not HEAVY & set(run.stderr.split())


def test_json_loads_no_tables() -> None:
    """Tables import rich, which takes longer than a short run."""
    program = (
        "import sys\n"
        "from pgtail.cli import main\n"
        "try:\n"
        f"    main(['decode', '-o', 'json', {str(RECV)!r}])\n"
        "finally:\n"
        "    print(*sys.modules, file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("{")
    assert not {"rich", "pgtail.outputs.template", "pgtail.stats.collect"} & set(run.stderr.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summaries_are_the_commands_own(name: str) -> None:
    command: click.Command = import_module(f"pgtail.cli.{name}").command
    assert command.get_short_help_str(200) == COMMANDS[name]


def test_help_takes_at_most_1_5_times_as_long_as_click() -> None:
    """The minimum of several alternating rounds, so that other work on the machine counts little."""
    costs = [(_cpu("-m", "pgtail", "--help"), _cpu("-c", "import click")) for _ in range(ROUNDS)]
    assert min(help_ for help_, _ in costs) <= 1.5 * min(click for _, click in costs)


@pytest.mark.parametrize(
    ("typed", "meant"), [("decod", "decode"), ("xyzzy", None), ("slots", "slot"), ("spark histroy", "history")]
)
def test_unknown_command_suggests_a_similar_one(typed: str, meant: str | None) -> None:
    ran = subprocess.run([*PROGRAM, *typed.split()], capture_output=True, check=False, text=True)
    assert ran.returncode == 2
    first, cure = ran.stderr.splitlines()
    assert first.startswith(f"pgtail: error: no such command {typed.rpartition(' ')[2]!r}.")
    assert first.partition("Did you mean ")[2] == (f"{meant}?" if meant else "")
    assert cure == f"        for help: {' '.join(['pgtail', *typed.split()[:-1]])} --help"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [["--version"], ["config"], ["config", "-o", "json"], ["completion", "bash"]])
def test_full_standard_output_is_an_error(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        ran = subprocess.run([*PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, check=False, text=True)
    assert (ran.returncode, ran.stderr) == (
        4,
        "pgtail: error: cannot write to standard output: No space left on device\n",
    )


@pytest.mark.parametrize("arguments", [["--version"], ["config"], ["completion", "bash"]])
def test_closed_pipe_ends_quietly(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        ran = subprocess.run([*PROGRAM, *arguments], stdout=pipe, stderr=subprocess.PIPE, check=False, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["config"], ["decode", RECV], ["inspect", RECV], ["stats", RECV]],
    ids=lambda all_: all_[0],
)
def test_closed_standard_output_is_an_error(arguments: list[str | Path]) -> None:
    shell = ["sh", "-c", 'exec "$@" >&-', "sh"]
    ran = subprocess.run([*shell, *PROGRAM, *arguments], stderr=subprocess.PIPE, check=False, text=True)
    assert (ran.returncode, ran.stderr) == (4, "pgtail: error: cannot write to standard output: it is closed\n")


def test_ctrl_c_before_the_command_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pgtail.cli.import_module", interrupted)
    result = CliRunner().invoke(main, ["decode", "x"])
    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.parametrize("way", ["script", "module"])
def test_ctrl_c_while_click_is_loaded(way: str) -> None:
    [script] = entry_points(group="console_scripts", name="pgtail")
    begins = {
        "script": f"from {script.module} import {script.attr} as begin; begin()",
        "module": "import runpy; runpy.run_module('pgtail', run_name='__main__')",
    }
    program = f"""
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
{begins[way]}
"""
    ran = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, check=False, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def test_ctrl_c_before_the_command_line_is_read_is_quiet_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """click itself would say "Aborted!" and end with 1."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Group, "make_context", interrupted)
    result = CliRunner().invoke(main, ["decode", "--help"])
    assert (result.exit_code, result.output) == (130, "")


def test_ctrl_c_while_orjson_is_loaded() -> None:
    """orjson crashes if one of its own imports fails."""
    program = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "uuid":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
try:
    import pgtail.values.render
except KeyboardInterrupt:
    print("interrupted")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "interrupted\n", "")
