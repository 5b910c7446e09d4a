"""Running any command of pgtail as its users do, in a process of its own, to its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.support.run import command
from tests.support.tail import PATIENCE

PROGRAM = [sys.executable, "-c", "from pgtail.__main__ import main; main()"]


def pgtail(*arguments: str, status: int = 0, env: dict[str, str] | None = None) -> tuple[str, str]:
    """Run pgtail and check its exit status; returns standard output and standard error."""
    ran = command(*arguments, environment=env, timeout=2 * PATIENCE)
    out = ran.stdout.decode()
    assert ran.status == status, f"exit status {ran.status}\n{out}{ran.stderr}"
    assert "Traceback" not in ran.stderr
    return out, ran.stderr


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
