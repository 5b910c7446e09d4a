"""Floor 5, frames out of libpq, as many as it has: compiled where that was built, else call by call."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn

from pgtail.compiled import compiled
from pgtail.server.framing import LENGTH

READ_AT_ONCE: Final = 4 * 1024 * 1024
"""Bytes of frames that are handed on together at most."""
_FEW: Final = 4096
"""Bytes of frames that are no backlog."""
_SOON: Final = 1
"""Milliseconds that the rest of a transaction is waited for: the server sends message by message, as fast as it
decodes."""
_AMID: Final = b"BORYIUDT"
"""Messages behind which another one follows."""
_KIND: Final = slice(25, 26)
"""Where the message's tag stands, behind the head of a w frame."""

ENDED: Final = -1
"""The server ended the stream."""
BROKEN: Final = -2
"""The connection broke; libpq has the words for it."""

AtOnce: TypeAlias = Callable[[bytes], None]
"""Takes frames, each behind its length, without a step too much. Raises nothing."""


class Reader:
    """Reads a connection in COPY_BOTH that does not block. `stopped` is set by whoever wants no further frame.

    This one is plain Python; that of _copydata.pyx does the same.
    """

    stopped = False

    def next(
        self,
        pgconn: PGconn,
        writing: bool,
        others: Sequence[tuple[int, int]],
        milliseconds: int,
        at_once: AtOnce | None = None,
    ) -> tuple[bytes, int, bool, list[int]]:
        """Wait for frames, if `writing` for room to write, or for one of the others: descriptors with poll()'s events.

        Returns the frames that libpq has then, each behind its length; 0, ENDED or BROKEN for what came behind them;
        whether there is room to write; and which of the others are ready. The frames are given to `at_once` before
        anything else is done.
        """
        parts: list[bytes | memoryview] = []
        writable = False
        ready: list[int] = []
        try:
            poll, socket = select.poll(), pgconn.socket
            poll.register(socket, select.POLLIN | (select.POLLOUT if writing else 0))
            for other in others:
                poll.register(*other)
            events = dict(poll.poll(milliseconds))
            writable = bool(events.pop(socket, 0) & select.POLLOUT)
            ready = list(events)
            outcome = self._gather(pgconn, parts)
        except psycopg.Error:
            outcome = BROKEN
        frames = b"".join(parts)
        if at_once is not None and frames:
            at_once(frames)
        return frames, outcome, writable, ready

    def _gather(self, pgconn: PGconn, parts: list[bytes | memoryview]) -> int:
        size, before = 0, -1
        while before < size < READ_AT_ONCE and not self.stopped:
            before = size
            pgconn.consume_input()
            kind = b""
            while True:
                length, data = pgconn.get_copy_data(1)
                if length <= 0 or self.stopped:
                    break
                parts += (LENGTH.pack(length), data)
                size += LENGTH.size + length
                kind = bytes(data[_KIND])
            if length < 0:
                return ENDED
            if size < _FEW and not (kind and kind in _AMID and _readable(pgconn)):
                break  # most likely there was no more; else the socket says so at once
        return 0


def _readable(pgconn: PGconn) -> bool:
    """Whether more comes soon."""
    wanted = select.poll()
    wanted.register(pgconn.socket, select.POLLIN)
    return bool(wanted.poll(_SOON))


def reader() -> Reader:
    """The compiled one where it was built, and psycopg has its libpq in a library rather than through ctypes."""
    fast = compiled("pgtail.server._copydata")
    if fast is not None:
        library = sys.modules[pq.PGconn.__module__].__file__ or ""
        with contextlib.suppress(ImportError):
            found: Reader = fast.Reader(os.fsencode(library), READ_AT_ONCE, _FEW, _SOON, _AMID)
            return found
    return Reader()
