"""Floor 4, PostgreSQL's own framing: a type byte, an int32 length that counts itself, the body (manual: message flow).

A server's side of a replication connection, cut out of a packet capture, reads the same way.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Final

from pgtail.errors import Malformed
from pgtail.inputs.framed import MOST, NOTHING, Framed, Place
from pgtail.wire.decoder import COPY_DATA, Decoder

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
_FIRST_PRINTABLE: Final = 0x20

_DATA: Final = re.compile(rb"(?=d[\0-\x3f].{3}w)", re.DOTALL)


class CopyDataFrames(Framed):
    """CopyData messages; all others that a server sends are passed over by their length."""

    name = "copydata"
    framing = COPY_DATA
    _start = re.compile(rb"(?=d[\0-\x3f].{3}[wk])", re.DOTALL)

    @classmethod
    def _place(cls, buf: bytes, pos: int, end: int) -> Place:
        start = pos + _HEAD
        if buf[pos] != _COPY_DATA:
            return cls._other(buf, pos, end)
        if start > end:
            return NOTHING, start, None
        (size,) = _length(buf, pos + 1)
        if not _HEAD <= size <= MOST:
            raise Malformed(f"a message of {size} bytes", offset=pos + 1, field="length")
        return start, pos + 1 + size, None

    @classmethod
    def place(cls, buf: bytes, pos: int, end: int) -> Place:
        """The message that starts at `pos`, as _place()."""
        return cls._place(buf, pos, end)

    @classmethod
    def is_pgoutput(cls, head: bytes, pos: int, decoder: Decoder) -> tuple[bool | None, int]:
        """Whether the first data of a replication stream, looked for from `pos` on, is a message of pgoutput.

        None: it is not there yet. Also returns how far there is no data.
        """
        while True:
            try:
                start, stop, _ = cls._place(head, pos, len(head))
            except (IndexError, Malformed):
                return (None if pos == len(head) else False), pos
            if stop > len(head):
                return None, pos
            if start != NOTHING and head[start : start + 1] != b"k":
                found, _ = cls._best_run(head[pos:stop], decoder, 0)
                return found.messages == 1, pos
            pos = stop

    @classmethod
    def first_data(cls, head: bytes, decoder: Decoder, *, final: bool) -> int | None:
        """Where the first data of pgoutput stands from which several messages decode; None where there is none."""
        for match in _DATA.finditer(head):
            if cls._best_run(head, decoder, match.start())[0].credible(final=final):
                return match.start()
        return None

    @classmethod
    def _other(cls, buf: bytes, pos: int, end: int) -> Place:
        """A message that is passed over."""
        start = pos + _HEAD
        most = _MOST_PASSED_OVER.get(buf[pos], 0)
        if not most:
            raise Malformed(f"no server's message starts with byte 0x{buf[pos]:02x}", offset=pos, field="type")
        if start > end:
            return NOTHING, start, None
        (size,) = _length(buf, pos + 1)
        if not _HEAD - 1 <= size <= most:
            raise Malformed(f"a message of {size} bytes", offset=pos + 1, field="length")
        if buf[pos] == _PARAMETER_STATUS and start < end and buf[start] < _FIRST_PRINTABLE:
            raise Malformed("a parameter without a name", offset=start, field="parameter")
        return NOTHING, pos + 1 + size, None
