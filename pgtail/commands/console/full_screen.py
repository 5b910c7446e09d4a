"""A screen that is drawn again and again, on a terminal's alternate screen."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from typing import Final

from pgtail.commands.output.file_sink import FileSink
from pgtail.files.stopping import Interrupt
from pgtail.humanize import counted
from pgtail.terminal.keys import Keys
from pgtail.terminal.restore import SHOW_CURSOR, restored, write_if_taken

INTERVAL: Final = 2.0
"""Seconds between two reports of --watch."""
HEAD: Final = 2
"""Lines of a page before its text."""
_ENTER: Final = b"\x1b[?1049h\x1b[?25l"
_LEAVE: Final = b"\x1b[m\x1b[?1049l" + SHOW_CURSOR
"""To a terminal's alternate screen without a cursor, and back."""
_HOME: Final = "\x1b[H"
_CLEAR_LINE, _CLEAR_SCREEN = "\x1b[K", "\x1b[J"
"""From the cursor to the end of the line, of the screen."""


class Screen:
    """Shows one text after another on a terminal, every INTERVAL seconds; the last one stays when it ends."""

    def __init__(self, sink: FileSink) -> None:
        self.keys = Keys()
        self._sink = sink
        self._last = ""

    @contextlib.contextmanager
    def shown(self, interrupt: Interrupt | None = None) -> Iterator[None]:
        """The terminal's alternate screen; afterwards the last text is on the main one, below what was there.

        A change of the order wakes `interrupt`.
        """
        with (
            restored(lambda: write_if_taken(self._sink.fd, _LEAVE + self._last.encode("utf-8", "backslashreplace"))),
            self.keys.read(interrupt),
        ):
            self._sink.write(_ENTER)
            self._sink.flush()
            yield

    @property
    def empty(self) -> bool:
        """Whether nothing was shown yet."""
        return not self._last

    def show(self, text: str, message: str = "", *, unit: str = "line") -> None:
        """Replace the text without flicker, and the message below it, which does not stay.

        Lines that do not fit are counted as so many of `unit`, and are there when it ends.
        """
        now, order = time.strftime("%H:%M:%S"), "worst first" if self.keys.by_name else "by name"
        ends = f"q ends it, s sorts {order}" if self.keys.active else "Ctrl-C ends it"
        lines = [f"every {INTERVAL:g} s, {now}; {ends}", "", *f"{text}{message}".splitlines()]
        room = shutil.get_terminal_size((100, 24)).lines - 1
        if len(lines) > room:
            lines[room - 1 :] = [f"… {counted(len(lines) - room + 1, f'more {unit}')}"]
        page = _HOME + "".join([f"{line}{_CLEAR_LINE}\n" for line in lines]) + _CLEAR_SCREEN
        self._last = f"{now}\n\n{text}"
        self._sink.show(page)
