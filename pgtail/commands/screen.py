"""A screen that is drawn again and again, on a terminal's alternate screen."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from typing import Final

from pgtail.commands.sinks import FileSink
from pgtail.terminal.restore import SHOW_CURSOR, restored, write_if_taken

HEAD: Final = 2
"""Lines of a page before its text."""
_ENTER: Final = b"\x1b[?1049h\x1b[?25l"
_LEAVE: Final = b"\x1b[m\x1b[?1049l" + SHOW_CURSOR
"""To a terminal's alternate screen without a cursor, and back."""
_HOME: Final = "\x1b[H"
_CLEAR_LINE, _CLEAR_SCREEN = "\x1b[K", "\x1b[J"
"""From the cursor to the end of the line, of the screen."""


@contextlib.contextmanager
def alternate_screen(sink: FileSink) -> Iterator[None]:
    """The terminal's alternate screen, so that the main one is unchanged afterwards."""
    with restored(lambda: write_if_taken(sink.fd, _LEAVE)):
        sink.write(_ENTER)
        sink.flush()
        yield


def page(text: str, interval: float) -> str:
    """The text over the previous page, without flicker; lines that do not fit are counted."""
    lines = [f"every {interval:g} s, {time.strftime('%H:%M:%S')}; Ctrl-C ends it", "", *text.splitlines()]
    room = shutil.get_terminal_size((100, 24)).lines - 1
    if len(lines) > room:
        lines[room - 1 :] = [f"… {len(lines) - room + 1} more lines"]
    return _HOME + "".join([f"{line}{_CLEAR_LINE}\n" for line in lines]) + _CLEAR_SCREEN
