"""Floor 4, PostgreSQL's own framing: a type byte, an int32 length that counts itself, the body (manual: message flow).

A server's side of a replication connection, cut out of a packet capture, reads the same way.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Final

from pgtail.errors import Malformed
from pgtail.inputs.framed import MOST, NOTHING, Framed, Place

_length: Final = Struct(">i").unpack_from
_HEAD: Final = 5
_COPY_DATA: Final = ord("d")

_MOST_PASSED_OVER: Final = {
    **dict.fromkeys(b"123Icns", 4),
    **dict.fromkeys(b"ACEGHKNRSVWZtv", 64 * 1024),
    **dict.fromkeys(b"DT", 16 << 20),
}
"""The other types a server sends, and how long we believe them to be: what is longer is damage."""

_PARAMETER_STATUS: Final = ord("S")


class CopyDataFrames(Framed):
    """CopyData messages; all others that a server sends are passed over by their length."""

    name = "copydata"
    _start = re.compile(rb"(?=d[\0-\x3f].{3}[wk])", re.DOTALL)

    @classmethod
    def _place(cls, buf: bytes, pos: int, end: int) -> Place:
        tag = buf[pos]
        most = MOST if tag == _COPY_DATA else _MOST_PASSED_OVER.get(tag, 0)
        if not most:
            raise Malformed(f"no server's message starts with byte 0x{tag:02x}", offset=pos, field="type")
        if pos + _HEAD > end:
            return NOTHING, pos + _HEAD, None
        (size,) = _length(buf, pos + 1)
        stop = pos + 1 + size
        if not _HEAD - (tag != _COPY_DATA) <= size <= most:
            raise Malformed(f"a message of {size} bytes", offset=pos + 1, field="length")
        if tag == _COPY_DATA:
            return pos + _HEAD, stop, None
        if tag == _PARAMETER_STATUS and buf[pos + _HEAD : pos + _HEAD + 1] < b" ":
            raise Malformed("a parameter without a name", offset=pos + _HEAD, field="parameter")
        return NOTHING, stop, None
