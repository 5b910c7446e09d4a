"""Reads a password from a terminal that does not show it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
import tty
from collections.abc import Iterator
from typing import Final

from pgtail.terminal.restore import restored

_MOST: Final = 4096
"""Bytes of a line, as long as a terminal's may be."""


def read_password(terminal: int, prompt: str) -> str:
    """The line that is typed after the prompt. Call it in the main thread.

    As getpass(), but the handler of a signal runs at once also if it comes right before the read, which would then wait
    for a key. Raises EOFError after Ctrl-D, and what the handler raises.
    """
    before = termios.tcgetattr(terminal)
    hidden = [*before]
    hidden[tty.LFLAG] &= ~termios.ECHO

    def restore() -> None:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(terminal, termios.TCSANOW, before)

    with restored(restore), _wakeups() as woken:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, hidden)
        os.write(terminal, prompt.encode())
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([terminal, woken], [], [])
            if terminal not in ready:
                os.read(woken, _MOST)
            elif data := os.read(terminal, _MOST):
                line += data
            else:
                break
    if not line:
        raise EOFError
    return os.fsdecode(line.removesuffix(b"\n"))


@contextlib.contextmanager
def _wakeups() -> Iterator[int]:
    """A descriptor that a signal makes readable."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        os.close(read)
        os.close(write)
