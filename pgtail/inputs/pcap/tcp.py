"""Reassembles one direction of a TCP connection from its segments.

RFC 9293: sequence numbers count bytes modulo 2^32. Segments may come late, twice, or split differently the second time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

MOST_WAITING: Final = 16 << 20
"""Bytes that may wait for missing ones: more than a sender has in flight, so the missing ones were not captured."""

_HALF: Final = 1 << 31
_ALL: Final = (1 << 32) - 1


class Missing(NamedTuple):
    """`size` bytes of the stream are not in the capture."""

    size: int


Piece: TypeAlias = bytes | Missing
"""The next bytes of the stream, or a note that some are missing."""


class Flow:
    """One direction of a connection. `first` is the sequence number of its first byte."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._done = 0
        self._waiting: dict[int, bytes] = {}
        self._starts: list[int] = []
        self._waiting_size = 0
        self._sent = 0
        """How many bytes the sender is known to have sent."""
        self._end: int | None = None
        self.over = False
        """Whether it has ended."""

    def segment(self, number: int, data: bytes, *, cut: int = 0, last: bool = False) -> Iterator[Piece]:
        """Add a segment; yield the pieces that are complete now.

        `cut`: how many bytes after `data` it had that were not captured. `last`: nothing follows it (FIN).
        """
        start = self._done + ((number - self._next + _HALF & _ALL) - _HALF)
        if data or cut or last:
            self._sent = max(self._sent, start + len(data) + cut)
        if last:
            self._end = start + len(data) + cut
        if data:
            yield from self._take(start, data)
        yield from self._follow()
        while self._waiting_size > MOST_WAITING:
            yield from self._skip()
        self.over = self.over or (self._end is not None and self._done >= self._end)

    def end(self) -> Iterator[Piece]:
        """End the direction; yield what waits, and what is missing before it."""
        self.over = True
        while self._starts:
            yield from self._skip()
        if self._sent > self._done:
            yield self._missing(self._sent)

    def _take(self, start: int, data: bytes) -> Iterator[Piece]:
        """Add bytes at offset `start`: yield the new ones that are next, or let them wait."""
        if start > self._done:
            before = self._waiting.get(start)
            if before is None:
                heapq.heappush(self._starts, start)
            if before is None or len(data) > len(before):
                self._waiting[start] = data
                self._waiting_size += len(data) - len(before or b"")
        elif start + len(data) > self._done:
            yield self._advance(data[self._done - start :])

    def _follow(self) -> Iterator[Piece]:
        """Yield waiting bytes that are next."""
        while self._starts and self._starts[0] <= self._done:
            start = heapq.heappop(self._starts)
            data = self._waiting.pop(start)
            self._waiting_size -= len(data)
            if start + len(data) > self._done:
                yield self._advance(data[self._done - start :])

    def _skip(self) -> Iterator[Piece]:
        """Give up the missing bytes before the first waiting ones."""
        yield self._missing(self._starts[0])
        yield from self._follow()

    def _missing(self, up_to: int) -> Missing:
        missing = up_to - self._done
        self._next = self._next + missing & _ALL
        self._done = up_to
        return Missing(missing)

    def _advance(self, data: bytes) -> bytes:
        self._next = self._next + len(data) & _ALL
        self._done += len(data)
        return data
