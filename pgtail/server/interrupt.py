"""Floor 5, requests to stop: SIGINT, SIGTERM and SIGHUP as a count, and a descriptor that wakes the main loop.

While something is under way that cannot look at the count (connecting, SQL), a signal raises KeyboardInterrupt instead.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final, Self

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """A context: inside it the signals are counted. To be entered in the main thread."""

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
        self._before = {number: signal.signal(number, self._signalled) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        # A thread that is blocked in its output may still call wake() later: not into whatever has the number then.
        read, write, self._read, self._write = self._read, self._write, -1, -1
        os.close(read)
        os.close(write)

    def fileno(self) -> int:
        """Becomes readable with a signal, and with wake()."""
        return self._read

    def wake(self) -> None:
        """Wake the main loop, from any thread."""
        with contextlib.suppress(OSError):
            os.write(self._write, b"\0")

    def clear(self) -> None:
        """Take what made the descriptor readable."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Inside it a request to stop raises KeyboardInterrupt, also one that came before."""
        if self.count:
            raise KeyboardInterrupt
        self._raising = True
        try:
            yield
        finally:
            self._raising = False

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self._raising:
            raise KeyboardInterrupt
