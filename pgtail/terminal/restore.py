"""Restore the terminal's state whatever ends the command, SIGQUIT included."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from pgtail.files.stopping import after_echo

SHOW_CURSOR: Final = b"\x1b[?25h"
_WRITE_TIMEOUT: Final = 1.0
"""Seconds to wait for a terminal whose output is stopped (Ctrl-S)."""


@contextlib.contextmanager
def restored(restore: Callable[[], None]) -> Iterator[None]:
    """Call `restore` after the body, and before SIGQUIT ends the process."""

    def quit_(number: int, frame: FrameType | None) -> None:
        restore()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGQUIT) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGQUIT, quit_)
    try:
        yield
    finally:
        restore()
        after_echo(terminal=False)  # it was erased
        if ours:
            signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def write_if_taken(fd: int, data: bytes) -> None:
    """Write a few bytes to a terminal, unless it is gone or its output is stopped."""
    with contextlib.suppress(OSError):
        if select.select([], [fd], [], _WRITE_TIMEOUT)[1]:
            os.write(fd, data)
