"""pgtail's commands, run in this process (a command's own code, without a new interpreter) or as the real program."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pytest

from pgtail.cli import main
from tests.support.fork_server import Forked, start
from tests.support.limits import within
from tests.support.schemas import check_output


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    status: int
    stdout: bytes
    stderr: str
    peak: int = 0
    """Peak memory in bytes: of another process, on Linux; otherwise 0."""

    @property
    def lines(self) -> list[bytes]:
        return self.stdout.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self.lines]


def decode(
    *arguments: str | Path,
    input: bytes | None = None,  # noqa: A002 -- as subprocess.run calls it
    name: str = "decode",
) -> Result:
    """Run the code of `decode`, or of another command (`name`), in this process."""
    if input is not None:
        given = Path(_folder().name, "input")
        given.write_bytes(input)
        arguments = (*arguments, given)
    output = [] if "--format-string" in arguments else ["-o", "json"]
    return here(name, *output, *arguments)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """One folder for all inputs of this process: creating one takes longer than decoding most of them."""
    return tempfile.TemporaryDirectory()


def here(*arguments: str | Path, **variables: str) -> Result:
    """Run a command's code in this process, with these variables; its files have descriptors, unlike click's runner."""
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+", errors="backslashreplace") as errors,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in variables.items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), pytest.raises(SystemExit) as end:
            main(list(map(str, arguments)), prog_name="pgtail")
        for thread in threading.enumerate():  # on a busy machine one may have more to write than the command waits for
            if thread.name == "stderr":
                thread.join(within(60))
        out.seek(0)
        errors.seek(0)
        return _checked(Result(int(end.value.code or 0), bytes(out.buffer.read()), errors.read()), arguments)


def command(
    *arguments: str | Path,
    input: bytes | None = None,  # noqa: A002 -- as subprocess.run calls it
    stdin: BinaryIO | int | None = None,
    timeout: float = 60,
    environment: dict[str, str] | None = None,
    measured: bool = False,
) -> Result:
    """Run the real command. Its standard output goes to a file, so that a large one is not held by the pipe.

    Only a new interpreter has standard input, and can be `measured` for its peak memory.
    """
    variables, words = {**os.environ, **(environment or {})}, list(map(str, arguments))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors, tempfile.NamedTemporaryFile("r") as peak:
        process: Forked | subprocess.Popen[bytes]
        if input is None and stdin is None and not measured:
            process = start(words, variables, out, errors)
        else:
            process = subprocess.Popen(
                [sys.executable, "-c", _MEASURED, peak.name, *words],
                stdin=stdin if stdin is not None else subprocess.PIPE,
                stdout=out,
                stderr=errors,
                env=variables,
            )
        try:
            if isinstance(process, Forked):
                process.wait(within(timeout))
            else:
                process.communicate(input, within(timeout))
        except BaseException:
            process.kill()
            process.wait()
            raise
        out.seek(0)
        errors.seek(0)
        found = re.search(r"VmHWM:\s+(\d+) kB", peak.read())
        kilobytes = int(found[1]) if found else 0
        return _checked(Result(process.wait(), out.read(), errors.read().decode(), kilobytes * 1024), arguments)


def _checked(result: Result, arguments: Sequence[str | Path]) -> Result:
    """The result, after a comparison with the JSON Schema of the output."""
    check_output([*map(str, arguments)], result.stdout, result.stderr)
    return result


_MEASURED = """
import atexit, sys
from pathlib import Path
peak = sys.argv.pop(1)
status = Path("/proc/self/status")
if status.exists():
    atexit.register(lambda: Path(peak).write_text(status.read_text()))
from pgtail.cli import main
main(prog_name="pgtail")
"""
"""The command, which writes its own peak memory to a file when it ends: the maximum resident size that wait4() reports
is never less than that of the parent process. Linux only; elsewhere it is 0."""
