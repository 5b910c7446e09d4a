"""Reads frames from libpq: all that it has received, in one buffer."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import Final

import psycopg
from psycopg.pq.abc import PGconn

from pgtail.native import compiled
from pgtail.pgoutput.decoder import XLOG_HEADER_SIZE
from pgtail.pgoutput.frames import LENGTH
from pgtail.pgoutput.kinds import Role, tags

MAX_BATCH: Final = 4 * 1024 * 1024
"""Maximum bytes of frames returned together; one frame may be larger."""
_FEW: Final = 4096
"""With fewer bytes than this, there is no backlog."""
_PAUSE: Final = 0.0003
"""Seconds in which further frames of a backlog may arrive: a call for every few frames costs more than reading them."""
_SOON: Final = 1
"""Milliseconds to wait for the next message of a transaction: the server sends each one as soon as it is decoded."""
_AMID: Final = tags(Role.BEGIN, Role.ORIGIN, Role.DESCRIPTION, Role.ROW, Role.TRUNCATE)
"""Messages that are never the last of a transaction."""
_TAG: Final = XLOG_HEADER_SIZE
"""The position of the message's tag in a w frame."""

ENDED: Final = -1
"""The server ended the stream."""
BROKEN: Final = -2
"""The connection broke; libpq has the error message."""


class CopyReader:
    """Reads a nonblocking connection in COPY_BOTH. Set `stopped` to receive no further frames."""

    stopped = False
    _backlog = False
    """Whether the last call received so much that more is probably there."""

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
            if self._backlog:
                time.sleep(_PAUSE)
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
        module = compiled()
        receive = _receive if module is None else module.receive
        size, before = 0, -1
        self._backlog = False
        while before < size < MAX_BATCH and not self.stopped:
            before = size
            pgconn.consume_input()
            added, tag, length = receive(self, pgconn.get_copy_data, parts)
            size += added
            self._backlog = size >= _FEW
            if length < 0:
                return ENDED
            if not self._backlog and not (tag in _AMID and wait_to_read(pgconn, _SOON)):
                break  # probably nothing more yet; otherwise the next poll() returns at once
        return 0


def _receive(
    reader: CopyReader, get_copy_data: Callable[[int], tuple[int, memoryview]], parts: list[bytes | memoryview]
) -> tuple[int, int, int]:
    """Add the frames that libpq has to `parts`, each after its length; also if get_copy_data fails after some.

    Returns how many bytes, the tag of the last frame's message or 0, and the last length from get_copy_data.
    """
    size = tag = 0
    while True:
        length, data = get_copy_data(1)
        if length <= 0 or reader.stopped:
            return size, tag, length
        parts += (LENGTH.pack(length), data)
        size += LENGTH.size + length
        tag = data[_TAG] if length > _TAG else 0


def wait_to_read(pgconn: PGconn, milliseconds: int) -> bool:
    """Wait until something arrives, or this long; returns whether it did.

    Bytes that TLS has decrypted do not count: let libpq read anyway.
    """
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    return bool(poll.poll(milliseconds))
