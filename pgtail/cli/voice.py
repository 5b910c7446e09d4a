"""Floor 7, standard error while a stream runs: lines and one status line, written by a thread so that nobody waits.

A terminal that was stopped (Ctrl-S) takes nothing: the main loop must go on answering the server all the same.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import Final

from pgtail.cli.sinks import FileSink
from pgtail.outputs.escape import escape
from pgtail.server.taker import Stopped

_MOST_LINES: Final = 10_000
_ERASE: Final = "\r\x1b[K"


class Voice:
    """Tells lines; `verbosity` 1 also details, 2 also traces. Text from elsewhere is escaped here."""

    def __init__(self, verbosity: int) -> None:
        # Python has no stderr where its descriptor was closed; the number may belong to a socket by now.
        self._fd = -1 if sys.stderr is None else sys.stderr.fileno()
        terminal = self._fd >= 0 and os.isatty(self._fd)
        self.wants_status = terminal
        self.wants_trace = verbosity >= 2
        self._wants_detail = terminal or verbosity >= 1
        self._width = 80
        if terminal:
            with contextlib.suppress(OSError):
                self._width = os.get_terminal_size(self._fd).columns or 80
        self._lines: deque[str] = deque()
        self._status: str | None = None
        self._dropped = 0
        self._drawn = False
        self._closed = False
        self._changed = threading.Condition()
        self._terminal = threading.Lock()
        self._thread = threading.Thread(target=self._write_all, name="voice", daemon=True)
        self._thread.start()

    def tell(self, text: str) -> None:
        """A line for a person."""
        first, *rest = [escape(line.strip()) for line in text.split("\n")]
        self._put("\n".join([f"pgtail: {first}", *[f"        {line}" for line in rest]]))

    def detail(self, text: str) -> None:
        """The same, on a terminal or for who asked for more."""
        if self._wants_detail:
            self.tell(text)

    def trace(self, text: str) -> None:
        """A line of the trace."""
        if self.wants_trace:
            self._put(escape(text))

    def status(self, text: str) -> None:
        """Replace the status line."""
        with self._changed:
            self._status = escape(text)
            self._changed.notify()

    def close(self) -> None:
        """Write what is left, if standard error takes it within a second."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(1)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """The terminal belongs to somebody else meanwhile: the status line is erased, and nothing is written."""
        if not self.wants_status:
            yield
            return
        with self._terminal:
            if self._drawn:
                self._write(_ERASE)
                self._drawn = False
            yield

    def _put(self, line: str) -> None:
        with self._changed:
            if len(self._lines) >= _MOST_LINES:
                self._lines.popleft()
                self._dropped += 1
            self._lines.append(line)
            self._changed.notify()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while not (self._lines or self._status is not None or self._closed):
                    self._changed.wait()
                lines, status, dropped = list(self._lines), self._status, self._dropped
                closed = self._closed
                self._lines.clear()
                self._status, self._dropped = None, 0
            if dropped:
                lines.insert(0, f"pgtail: {dropped} lines were dropped here: standard error did not take them")
            with self._terminal:
                self._draw(lines, None if closed else status)
            if closed:
                return

    def _draw(self, lines: list[str], status: str | None) -> None:
        text = _ERASE if self._drawn else ""
        self._drawn = False
        text += "".join([f"{line}\n" for line in lines])
        if status is not None:
            text += status[: self._width - 1]
            self._drawn = True
        self._write(text)

    def _write(self, text: str) -> None:
        view = memoryview(text.encode("utf-8", "backslashreplace"))
        with contextlib.suppress(OSError):
            while view:
                view = view[os.write(self._fd, view) :]


class StreamSink(FileSink):
    """A file sink that can be told to give up, and that keeps the status line out of the output's way."""

    def __init__(self, fd: int, name: str, voice: Voice | None) -> None:
        super().__init__(fd, name)
        self.stopped = False
        self._voice = voice

    def flush(self) -> None:
        """As FileSink's. Raises Stopped where the output is to be given up."""
        if self.stopped:
            raise Stopped
        if self._voice is None or not self._parts:
            super().flush()
            return
        with self._voice.quiet():
            super().flush()
