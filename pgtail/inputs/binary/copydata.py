"""PostgreSQL's own framing: type byte, int32 length that includes itself, body (manual: Message Flow).

Also reads what a server sent on a replication connection, extracted from a packet capture.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Final

from pgtail.errors import Malformed
from pgtail.inputs.binary.framed import NOTHING, FrameBounds, Framed
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.frames import COPY_DATA, MOST

_length: Final = Struct(">i").unpack_from
_HEAD: Final = 5
_COPY_DATA: Final = ord("d")

COPY_BOTH: Final = ord("W")
"""CopyBothResponse, which switches a connection to replication."""

_MAX_SKIPPED: Final = {
    **dict.fromkeys(b"123Icns", 4),
    **dict.fromkeys(b"ACEGHKNRSVWZtv", 64 * 1024),
    **dict.fromkeys(b"DT", 16 << 20),
}
"""Other message types of servers with their maximum length: a longer message is damage."""

_PARAMETER_STATUS: Final = ord("S")
_FIRST_PRINTABLE: Final = 0x20

_DATA: Final = re.compile(rb"(?=d[\0-\x3f].{3}w)", re.DOTALL)


class CopyDataFrames(Framed):
    """CopyData messages; other messages of a server are skipped."""

    name = "copydata"
    framing = COPY_DATA
    _start = re.compile(rb"(?=d[\0-\x3f].{3}[wk])", re.DOTALL)

    @classmethod
    def bounds(cls, buf: bytes, pos: int, end: int) -> FrameBounds:
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
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        found = super().sniff(head, decoder, final=final)
        return found if found or not final else cls._hardly_any_data(head, decoder)

    @classmethod
    def _hardly_any_data(cls, head: bytes, decoder: Decoder) -> bool:
        """Whether this is a whole replication connection with few messages, all of them valid."""
        pos = data = 0
        switched = False
        try:
            while pos < len(head):
                switched = switched or head[pos] == COPY_BOTH
                start, pos, _ = cls.bounds(head, pos, len(head))
                data += start != NOTHING
        except Malformed:
            return False
        return switched and pos == len(head) and cls._best_run(head, decoder, 0)[0].messages == data

    @classmethod
    def is_pgoutput(cls, head: bytes, pos: int, decoder: Decoder) -> tuple[bool | None, int]:
        """Whether the first data of a replication stream after `pos` is a pgoutput message; None if none came yet.

        Also returns the position up to which there is no data.
        """
        while True:
            try:
                start, stop, _ = cls.bounds(head, pos, len(head))
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
        """Position of the first data from which several pgoutput messages decode; None if there is none."""
        for match in _DATA.finditer(head):
            if cls._best_run(head, decoder, match.start())[0].credible(final=final):
                return match.start()
        return None

    @classmethod
    def _other(cls, buf: bytes, pos: int, end: int) -> FrameBounds:
        """Bounds of a message to skip."""
        start = pos + _HEAD
        most = _MAX_SKIPPED.get(buf[pos], 0)
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
