"""Running any command of pgtail as its users do, in a process of its own, to its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.support.fork_server import start
from tests.support.limits import within
from tests.support.tail import PATIENCE

PROGRAM = [sys.executable, "-c", "from pgtail.cli import main; main(prog_name='pgtail')"]


def pgtail(*arguments: str, status: int = 0, env: dict[str, str] | None = None) -> tuple[str, str]:
    """Run pgtail and check its exit status; returns standard output and standard error."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        ran = start(arguments, {**os.environ, **(env or {})}, output, errors)
        try:
            ran.wait(within(2 * PATIENCE))
        finally:
            ran.kill()
        output.seek(0)
        errors.seek(0)
        out, err = output.read().decode(), errors.read().decode()
    assert ran.returncode == status, f"exit status {ran.returncode}\n{out}{err}"
    assert "Traceback" not in err
    return out, err


@contextmanager
def started(command: Sequence[str | os.PathLike[str]], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a process, and kill it if it still runs at the end of the block, so that nothing waits for it forever."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(text: str) -> list[dict[str, Any]]:
    """Lines of JSON."""
    return [json.loads(line) for line in text.splitlines()]
