"""Counts SIGINT, SIGTERM and SIGHUP, and wakes the main loop through a descriptor.

During calls that cannot check the count (connecting, SQL) a signal raises KeyboardInterrupt instead.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

from pgtail.files import stopping


class Interrupt:
    """A context that counts signals. Enter it in the main thread."""

    def __init__(self) -> None:
        self.count = 0
        self._raising = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._before: dict[signal.Signals, Any] = {}
        self._wakeup_before = -1

    def __enter__(self) -> Self:
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = stopping.take_over(self._signalled)
        return self

    def __exit__(self, *_: object) -> None:
        stopping.restore_handlers(self._before)
        signal.set_wakeup_fd(self._wakeup_before)
        # A thread that is blocked in its output may call wake() later, when another file may have this descriptor.
        read, write, self._read, self._write = self._read, self._write, -1, -1
        os.close(read)
        os.close(write)

    def fileno(self) -> int:
        """A descriptor that a signal or wake() makes readable."""
        return self._read

    def wake(self) -> None:
        """Wake the main loop, from any thread."""
        with contextlib.suppress(OSError):
            os.write(self._write, b"\0")

    def clear(self) -> None:
        """Make the descriptor unreadable again."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """A context in which a signal raises KeyboardInterrupt, also one that came before."""
        self._raising = True
        try:
            self._raise_if_asked()
            yield
        finally:
            self._raising = False
        self._raise_if_asked()  # a library may have caught the exception

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if not stopping.is_new(number):
            return
        self.count += 1
        if self._raising:
            raise KeyboardInterrupt(number)

    def _raise_if_asked(self) -> None:
        if self.count:
            raise KeyboardInterrupt
