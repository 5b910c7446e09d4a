"""Recognises replication among the connections of a packet capture, and buffers what servers sent on them.

Reads the protocol up to CopyBothResponse (manual: Message Flow); copydata.py reads the rest. RFC 9293: sequence numbers
count bytes modulo 2^32. Segments may come late, twice, or split differently the second time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from pgtail.errors import DecodeError, InputError
from pgtail.files.spool import SpoolFile
from pgtail.inputs.binary.copydata import COPY_BOTH, CopyDataFrames
from pgtail.inputs.pcap.client import ClientLog, ClientMessage, ClientScan
from pgtail.inputs.pcap.packets import Packets
from pgtail.inputs.source.base import ByteStream
from pgtail.inputs.source.window import LARGE
from pgtail.pgoutput.decoder import Decoder

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
            yield from self._take_data(start, data)
        yield from self._follow()
        while self._waiting_size > MOST_WAITING:
            yield from self._skip()
        self.over = self.over or (self._end is not None and self._done >= self._end)

    def end(self) -> Iterator[Piece]:
        """End the direction; yield the waiting bytes, and the gaps before them."""
        self.over = True
        while self._starts:
            yield from self._skip()
        if self._sent > self._done:
            yield self._missing(self._sent)

    def _take_data(self, start: int, data: bytes) -> Iterator[Piece]:
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


_SEARCHED: Final = 512 * 1024
"""Bytes to search for messages if the beginning of a connection was not captured."""
_IN_MEMORY: Final = 4 << 20
"""Bytes of a waiting stream that stay in memory."""

_HEAD: Final = 4096
"""Bytes that show whether two streams are the same."""

_MOST_EARLY: Final = 1000
"""Messages of a client to keep before the server's answer is recognised."""

_OF_A_LENGTH: Final = 0
"""The first byte of every message length."""

TLS, OTHER_PLUGIN, NO_SERVER = "TLS", "another plugin", "no server"
"""Why a direction of a connection is not read."""


class ServerStream(ByteStream):
    """A server's messages on one connection, from some message on. `pull` reads a packet; False if there are no more.

    `peers` are the addresses of client and server.
    """

    def __init__(
        self, name: str, pull: Callable[[], bool], packets: Packets, *, whole: bool, peers: tuple[str, str]
    ) -> None:
        super().__init__(name, live=True)
        self.peers = peers
        self.whole = whole
        """Whether the capture has its first message."""
        self.over = False
        """Whether it has ended."""
        self.broken: InputError | None = None
        """The damage of the capture, if that ended it."""
        self.received = 0
        """How many of its bytes were added."""
        self.head = b""
        """Its first bytes."""
        self.client = ClientLog(self._no_room)
        """What the client sent."""
        self._pull = pull
        self._packets = packets
        self._waiting = SpoolFile("keep waiting packets", memory=_IN_MEMORY, error=self._no_room)
        self._closed = False
        self._read = 0
        self._gaps: deque[tuple[int, int]] = deque()
        self._gap: int | None = None

    def put(self, piece: Piece) -> None:
        """Add a piece. Raises InputError if it cannot be stored."""
        if self._closed:
            return
        if isinstance(piece, Missing):
            self._gaps.append((self._waiting.size, piece.size))
        else:
            self._waiting.write(piece)
            self.received += len(piece)
            if len(self.head) < _HEAD:
                self.head += piece[: _HEAD - len(self.head)]

    def sent(self, message: ClientMessage) -> None:
        """Add a message of the client. Raises InputError if it cannot be stored."""
        if not self._closed:
            self.client.put(self.received, message)

    def repeats(self, other: ServerStream) -> bool:
        """Read packets until it is known whether the stream begins with the same bytes as another one.

        Such streams are one: the first bytes contain the server's clock in microseconds.
        """
        while self.head == other.head[: len(self.head)] and len(self.head) < _HEAD and not self.over and self._pull():
            pass
        return self.head != b"" and self.head == other.head[: len(self.head)]

    def close(self) -> None:
        super().close()
        self._closed = True
        self._waiting.close()
        self.client.close()

    @property
    def damage(self) -> InputError | None:
        if self._gap is None:
            return self.broken if self.over and self._read == self._waiting.size else None
        reason = "; ".join([f"{self._gap} bytes are missing in the capture", *self._packets.losses])
        return InputError(reason, source=self.name, offset=self.position)

    def skip_damage(self) -> bool:
        found, self._gap = self._gap is not None, None
        return found

    def _fetch(self, limit: int) -> bytes:
        while self._gap is None:
            up_to = self._gaps[0][0] if self._gaps else self._waiting.size
            if up_to > self._read:
                return self._next(min(limit, up_to - self._read))
            if self._gaps:
                self._gap = self._gaps.popleft()[1]
            elif self.over:
                break
            elif not self._pull():
                self.over = True  # pull() has added what waited for other packets
        return b""

    def _next(self, size: int) -> bytes:
        data = self._waiting.read(self._read, size)
        self._read += len(data)
        if self._read == self._waiting.size and not self._gaps:
            self._read = 0
            self._waiting.truncate()
        return data


class Direction:
    """One direction of a connection, reassembled and examined until it is recognised.

    `stream` is the replication stream in it, `other` says why there is none; both are None before.
    """

    def __init__(self, first: int, make: Callable[[bool], ServerStream], decoder: Decoder, *, whole: bool) -> None:
        self.first = first
        self.flow = Flow(first)
        self.over = False
        self.scan = ClientScan()
        self.stream: ServerStream | None = None
        self.other: str | None = None
        self._make = make
        self._decoder = decoder
        self._whole = whole
        self._early: deque[ClientMessage] = deque(maxlen=_MOST_EARLY)
        self._head = b""
        self._skip = 0
        self._at = 0
        self._search_at = 1
        self._step = self._greeting if whole else self._middle

    def take_piece(self, piece: Piece) -> None:
        """Add a piece."""
        if self.stream is not None:
            self.stream.put(piece)
        elif isinstance(piece, Missing):
            self._head, self._whole, self._step, self._search_at = b"", False, self._middle, 1
        elif self.other is None:
            self._head += piece
            self._step()

    def peer_sent(self, message: ClientMessage) -> None:
        """Add a message of the other direction."""
        if self.stream is not None:
            self.stream.sent(message)
        elif self.other is None:
            self._early.append(message)

    def end(self) -> None:
        """End it."""
        self.over = True
        for piece in self.flow.end():
            self.take_piece(piece)
        if self.stream is None and self.other is None and self._step == self._middle:
            self._search(final=True)
        if self.stream is None and self.other is None and self._step == self._probe and self._at == len(self._head):
            self._reads_from(0)  # only keepalives came after replication began
        if self.stream is not None:
            self.stream.over = True

    def _is(self, other: str) -> None:
        self.other, self._head = other, b""
        self._early.clear()

    def _reads_from(self, place: int) -> None:
        self.stream = self._make(self._whole)
        for message in self._early:
            self.stream.sent(message)
        self._early.clear()
        self.stream.put(self._head[place:])
        self._head = b""

    def _greeting(self) -> None:
        """The first bytes. A server answers a request for encryption with a single byte."""
        while len(self._head) > 1:
            first, second = self._head[0], self._head[1]
            if _is_tls(self._head) or (first in b"SG" and second != _OF_A_LENGTH):
                self._is(TLS)
                return
            if first != ord("N") or second == _OF_A_LENGTH:
                self._step = self._walk
                self._walk()
                return
            self._head = self._head[1:]

    def _walk(self) -> None:
        """Messages before the switch to replication."""
        pos = 0
        while True:
            if self._skip:
                step = min(self._skip, len(self._head) - pos)
                pos, self._skip = pos + step, self._skip - step
            if pos + 5 > len(self._head):
                break
            kind = self._head[pos]
            try:
                _, stop, _ = CopyDataFrames.bounds(self._head, pos, len(self._head))
            except DecodeError:
                self._is(NO_SERVER)
                return
            if kind == COPY_BOTH and stop > len(self._head):
                break
            self._skip = stop - pos
            if kind == COPY_BOTH:
                self._head, self._skip, self._step = self._head[stop:], 0, self._probe
                self._probe()
                return
        self._head = self._head[pos:]

    def _probe(self) -> None:
        """The beginning of replication: the first data shows whether it is pgoutput."""
        verdict, self._at = CopyDataFrames.is_pgoutput(self._head, self._at, self._decoder)
        if verdict or len(self._head) > LARGE:
            self._reads_from(0)
        elif verdict is False:
            self._is(OTHER_PLUGIN)

    def _middle(self) -> None:
        """Bytes of a connection whose beginning was not captured."""
        if _is_tls(self._head):
            self._is(TLS)
        elif len(self._head) >= self._search_at:
            self._search_at = 2 * len(self._head)
            self._search(final=False)

    def _search(self, *, final: bool) -> None:
        place = CopyDataFrames.first_data(self._head, self._decoder, final=final)
        if place is not None:
            self._reads_from(place)
        elif len(self._head) > _SEARCHED:
            self._is(NO_SERVER)


def _is_tls(head: bytes) -> bool:
    """Whether bytes are a TLS record (RFC 8446, section 5.1)."""
    return len(head) > 2 and 20 <= head[0] <= 23 and head[1] == 3 and head[2] <= 4
