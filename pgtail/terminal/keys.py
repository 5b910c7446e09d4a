"""Keys that are read while a command repeats its output: q ends it as Ctrl-C does, s changes the order."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import Final

from pgtail.files.stopping import Interrupt

_PATIENCE: Final = 1.0
"""Seconds to wait for the thread, and from one look at the terminal to the next."""


class Keys:
    """Reads keys where standard input is a terminal, and pgtail is in its foreground. `by_name` changes with s."""

    def __init__(self) -> None:
        self.active = False
        self.by_name = False

    @contextlib.contextmanager
    def read(self, interrupt: Interrupt | None = None) -> Iterator[None]:
        """Read keys while the body runs, then restore the terminal; s wakes `interrupt`."""
        if sys.stdin is None or not os.isatty(0) or not _in_foreground():
            yield
            return
        before = termios.tcgetattr(0)
        ended, end = os.pipe()
        thread = threading.Thread(target=self._run, args=(ended, interrupt), daemon=True)
        try:
            tty.setcbreak(0, termios.TCSANOW)  # keys arrive at once and are not echoed; Ctrl-C remains a signal
            self.active = True
            thread.start()
            yield
        finally:
            try:
                self.active = False
                os.close(end)
                thread.join(_PATIENCE)
                os.close(ended)
            finally:
                with contextlib.suppress(termios.error):  # the terminal is gone
                    if _in_foreground():  # in the background, the shell has set it
                        termios.tcsetattr(0, termios.TCSANOW, before)

    def _run(self, ended: int, interrupt: Interrupt | None) -> None:
        main = threading.main_thread().ident or 0
        with contextlib.suppress(OSError, termios.error):  # the terminal is gone
            while ended not in (ready := select.select([0, ended], [], [], _PATIENCE)[0]):
                if not _in_foreground():  # what is typed is for the shell
                    select.select([ended], [], [], _PATIENCE)
                    continue
                if not ready:
                    tty.setcbreak(0, termios.TCSANOW)  # again: a shell that stopped pgtail has restored the terminal
                    continue
                key = os.read(0, 1)
                if not key:
                    return
                if key == b"q":
                    signal.pthread_kill(main, signal.SIGINT)
                elif key == b"s":
                    self.by_name = not self.by_name
                    if interrupt is not None:
                        interrupt.wake()


def _in_foreground() -> bool:
    """Whether pgtail may read and set the terminal without being stopped."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
