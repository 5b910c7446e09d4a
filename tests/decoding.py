"""`pgtail decode`, run in this process (the command's own code, without a new interpreter) or as the real command."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from click.testing import CliRunner

from pgtail.cli import main

PGTAIL = (sys.executable, "-m", "pgtail")


@dataclass(frozen=True)
class Result:
    """What a run left behind."""

    status: int
    stdout: bytes
    stderr: str
    peak: int = 0
    """Bytes of memory at most, where it was another process."""

    @property
    def lines(self) -> list[bytes]:
        return self.stdout.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self.lines]


def decode(*arguments: str | Path, input: bytes | None = None) -> Result:  # noqa: A002 -- as subprocess.run calls it
    """Run the command's code here. It writes with -f, for the runner's standard output is no file."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        if input is not None:
            given = Path(folder, "input")
            given.write_bytes(input)
            arguments = (*arguments, given)
        command = ["decode", "-o", "json", "-f", str(out), *map(str, arguments)]
        result = CliRunner().invoke(main, command, catch_exceptions=False)
        return Result(result.exit_code, out.read_bytes() if out.exists() else b"", result.stderr)


def command(
    *arguments: str | Path,
    input: bytes | None = None,  # noqa: A002 -- as subprocess.run calls it
    stdin: BinaryIO | int | None = None,
    timeout: float = 60,
    environment: dict[str, str] | None = None,
) -> Result:
    """Run the real command. Its standard output goes to a file, so that a large one is not held by the pipe."""
    return run([*PGTAIL, *map(str, arguments)], input=input, stdin=stdin, timeout=timeout, environment=environment)


def run(
    arguments: Sequence[str],
    *,
    input: bytes | None = None,  # noqa: A002
    stdin: BinaryIO | int | None = None,
    timeout: float = 60,
    environment: dict[str, str] | None = None,
) -> Result:
    """Run a program and measure its memory."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE if input is not None else stdin if stdin is not None else subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            env={**os.environ, **(environment or {})},
        )
        if input is not None:
            assert process.stdin is not None
            try:
                process.stdin.write(input)
                process.stdin.close()
            except BrokenPipeError:
                pass
        status, usage = wait(process, timeout)
        out.seek(0)
        errors.seek(0)
        return Result(status, out.read(), errors.read().decode(), usage.ru_maxrss * 1024)


def wait(process: subprocess.Popen[bytes], timeout: float) -> tuple[int, resource.struct_rusage]:
    """The exit status and what that one process used. Kills it and fails after `timeout` seconds."""
    import threading

    expired = threading.Event()

    def kill() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(timeout, kill)
    timer.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    assert not expired.is_set(), f"still running after {timeout} s"
    return process.returncode, usage
