"""Reads frames from libpq: all that it has received, in one buffer."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Final

import psycopg
from psycopg.pq.abc import PGconn

from pgtail.pgoutput.frames import LENGTH
from pgtail.pgoutput.kinds import Role, tags

MAX_BATCH: Final = 4 * 1024 * 1024
"""Maximum bytes of frames returned together; one frame may be larger."""
_FEW: Final = 4096
"""With fewer bytes than this, there is no backlog."""
_SOON: Final = 1
"""Milliseconds to wait for the next message of a transaction: the server sends each one as soon as it is decoded."""
_AMID: Final = bytes(tags(Role.BEGIN, Role.ORIGIN, Role.DESCRIPTION, Role.ROW, Role.TRUNCATE))
"""Messages that are never the last of a transaction."""
_KIND: Final = slice(25, 26)
"""The position of the message's tag in a w frame, after the header."""

ENDED: Final = -1
"""The server ended the stream."""
BROKEN: Final = -2
"""The connection broke; libpq has the error message."""


class Reader:
    """Reads a nonblocking connection in COPY_BOTH. Set `stopped` to receive no further frames."""

    stopped = False

    def next(
        self, pgconn: PGconn, writing: bool, others: Sequence[tuple[int, int]], milliseconds: int
    ) -> tuple[bytes, int, bool, list[int]]:
        """Wait for frames, for room to write if `writing`, or for one of `others` (descriptors and poll() events).

        Returns the received frames, each preceded by its length; ENDED or BROKEN if that followed them, else 0;
        whether there is room to write; and which of the others are ready.
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
        return b"".join(parts), outcome, writable, ready

    def _gather(self, pgconn: PGconn, parts: list[bytes | memoryview]) -> int:
        # One iteration for each frame of a backlog: names are bound outside of the loop.
        get, pack, add = pgconn.get_copy_data, LENGTH.pack, parts.append
        size, before = 0, -1
        while before < size < MAX_BATCH and not self.stopped:
            before = size
            pgconn.consume_input()
            while True:
                length, data = get(1)
                if length <= 0 or self.stopped:
                    break
                add(pack(length))
                add(data)
                size += LENGTH.size + length
            if length < 0:
                return ENDED
            kind = bytes(parts[-1][_KIND]) if size > before else b""
            if size < _FEW and not (kind and kind in _AMID and _readable(pgconn)):
                break  # probably nothing more yet; otherwise the next poll() returns at once
        return 0


def _readable(pgconn: PGconn) -> bool:
    """Whether more data arrives within _SOON."""
    wanted = select.poll()
    wanted.register(pgconn.socket, select.POLLIN)
    return bool(wanted.poll(_SOON))
