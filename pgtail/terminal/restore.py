"""Restore the terminal's state at the end of a command."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable, Iterator
from typing import Final

from pgtail.files.stopping import after_echo

SHOW_CURSOR: Final = b"\x1b[?25h"
_WRITE_TIMEOUT: Final = 1.0
"""Seconds to wait for a terminal whose output is stopped (Ctrl-S)."""


@contextlib.contextmanager
def restored(restore: Callable[[], None]) -> Iterator[None]:
    """Call `restore` after the body."""
    try:
        yield
    finally:
        restore()
        after_echo(terminal=False)  # it was erased


def write_if_taken(fd: int, data: bytes) -> None:
    """Write a few bytes to a terminal, unless it is gone or its output is stopped."""
    with contextlib.suppress(OSError):
        if select.select([], [fd], [], _WRITE_TIMEOUT)[1]:
            os.write(fd, data)
