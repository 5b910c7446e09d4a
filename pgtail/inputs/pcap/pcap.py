"""Packet captures: reads the replication streams of unencrypted connections to PostgreSQL, one after another.

A stream is the server's data after its CopyBothResponse; copydata.py reads it. While one connection is read, the bytes
of others wait in temporary files.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Iterator
from typing import Final, NoReturn, TypeAlias

from pgtail.errors import InputError
from pgtail.inputs.base import Chunk, NestedInput
from pgtail.inputs.binary.copydata import CopyDataFrames
from pgtail.inputs.pcap.client import ClientMessage
from pgtail.inputs.pcap.connections import OTHER_PLUGIN, TLS, Direction, ServerStream
from pgtail.inputs.pcap.packets import FIN, RST, SYN, Packets, TcpSegment, address_text, is_capture
from pgtail.inputs.source.window import Window
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import Decoded, Decoder, FromClient

MAX_ENDED: Final = 10_000
"""Ended directions to remember, to recognise late copies of their packets."""

Key: TypeAlias = tuple[tuple[bytes, int], tuple[bytes, int]]
"""Source and target, each an address and a port."""


class Connections:
    """All connections of a capture. `ready` are the streams that were found and not yet read."""

    def __init__(self, packets: Packets, name: str, decoder: Decoder) -> None:
        self._packets = packets
        self._segments = packets.segments()
        self._name = name
        self._decoder = decoder
        self._directions: dict[Key, Direction] = {}
        self._ended: deque[Key] = deque()
        self.ready: deque[ServerStream] = deque()
        self.others: dict[str, Counter[str]] = {}
        self.pairs: set[frozenset[tuple[bytes, int]]] = set()
        """The two addresses of each connection so far."""

    def pull(self) -> bool:
        """Read the next packet; False if there are no more."""
        for segment in self._segments:
            if segment is not None:
                self._take_segment(segment)
            return True
        for key, direction in [*self._directions.items()]:
            if not direction.over:
                self._end(key)
                if direction.stream is not None:
                    direction.stream.broken = self._packets.damage
        return False

    def close(self) -> None:
        """Drop everything that waits."""
        for stream in [*self.ready, *[one.stream for one in self._directions.values()]]:
            if stream is not None:
                stream.close()

    def _take_segment(self, segment: TcpSegment) -> None:
        key = segment.source, segment.target
        opens = bool(segment.flags & SYN)
        number = segment.number + opens
        direction = self._directions.get(key)
        if direction is None or (opens and number != direction.first):
            self._end(key)
            direction = self._directions[key] = self._begin(segment, number)
        if direction.over:
            return  # a late copy
        for piece in direction.flow.segment(number, segment.data, cut=segment.cut, last=bool(segment.flags & FIN)):
            direction.take_piece(piece)
        if direction.stream is None:
            self._look_for_client(direction, segment)
        if direction.flow.over or segment.flags & RST:
            self._end(key)

    def _look_for_client(self, direction: Direction, segment: TcpSegment) -> None:
        """Pass a client's messages to the direction of its server."""
        server = self._directions.get((segment.target, segment.source))
        for message in direction.scan.messages(segment.number, segment.data):
            if server is not None:
                server.peer_sent(ClientMessage(segment.time, message))

    def _begin(self, segment: TcpSegment, number: int) -> Direction:
        self.pairs.add(frozenset((segment.source, segment.target)))

        def make(whole: bool) -> ServerStream:
            server, client = address_text(segment.source), address_text(segment.target)
            name, packets = f"{self._name}: {server} to {client}", self._packets
            stream = ServerStream(name, self.pull, packets, whole=whole, peers=(client, server))
            self.ready.append(stream)
            return stream

        return Direction(number, make, self._decoder, whole=bool(segment.flags & SYN))

    def _end(self, key: Key) -> None:
        """End a direction. The last ended ones are remembered, to ignore late copies of their packets."""
        direction = self._directions.get(key)
        if direction is None or direction.over:
            return
        direction.end()
        if direction.other is not None:
            self.others.setdefault(direction.other, Counter())[address_text(key[0])] += 1
        self._ended.append(key)
        while len(self._ended) > MAX_ENDED:
            oldest = self._ended.popleft()
            if oldest in self._directions and self._directions[oldest].over:
                del self._directions[oldest]


class _ReplicationFrames(CopyDataFrames):
    """A server's messages on a connection, with those of its client in between, in the order of their capture."""

    def __init__(self, stream: ServerStream, decoder: Decoder) -> None:
        super().__init__(Window(stream), decoder)
        self._stream = stream

    def items(self) -> Generator[Decoded | Chunk]:
        yield from super().items()
        yield from self._interleaved(self.position, None)

    def _offer(self, buf: Buffer, pos: int, end: int) -> Generator[Chunk, None, int]:
        place = self._stream.client.place
        if place is not None:  # the scanner must not go beyond it
            end = min(end, max(pos, place - self._window.base))
        return (yield from super()._offer(buf, pos, end))

    def _interleaved(self, start: int, end: int | None) -> Iterator[Decoded]:
        stream = self._stream
        for time, data in stream.client.before(end):
            yield FromClient(self._decoder.client_message(data), *stream.peers, time), None, start, None


class Pcap(NestedInput):
    """pcap and pcapng files."""

    name = "pcap"

    def __init__(self, window: Window, decoder: Decoder) -> None:
        super().__init__(window, decoder)
        self._packets = Packets(window)
        self._connections = Connections(self._packets, window.source.name, decoder)
        self._stream: ServerStream | None = None
        self._inner: _ReplicationFrames | None = None
        self._read: list[ServerStream] = []

    @classmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        return is_capture(head, final=final)

    @property
    def position(self) -> int:
        """Offset in the stream of the current connection."""
        return self._window.position if self._inner is None else self._inner.position

    def items(self) -> Generator[Decoded | Chunk]:
        while self._inner is not None or self._next():
            assert self._inner is not None
            yield from self._inner.items()
            self._leave()
        if self._packets.damage is not None:
            raise self._packets.damage
        if not self._read:
            self._nothing()
        self._check_end()

    def resync(self) -> int | None:
        offset = super().resync()
        if offset is None:
            self._leave()
            return self.skipped if self._next(damaged=True) else None
        return offset

    def close(self) -> None:
        self._leave()
        self._connections.close()

    def _leave(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = self._inner = None

    def _next(self, *, damaged: bool = False) -> bool:
        """Open the next stream. Raises InputError at one that cannot follow another; with `damaged` skips it."""
        connections = self._connections
        while not connections.ready:
            if not connections.pull():
                break
        if not connections.ready:
            return False
        stream = connections.ready.popleft()
        same = next((one.name for one in self._read if stream.repeats(one)), None)
        if same is not None:
            stream.close()
            self.notes.append(
                f"{stream.name}: left out, the same stream as {same} behind a proxy or an address translation"
            )
            return self._next(damaged=damaged)
        self._read.append(stream)
        if len(self._read) > 1 and not stream.whole:
            stream.close()
            if damaged:
                return self._next(damaged=True)
            reason = (
                "the capture begins in the middle of this connection, whose tables may not be those of the one before"
            )
            raise InputError(
                f"{reason}: read it from a capture of its own (tcpdump -r FILE -w OTHER port N)", source=stream.name
            )
        self._decoder.in_stream = None
        self._stream, self._inner = stream, _ReplicationFrames(stream, self._decoder)
        return True

    def _nothing(self) -> NoReturn:
        """Raise InputError with what the capture has instead of a stream."""
        packets, others, count = self._packets, self._connections.others, len(self._connections.pairs)
        words = [f"no replication stream in these {packets.count} packets of {count} connections"]
        for kind, what in (
            (TLS, "encrypted (TLS), which cannot be read; use sslmode=disable for connections that can"),
            (OTHER_PLUGIN, "replication that is not pgoutput's (physical, or another plugin)"),
        ):
            if kind in others:
                words.append(f"{', '.join(others[kind])}: {what}")
        raise InputError("; ".join([*words, *packets.losses]), source=self.source.name)
