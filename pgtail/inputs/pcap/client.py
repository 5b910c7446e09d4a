"""Finds a client's messages on a replication connection: START_REPLICATION and its status updates.

Manual: streaming replication protocol. Everything else that a client sends is skipped, passwords included.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from pgtail.files.spool import SpoolFile

_SENT: Final = re.compile(
    rb"d\0\0\0\x26r.{32}[\0\1]"  # a CopyData message with a standby status update
    rb"|Q\0.{3}\s*START_REPLICATION\s[^\0]*\0",
    re.DOTALL | re.IGNORECASE,
)
_UNFINISHED: Final = re.compile(rb"Q\0.{3}\s*START_REPLICATION\s[^\0]*\Z", re.DOTALL | re.IGNORECASE)
_length: Final = Struct(">i").unpack_from
_LONGEST: Final = 64 * 1024
"""Bytes of an unfinished command to keep."""
_SHORTEST: Final = 64
"""Bytes to keep that may be the start of a message: more than a status update has."""

_REMEMBERED: Final = 64
"""Segments to remember, to recognise those that were sent again."""
_SEQUENCE: Final = (1 << 32) - 1

_HEAD: Final = Struct(">QqI")
_NO_TIME: Final = -(1 << 63)
_IN_MEMORY: Final = 1 << 20


class ClientScan:
    """Finds the messages in one direction of a connection, segment by segment.

    Segments are not put in order: a client sends little, and nothing may wait for a segment that was not captured.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._next: int | None = None
        self._seen: deque[int] = deque(maxlen=_REMEMBERED)

    def messages(self, number: int, data: bytes) -> Iterator[bytes]:
        """The messages that end in a segment with this sequence number, whole, with their type and length."""
        if not data or number in self._seen:
            return
        self._seen.append(number)
        follows, self._next = number == self._next, (number + len(data)) & _SEQUENCE
        if follows:
            data = self._rest + data
        end = 0
        for match in _SENT.finditer(data):
            message = match[0]
            if _length(message, 1)[0] == len(message) - 1:
                yield message
                end = match.end()
        unfinished = _UNFINISHED.search(data, end)
        self._rest = data[end:][-_SHORTEST:] if unfinished is None else data[unfinished.start() :][:_LONGEST]


class ClientMessage(NamedTuple):
    """A client's message: when its packet was captured (microseconds since 2000-01-01 UTC), and the bytes."""

    time: int | None
    data: bytes


class ClientLog:
    """The messages of one client until they are read, each with its place in the server's messages."""

    def __init__(self, error: Callable[[str], Exception]) -> None:
        self._spool = SpoolFile("keep what a client sent", memory=_IN_MEMORY, error=error)
        self._read = 0
        self.place: int | None = None
        """Where the next message belongs: the bytes that the server had sent before it. None if there is none."""

    def put(self, place: int, message: ClientMessage) -> None:
        """Add a message. Places must not decrease."""
        time, data = message
        self._spool.write(_HEAD.pack(place, _NO_TIME if time is None else time, len(data)) + data)
        if self.place is None:
            self.place = place

    def before(self, end: int | None) -> Iterator[ClientMessage]:
        """Remove and yield the messages that came before the byte before `end`; all of them if it is None."""
        while self.place is not None and (end is None or self.place < end):
            _, time, size = _HEAD.unpack(self._spool.read(self._read, _HEAD.size))
            data = self._spool.read(self._read + _HEAD.size, size)
            self._read += _HEAD.size + size
            self.place = self._next_place()
            yield ClientMessage(None if time == _NO_TIME else time, data)

    def close(self) -> None:
        """Delete the temporary file."""
        self._spool.close()
        self.place = None

    def _next_place(self) -> int | None:
        if self._read == self._spool.size:
            self._spool.truncate()
            self._read = 0
            return None
        found: int = _HEAD.unpack(self._spool.read(self._read, _HEAD.size))[0]
        return found
