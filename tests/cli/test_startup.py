"""`pgtail --help` costs little more than click: it loads click and nothing heavier."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pgtail.cli import COMMANDS, main
from tests.support.corpus import capture
from tests.support.run_process import PROGRAM

RECV = capture("Z_small", "p1").forms["recv.bin"]
HEAVY = {"rich", "psycopg", "orjson", "pyspark"}
ROUNDS = 9
INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "{}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""
"""The beginning of a program: Ctrl-C while this module is imported."""


def _cpu(*arguments: str) -> float:
    """CPU seconds of a Python with these arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def loaded(*arguments: str) -> set[str]:
    """The modules that a run imports, which must write something."""
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from pgtail.cli import main\n"
        f"main({arguments!r})"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout
    return set(run.stderr.split())


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
    assert not HEAVY & {name.partition(".")[0] for name in loaded(*arguments)}


def test_json_loads_no_tables() -> None:
    """Tables import rich, which takes longer than a short run."""
    assert not {"rich", "pgtail.outputs.template", "pgtail.stats.collect"} & loaded("decode", "-o", "json", str(RECV))


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


@pytest.mark.parametrize("arguments", [["--version"], ["config"], ["completion", "bash"]])
def test_closed_pipe_ends_quietly(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        ran = subprocess.run([*PROGRAM, *arguments], stdout=pipe, stderr=subprocess.PIPE, check=False, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("redirect", "problem", "arguments"),
    [
        *[(">/dev/full", "No space left on device", line) for line in ("--version", "config", "completion bash")],
        (">/dev/full", "No space left on device", "config -o json"),
        *[(">&-", "it is closed", line) for line in ("--version", "config", f"decode {RECV}")],
        *[(">&-", "it is closed", line) for line in (f"inspect {RECV}", f"stats {RECV}")],
    ],
)
def test_standard_output_that_cannot_be_written(redirect: str, problem: str, arguments: str) -> None:
    if "/dev/full" in redirect and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    shell = ["sh", "-c", f'exec "$@" {redirect}', "sh", *PROGRAM, *arguments.split()]
    ran = subprocess.run(shell, stderr=subprocess.PIPE, check=False, text=True)
    assert (ran.returncode, ran.stderr) == (4, f"pgtail: error: cannot write to standard output: {problem}\n")


@pytest.mark.parametrize("part", ["pgtail.cli.import_module", "click.Group.make_context"])
def test_ctrl_c_before_the_command_starts_is_quiet(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """click itself would say "Aborted!" and end with 1."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(part, interrupted)
    result = CliRunner().invoke(main, ["decode", "x"])
    assert (result.exit_code, result.output) == (130, "")


def test_ctrl_c_while_orjson_is_loaded() -> None:
    """orjson crashes if one of its own imports fails."""
    begin = "try: import pgtail.values.render\nexcept KeyboardInterrupt: print('interrupted')"
    program = f"{INTERRUPTED.format('uuid')}\n{begin}"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "interrupted\n", "")
