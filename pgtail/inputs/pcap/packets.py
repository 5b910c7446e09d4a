"""Reads the TCP segments in a pcap or pcapng file.

Reads the file format itself, to check every length and to support pipes (draft-ietf-opsawg-pcap,
draft-ietf-opsawg-pcapng). The optional library dpkt parses the packets.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pgtail.errors import InputError, OptionError
from pgtail.humanize import counted
from pgtail.inputs.source.window import Window
from pgtail.pgoutput.scalars import UNIX_EPOCH_OFFSET

if TYPE_CHECKING:
    from types import ModuleType

_LARGEST: Final = 64 << 20
"""Maximum size of a packet or block."""

_CLASSIC: Final = {
    b"\xa1\xb2\xc3\xd4": ">",
    b"\xd4\xc3\xb2\xa1": "<",
    b"\xa1\xb2\x3c\x4d": ">",
    b"\x4d\x3c\xb2\xa1": "<",
}
"""How a pcap file begins, with microseconds or nanoseconds, and its byte order."""
_NANOSECONDS: Final = frozenset((b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1"))

_SECTION: Final = b"\x0a\x0d\x0d\x0a"
_ORDERS: Final = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
_INTERFACE, _PACKET, _SIMPLE, _ENHANCED = 1, 2, 3, 6
"""Types of pcapng blocks."""
_HEADS: Final = {_INTERFACE: 16, _PACKET: 28, _SIMPLE: 12, _ENHANCED: 28}
"""Size of a block's fixed fields."""
_END_OF_OPTIONS, _RESOLUTION, _TIME_OFFSET = 0, 9, 14
"""Options of an interface: if_tsresol and if_tsoffset."""
_MICROSECONDS: Final = 1_000_000
_FURTHEST: Final = (1 << 63) - 1

_ETHERNET, _COOKED, _COOKED2 = 1, 113, 276
_FAMILY: Final = frozenset((0, 108))
"""Link types with an address family before the IP packet (BSD loopback)."""
_BARE: Final = frozenset((12, 14, 101, 228, 229))
"""Link types without a header before the IP packet."""
_FRAGMENT: Final = 44
"""IPv6's fragment header."""

FIN, SYN, RST = 1, 2, 4


class _Packet(NamedTuple):
    """A captured packet: its link type, the time of its capture as in TcpSegment, and its bytes."""

    link: int
    time: int | None
    data: bytes


class _Interface(NamedTuple):
    """An interface of a pcapng file: its link type, its clock's ticks per second, and the seconds to add."""

    link: int
    ticks: int
    offset: int

    def time(self, high: int, low: int) -> int | None:
        """The time of a packet from the two halves of its timestamp; None if PostgreSQL has no such time."""
        micros = (high << 32 | low) * _MICROSECONDS // self.ticks + self.offset * _MICROSECONDS - UNIX_EPOCH_OFFSET
        return micros if abs(micros) <= _FURTHEST else None


class TcpSegment(NamedTuple):
    """One TCP segment. `number` is its sequence number. `cut`: how many of its last bytes were not captured.

    `time` is when it was captured, in microseconds since 2000-01-01 UTC, if the file says so.
    """

    source: tuple[bytes, int]
    target: tuple[bytes, int]
    number: int
    flags: int
    data: bytes
    cut: int
    time: int | None


def is_capture(head: bytes, *, final: bool) -> bool | None:
    """Whether a file that begins with `head` is a packet capture; None if more bytes are needed."""
    if any(known.startswith(head[:4]) for known in (*_CLASSIC, _SECTION)):
        if len(head) < 12:
            return False if final else None
        return head[:4] != _SECTION or head[8:12] in _ORDERS
    return False


def address_text(address: tuple[bytes, int]) -> str:
    """ADDRESS:PORT or [IPV6]:PORT."""
    host = ipaddress.ip_address(address[0])
    return f"[{host}]:{address[1]}" if host.version == 6 else f"{host}:{address[1]}"


class Packets:
    """The packets of a capture. `damage` says why they ended before the end of the file."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._dpkt = _library()
        self.damage: InputError | None = None
        self.count = self.cut = self.fragments = 0

    def segments(self) -> Iterator[TcpSegment | None]:
        """Yield the TCP segments, and None for every other packet."""
        try:
            for packet in self._packets():
                self.count += 1
                segment = self._segment(packet)
                if segment is not None:
                    self.cut += segment.cut > 0
                yield segment
        except InputError as error:
            self.damage = error

    @property
    def losses(self) -> list[str]:
        """The parts missing from the packets, in words."""
        words = []
        if self.cut:
            packets = f"{counted(self.cut, 'packet')} {'was' if self.cut == 1 else 'were'}"
            words.append(f"{packets} cut when captured (tcpdump -s 0 captures whole packets)")
        if self.fragments:
            words.append(f"{counted(self.fragments, 'IP fragment')} skipped")
        return words

    # -- the file ----------------------------------------------------------------------------------------------

    def _packets(self) -> Iterator[_Packet]:
        """Yield the packets. Raises InputError."""
        magic = self._take_bytes(4)
        if magic == _SECTION:
            yield from self._blocks()
            return
        order = _CLASSIC.get(magic)
        if order is None:
            raise self._damaged("neither a pcap nor a pcapng file")
        head = struct.Struct(order + "IIII")
        divisor = 1000 if magic in _NANOSECONDS else 1
        (link,) = struct.unpack_from(order + "I", self._take_bytes(20), 16)
        while not self._ended():
            seconds, fraction, size, _ = head.unpack(self._take_bytes(head.size))
            time = seconds * _MICROSECONDS + fraction // divisor - UNIX_EPOCH_OFFSET
            yield _Packet(link & 0xFFFF, time, self._take_bytes(self._checked(size, 0)))

    def _blocks(self) -> Iterator[_Packet]:
        """As _packets() for pcapng, after the type of the first block."""
        order, links, kind = "", list[_Interface](), _SECTION
        while True:
            size = self._take_bytes(4)
            if kind == _SECTION:
                mark = self._take_bytes(4)
                order, links = _ORDERS.get(mark, ""), []
                if not order:
                    raise self._damaged("a pcapng section without its byte order")
                self._take_bytes(self._checked(struct.unpack(order + "I", size)[0], 12) - 12)
            else:
                (number,) = struct.unpack(order + "I", kind)
                body = self._take_bytes(self._checked(struct.unpack(order + "I", size)[0], 12) - 8)
                yield from self._block(number, kind + size + body, order, links)
            if self._ended():
                return
            kind = self._take_bytes(4)

    def _block(self, kind: int, block: bytes, order: str, links: list[_Interface]) -> Iterator[_Packet]:
        head = _HEADS.get(kind)
        if head is None:
            return
        if len(block) < head + 4:
            raise self._damaged(f"a pcapng block of {len(block)} bytes")
        if kind == _INTERFACE:
            links.append(_interface(block, order))
            return
        interface, size, stamp = 0, len(block) - head - 4, list[int]()
        if kind in (_ENHANCED, _PACKET):
            interface, *stamp, size = struct.unpack_from(
                order + ("I" if kind == _ENHANCED else "H2x") + "III", block, 8
            )
        else:
            size = min(size, struct.unpack_from(order + "I", block, 8)[0])
        if interface >= len(links) or size > len(block) - head - 4:
            raise self._damaged("a packet of an interface that was never described, or longer than its block")
        found = links[interface]
        yield _Packet(found.link, found.time(*stamp) if stamp else None, block[head : head + size])

    def _ended(self) -> bool:
        window = self._window
        window.hold(1)
        return window.pos == len(window.buf) and window.source.damage is None

    def _take_bytes(self, size: int) -> bytes:
        """The next `size` bytes of the file. Raises InputError if there are fewer."""
        window = self._window
        window.hold(size)
        data = window.buf[window.pos : window.pos + size]
        if len(data) < size:
            raise window.source.damage or self._damaged("the capture ends inside a packet")
        window.pos += size
        return data

    def _checked(self, size: int, least: int) -> int:
        if not least <= size <= _LARGEST:
            raise self._damaged(f"a packet or block of {size} bytes")
        return size

    def _damaged(self, reason: str) -> InputError:
        return InputError(reason, source=self._window.source.name, offset=self._window.position)

    # -- the packets -------------------------------------------------------------------------------------------

    def _segment(self, packet: _Packet) -> TcpSegment | None:
        """The TCP segment in a packet, or None. dpkt may raise anything on a damaged packet."""
        try:
            return self._tcp_segment(self._network(packet.link, packet.data), packet.time)
        except Exception:  # noqa: BLE001 -- a damaged packet is skipped
            return None

    def _network(self, link: int, packet: bytes) -> Any:
        """The parsed IP packet. Raises any exception if there is none."""
        dpkt = self._dpkt
        if link in _FAMILY or link in _BARE:
            packet = packet[4:] if link in _FAMILY else packet
            return (dpkt.ip6.IP6 if packet[0] >> 4 == 6 else dpkt.ip.IP)(packet)
        layer = {_ETHERNET: dpkt.ethernet.Ethernet, _COOKED: dpkt.sll.SLL, _COOKED2: dpkt.sll2.SLL2}[link](packet)
        while not isinstance(layer, dpkt.ip.IP | dpkt.ip6.IP6):
            layer = layer.data  # the last layer has bytes, which have no data
        return layer

    def _tcp_segment(self, ip: Any, time: int | None) -> TcpSegment | None:
        dpkt = self._dpkt
        six = isinstance(ip, dpkt.ip6.IP6)
        if (_FRAGMENT in ip.extension_hdrs) if six else (ip.mf or ip.offset):
            self.fragments += 1
            return None
        tcp = ip.data
        if not isinstance(tcp, dpkt.tcp.TCP):
            return None
        if six:
            whole = ip.plen - sum([header.length for header in ip.all_extension_headers]) if ip.plen else 0
        else:
            whole = ip.len - 4 * ip.hl if ip.len else 0
        # Length 0: the network card was to split the packet (TSO), so all of it was captured.
        cut = max(whole - 4 * tcp.off - len(tcp.data), 0)
        return TcpSegment((ip.src, tcp.sport), (ip.dst, tcp.dport), tcp.seq, tcp.flags, bytes(tcp.data), cut, time)


def _interface(block: bytes, order: str) -> _Interface:
    """An interface from its block. Options that end inside the block's end are ignored."""
    ticks, offset, pos = _MICROSECONDS, 0, _HEADS[_INTERFACE]
    while pos + 4 <= len(block) - 4:
        option, size = struct.unpack_from(order + "HH", block, pos)
        value = block[pos + 4 : pos + 4 + size]
        if option == _END_OF_OPTIONS:
            break
        if option == _RESOLUTION and size == 1:
            ticks = (2 if value[0] & 0x80 else 10) ** (value[0] & 0x7F)
        elif option == _TIME_OFFSET and size == 8:
            (offset,) = struct.unpack(order + "q", value)
        pos += 4 + -(-size // 4) * 4
    return _Interface(struct.unpack_from(order + "H", block, 8)[0], ticks, offset)


def _library() -> ModuleType:
    try:
        import dpkt
    except ImportError:
        reason = "packet captures need dpkt. In a checkout of pgtail: pip install '.[pcap]'"
        raise OptionError(reason) from None
    module: ModuleType = dpkt
    return module
