"""Pipes that hold more, so that writer and reader wait for each other less often."""

from __future__ import annotations

import contextlib
import fcntl
import sys
from typing import Final

SIZE: Final = 1 << 20
"""Bytes that Linux lets a pipe of any user hold, unless its administrator allows less; 65,536 is the default."""


def enlarge_pipe(fd: int) -> None:
    """Let a pipe hold SIZE bytes where the system can; what is no pipe, or holds as much, stays as it is."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < SIZE:
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, SIZE)
