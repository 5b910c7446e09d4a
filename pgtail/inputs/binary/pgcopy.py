"""COPY BINARY of the SQL functions' result: data is the last column (manual: COPY, Binary Format)."""

from __future__ import annotations

import re
from struct import Struct
from typing import Final

from pgtail.errors import Malformed, Truncated
from pgtail.inputs.binary.framed import NOTHING, Decode, FrameBounds, Framed
from pgtail.inputs.source.window import Window
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import AnyFrame, Decoder
from pgtail.pgoutput.frames import MOST

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_flags_and_extension: Final = Struct(">Ii").unpack_from
_HEADER: Final = len(_SIGNATURE) + 8
_KNOWN_FLAGS: Final = 0xFFFF
"""Bits 16 to 31 are critical: a reader must reject those that it does not know."""

_count: Final = Struct(">h").unpack_from
_length: Final = Struct(">i").unpack_from
_lsn: Final = Struct(">Q").unpack_from
_END_OF_ROWS: Final = -1
_MAX_COLUMNS: Final = 32
_LSN_SIZE: Final = 8
_MAX_OTHER: Final = 64 * 1024
"""Maximum size of other columns: LSNs, transaction ids, perhaps names."""


class PgCopy(Framed):
    """Rows of COPY BINARY; a column of 8 bytes before the data is the LSN."""

    name = "pgcopy"
    _start = re.compile(rb"(?=\0[\1-\x20][\0-\x3f])", re.DOTALL)

    def __init__(self, window: Window, decoder: Decoder) -> None:
        super().__init__(window, decoder)
        self._open = False

    @classmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        if len(head) >= len(_SIGNATURE):
            return head.startswith(_SIGNATURE)
        return None if _SIGNATURE.startswith(head) else False

    @classmethod
    def _decode(cls, decoder: Decoder) -> Decode:
        message = decoder.message

        def decode(buf: Buffer, start: int, stop: int) -> tuple[AnyFrame, int | None, int | None]:
            return message(buf, start, stop), None, None

        return decode

    def _passed(self, buf: bytes, pos: int) -> None:
        self._open = buf[pos] == _SIGNATURE[0]

    def _check_end(self) -> None:
        super()._check_end()
        if self._open:
            raise Truncated(
                "the end marker of the COPY is missing: rows may be missing, too",
                offset=self.position,
                source=self.source.name,
            )

    @classmethod
    def bounds(cls, buf: bytes, pos: int, end: int) -> FrameBounds:
        if pos + 2 > end:
            return NOTHING, pos + 2, None
        if buf[pos] == _SIGNATURE[0]:
            return cls._header(buf, pos, end)
        (count,) = _count(buf, pos)
        if count == _END_OF_ROWS:
            return NOTHING, pos + 2, None
        if not 0 < count <= _MAX_COLUMNS:
            raise Malformed(f"a row of {count} columns", offset=pos, field="number of columns")
        return cls._row(buf, pos + 2, end, count)

    @classmethod
    def _header(cls, buf: bytes, pos: int, end: int) -> FrameBounds:
        if pos + _HEADER > end:
            return NOTHING, pos + _HEADER, None
        if not buf.startswith(_SIGNATURE, pos):
            raise Malformed("the signature is damaged", offset=pos, field="signature")
        flags, extension = _flags_and_extension(buf, pos + len(_SIGNATURE))
        if flags & ~_KNOWN_FLAGS:
            raise Malformed(f"unknown flags 0x{flags:08x}", offset=pos + len(_SIGNATURE), field="flags")
        if not 0 <= extension <= _MAX_OTHER:
            raise Malformed(f"an extension of {extension} bytes", offset=pos + _HEADER - 4, field="extension length")
        return NOTHING, pos + _HEADER + extension, None

    @classmethod
    def _row(cls, buf: bytes, pos: int, end: int, count: int) -> FrameBounds:
        lsn = None
        while True:
            count -= 1
            start = pos + 4
            if start > end:
                return NOTHING, start, None
            (size,) = _length(buf, pos)
            pos = start + max(size, 0)
            if not count:
                if not 0 < size <= MOST:
                    raise Malformed(f"data of {size} bytes", offset=start - 4, field="length of the last column")
                return start, pos, lsn
            if not -1 <= size <= _MAX_OTHER:
                raise Malformed(f"a value of {size} bytes", offset=start - 4, field="length")
            if pos > end:
                return NOTHING, pos, None
            if size == _LSN_SIZE and lsn is None:
                lsn = _lsn(buf, start)[0] or None
