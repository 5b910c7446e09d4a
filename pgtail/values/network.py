"""Network addresses (src/backend/utils/adt/network.c, mac.c; src/port/inet_net_ntop.c).

Python's ipaddress writes some IPv6 addresses differently, depending on its version.
"""

from __future__ import annotations

import struct
from typing import Final

from pgtail.values.codec import BinaryText, Loader, ValueKind, plain
from pgtail.values.render import strings

PGSQL_AF_INET: Final = 2
PGSQL_AF_INET6: Final = 3

_SIZES = {PGSQL_AF_INET: 4, PGSQL_AF_INET6: 16}
_words = struct.Struct(">8H").unpack


def _address(*, cidr: bool) -> BinaryText:
    def text(cell: bytes) -> str:
        """Address family, bits of the netmask, cidr flag, length of the address, the address."""
        family, bits, is_cidr, size = cell[:4]
        address = cell[4:]
        width = 8 * size
        if size != _SIZES[family] or len(address) != size or bits > width or is_cidr != cidr:
            raise ValueError("not a network address")
        if cidr and int.from_bytes(address) & ((1 << (width - bits)) - 1):
            raise ValueError("a cidr with bits to the right of its mask")
        host = ".".join(map(str, address)) if family == PGSQL_AF_INET else _ipv6(address)
        return f"{host}/{bits}" if cidr or bits != width else host

    return text


def _ipv6(address: bytes) -> str:
    words = _words(address)
    start, length = _longest_zeros(words)
    # ::1.2.3.4 and ::ffff:1.2.3.4 contain an IPv4 address; ::1 and :: do not.
    if start == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        return ("::" if length == 6 else "::ffff:") + ".".join(map(str, address[12:]))
    text = [f"{word:x}" for word in words]
    if length < 2:
        return ":".join(text)
    return f"{':'.join(text[:start])}::{':'.join(text[start + length :])}"


def _longest_zeros(words: tuple[int, ...]) -> tuple[int, int]:
    """Start and length of the longest run of zeros, the first if there are several."""
    best = (0, 0)
    start = 0
    for place, word in enumerate(words):
        if word:
            start = place + 1
        elif place + 1 - start > best[1]:
            best = (start, place + 1 - start)
    return best


def _hardware_address(size: int) -> BinaryText:
    def text(cell: bytes) -> str:
        if len(cell) != size:
            raise ValueError("hardware address of another length")
        return cell.hex(":")

    return text


TYPES: Final = {
    "inet": Loader(ValueKind.TEXT, strings, plain(_address(cidr=False))),
    "cidr": Loader(ValueKind.TEXT, strings, plain(_address(cidr=True))),
    "macaddr": Loader(ValueKind.TEXT, strings, plain(_hardware_address(6))),
    "macaddr8": Loader(ValueKind.TEXT, strings, plain(_hardware_address(8))),
}
