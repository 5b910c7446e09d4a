"""Programs on a pseudo-terminal; tests that need one are skipped if the system has none."""

from __future__ import annotations

import os
import pty
import select
import signal
import time
from collections.abc import Callable, Sequence

import pytest

from tests.support.limits import within


def open_terminal() -> tuple[int, int]:
    """The user's and the program's end of a new pseudo-terminal. Skips the test if the system has none."""
    try:
        return os.openpty()
    except OSError as error:
        pytest.skip(f"this system has no pseudo-terminals: {error}")


def on_terminal(
    command: list[str],
    *,
    until: str = "",
    answer: str = "",
    before: Sequence[tuple[str, Callable[[], object] | str]] = (),
    env: dict[str, str] | None = None,
) -> tuple[int, str]:
    """Run a command on a terminal of its own, type `answer` once it shows `until`; returns the status and its output.

    `before` that, call these functions or type these texts, each once the command shows a text after the one before.
    The command is killed if it runs too long.
    """
    for end in open_terminal():
        os.close(end)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "xterm", **(env or {})})
        os.execv(command[0], command)
    steps = [*before, *([(until, answer)] if until else [])]
    shown, after, deadline = b"", 0, time.monotonic() + within(30)
    try:
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 1)[0]:
                continue
            part = _read(terminal)
            if not part:
                break
            shown += part
            if steps and (place := shown.find(steps[0][0].encode(), after)) >= 0:
                after, (_, step) = place + 1, steps.pop(0)
                os.write(terminal, step.encode()) if isinstance(step, str) else step()
        os.close(terminal)
        while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
            assert time.monotonic() < deadline, f"it does not end: {shown.decode()}"
            time.sleep(0.01)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    return os.waitstatus_to_exitcode(ended[1]), shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # on Linux: no program has the terminal open any more
        return b""
