"""Packet captures for tests: bytes in TCP segments, written with dpkt as pcap and pcapng."""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dpkt

SERVER, CLIENT = ("127.0.0.1", 5432), ("127.0.0.1", 45678)
FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10

Link = Literal["ethernet", "vlan", "cooked", "cooked2", "raw", "null"]
LINKS: dict[Link, int] = {"ethernet": 1, "vlan": 1, "cooked": 113, "cooked2": 276, "raw": 101, "null": 0}


@dataclass(frozen=True)
class Packet:
    """One TCP segment on its way from `source` to `target`."""

    source: tuple[str, int]
    target: tuple[str, int]
    number: int
    data: bytes = b""
    flags: int = ACK | PSH


def address(text: str) -> bytes:
    if ":" in text:
        return socket.inet_pton(socket.AF_INET6, text)
    return bytes(map(int, text.split(".")))


def network(packet: Packet) -> bytes:
    """The IP packet, version 6 where the addresses are."""
    (host, port), (to, to_port) = packet.source, packet.target
    tcp = dpkt.tcp.TCP(sport=port, dport=to_port, seq=packet.number & 0xFFFFFFFF, data=packet.data)
    tcp.flags = packet.flags
    if ":" in host:
        size = len(bytes(tcp))
        head = struct.pack(">IHBB", 0x60000000, size, dpkt.ip.IP_PROTO_TCP, 64)
        return head + address(host) + address(to) + bytes(tcp)
    return bytes(dpkt.ip.IP(src=address(host), dst=address(to), p=dpkt.ip.IP_PROTO_TCP, data=tcp))


def linked(ip: bytes, link: Link) -> bytes:
    """An IP packet with the header of its link."""
    type_ = 0x86DD if ip[0] >> 4 == 6 else 0x0800
    match link:
        case "ethernet":
            return b"\2\0\0\0\0\1\2\0\0\0\0\2" + struct.pack(">H", type_) + ip
        case "vlan":
            return b"\2\0\0\0\0\1\2\0\0\0\0\2" + struct.pack(">HHH", 0x8100, 42, type_) + ip
        case "cooked":
            return struct.pack(">HHH8sH", 0, 1, 6, b"", type_) + ip
        case "cooked2":
            return struct.pack(">HHiHBB8s", type_, 0, 1, 1, 0, 6, b"") + ip
        case "raw":
            return ip
        case "null":
            return struct.pack("<I", 2) + ip


def pcap(packets: Iterable[Packet], link: Link = "ethernet", *, nano: bool = False) -> bytes:
    out = io.BytesIO()
    writer = dpkt.pcap.Writer(out, snaplen=262144, linktype=LINKS[link], nano=nano)
    for number, packet in enumerate(packets):
        writer.writepkt(linked(network(packet), link), ts=1_700_000_000 + number / 1000)
    return out.getvalue()


def pcapng(packets: Iterable[Packet], link: Link = "ethernet", links: Sequence[Link] = ()) -> bytes:
    """With `links`, packets alternate between interfaces with these link types."""
    out, interfaces = io.BytesIO(), links or [link]
    described = [dpkt.pcapng.InterfaceDescriptionBlockLE(snaplen=262144, linktype=LINKS[one]) for one in interfaces]
    writer = dpkt.pcapng.Writer(out, idb=described)
    for number, packet in enumerate(packets):
        one = number % len(interfaces)
        block: Any = dpkt.pcapng.EnhancedPacketBlockLE(
            iface_id=one, pkt_data=linked(network(packet), interfaces[one]), opts=[]
        )
        writer.writepkt(block, ts=1_700_000_000 + number / 1000)
    return out.getvalue()


def blocks(*found: tuple[int, bytes]) -> bytes:
    """A pcapng file of these blocks, by their type and what they have between their lengths."""
    section = (0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    return b"".join(_block(*one) for one in (section, *found))


def _block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


def segments(
    data: bytes,
    size: int = 1448,
    *,
    source: tuple[str, int] = SERVER,
    target: tuple[str, int] = CLIENT,
    first: int = 1000,
    open_: bool = True,
    close: bool = True,
) -> Iterator[Packet]:
    """Bytes from source to target: with SYN at the start unless `open_` is False, with FIN at the end."""
    if open_:
        yield Packet(source, target, first - 1, flags=SYN | ACK)
    for start in range(0, len(data), size):
        yield Packet(source, target, first + start, data[start : start + size])
    if close:
        yield Packet(source, target, first + len(data), flags=FIN | ACK)
