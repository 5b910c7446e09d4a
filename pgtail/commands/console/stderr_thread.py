"""A thread that writes messages, and a status line below them, while a stream runs.

A stopped terminal (Ctrl-S) blocks writes, while the main loop must keep answering the server.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from logging.handlers import QueueHandler, QueueListener
from typing import Final, Self

from pgtail.commands.console.log import JsonFormatter
from pgtail.commands.console.messages import columns_of, descriptor, handled_by, is_dumb, on_terminal
from pgtail.files.stopping import after_echo
from pgtail.log import OUTCOME
from pgtail.terminal.escape import escape

_QUEUE_LIMIT: Final = 10_000
"""Messages that wait at most; then others are dropped."""
_LAST_PAUSE: Final = 1.0
"""Seconds to wait at the end for what is queued to be written."""
_ERASE: Final = "\r\x1b[K"
_STATUS: Final = logging.makeLogRecord({})
"""Stands in the queue for the status line."""


class _Sender(QueueHandler):
    """Queues messages, as they are to be written."""

    queue: queue.Queue[logging.LogRecord]
    dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        if self.queue.qsize() >= _QUEUE_LIMIT:
            self.dropped += 1
            return
        self.note_dropped()
        self.queue.put_nowait(record)

    def note_dropped(self) -> None:
        """Queue how many were dropped, if any were."""
        if self.dropped:
            text = f"{self.dropped} lines were dropped here: standard error was blocked"
            self.queue.put_nowait(self.prepare(logging.makeLogRecord({"msg": text, "levelno": OUTCOME})))
            self.dropped = 0


class StderrThread(QueueListener):
    """A context in which a thread writes the messages. `quiet`: there is no status line (-q)."""

    queue: queue.Queue[logging.LogRecord | None]

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(queue.Queue())
        self._sender = _Sender(self.queue)
        self._handling = handled_by(self._sender)
        # Without sys.stderr the descriptor was closed, and its number may belong to a socket by now.
        self._fd = descriptor()
        self._on_terminal = on_terminal(self._fd)
        self._quiet = quiet
        self.show_status: Callable[[Sequence[str]], None] | None = None
        """Replaces the status line by these parts, the last of which are left out if there is no room for them."""
        self._status: Sequence[str] = ()
        self._waits = False
        """Whether the status line has its place in the queue."""
        self._drawn = False
        self._terminal = threading.Lock()
        self._stopping = threading.Thread(target=self.stop, daemon=True)

    def __enter__(self) -> Self:
        self._handling.__enter__()
        drawn = self._on_terminal and not is_dumb()
        if drawn and not self._quiet and not isinstance(self._sender.formatter, JsonFormatter):
            self.show_status = self._show_status
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Write what is queued, as wait() waits for it."""
        self._handling.__exit__(None, None, None)
        self._sender.note_dropped()
        self._show_status(())
        self._stopping.start()
        self.wait()

    def wait(self) -> None:
        """Wait only so long until it has written everything, at or after the end."""
        self._stopping.join(_LAST_PAUSE)

    def _show_status(self, parts: Sequence[str]) -> None:
        self._status = [escape(part) for part in parts]
        if not self._waits:
            self._waits = True
            self.queue.put_nowait(_STATUS)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Write the queued messages, erase the status line, and write nothing while the body uses the terminal."""
        if not self._on_terminal:
            yield
            return
        self.queue.join()
        with self._terminal:
            self._write("")
            yield

    def handle(self, record: logging.LogRecord) -> None:
        with self._terminal:
            if record is not _STATUS:
                self._write(f"{after_echo(self._on_terminal and not self._drawn)}{record.message}\n")
                return
            self._waits = False  # before what is shown is read
            self._write(_joined(self._status, (columns_of(self._fd) or 80) - 1))
            self._drawn = bool(self._status)

    def _write(self, text: str) -> None:
        """Write a text in place of the status line."""
        if self._drawn:  # also ^C
            after_echo(terminal=False)
            text, self._drawn = _ERASE + text, False
        view = memoryview(text.encode("utf-8", "backslashreplace"))
        with contextlib.suppress(OSError):
            while view:
                view = view[os.write(self._fd, view) :]


def _joined(parts: Sequence[str], room: int) -> str:
    """The first parts, as many as there is room for; the first one is cut if it has to be."""
    text, *others = parts or ("",)
    for part in others:
        if len(longer := f"{text} · {part}") > room:
            break
        text = longer
    return text[:room]
