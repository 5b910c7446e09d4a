"""Floor 4, a message looked over where it lies: its lengths are followed, its contents are not held.

So a damaged length is found out before a byte is kept for it. The decoder reads with a SkimCursor as with any other.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Protocol, cast

from pgtail.errors import Malformed, Truncated
from pgtail.wire.cursor import MAX_LENGTH, MAX_NAME, Buffer, Cursor, Layout, TracedCursor
from pgtail.wire.decoder import Decoder

_BLOCK: Final = 64 * 1024
_MOST: Final = MAX_LENGTH + _BLOCK
"""The server builds a message in one buffer of at most MaxAllocSize bytes."""


class Lying(Protocol):
    """Bytes that are not held."""

    @property
    def live(self) -> bool:
        """Whether to ask for more than is needed may have to wait for somebody."""

    def reaches(self, distance: int) -> bool:
        """Whether there are so many bytes."""

    def ahead(self, distance: int, size: int) -> bytes:
        """`size` of them from `distance` on, fewer only at the end."""


class Ahead:
    """Bytes that are not held, as if they were a buffer; holds one block of them."""

    def __init__(self, source: Lying) -> None:
        self._source = source
        self._at = 0
        self._block = b""

    def reaches(self, end: int) -> bool:
        """Whether there are so many bytes."""
        return end <= self._at + len(self._block) or self._source.reaches(end)

    def __getitem__(self, key: int | slice) -> int | bytes:
        if isinstance(key, slice):
            return self._bytes(key.start, key.stop)
        return self._bytes(key, key + 1)[0]

    def find(self, what: bytes, start: int, end: int) -> int:
        """As bytes.find, for a single byte."""
        while start < end:
            block = self._bytes(start, min(start + _BLOCK, end))
            found = block.find(what)
            if found >= 0:
                return start + found
            if not block:
                break
            start += len(block)
        return -1

    def _bytes(self, start: int, end: int) -> bytes:
        if not (self._at <= start and end <= self._at + len(self._block)):
            self._at = start
            # A pipe may have no more than what is asked for: never wait for a whole block.
            size = end - start if self._source.live else max(end - start, _BLOCK)
            self._block = self._source.ahead(start, size)
        return self._block[start - self._at : end - self._at]


class SkimCursor(Cursor):
    """A Cursor over an Ahead: contents are passed over, strings and cells come out empty."""

    __slots__ = ("_ahead",)

    traced = True  # the decoder reads field by field: an Ahead is nothing to unpack several from

    def __init__(self) -> None:
        super().__init__()

    def start(self, buf: Buffer, pos: int, end: int) -> None:
        super().start(buf, pos, end)
        self._ahead = cast(Ahead, buf)

    def take(self, size: int, field: str, type_: str) -> int:
        start, end = self.pos, self.pos + size
        if end > _MOST:
            raise Malformed("a message of more than 1 GB", offset=start, field=field)
        if end > self.end or not self._ahead.reaches(end):
            raise Truncated(f"of {size} byte{'s'[: size != 1]} some are missing", offset=start, field=field)
        self.pos = end
        return start

    def u16(self, field: str, type_: str = "Int16") -> int:
        return self._integer(2, field, type_)

    def u32(self, field: str, type_: str = "Int32") -> int:
        return self._integer(4, field, type_)

    def i32(self, field: str, type_: str = "Int32") -> int:
        return self._integer(4, field, type_, signed=True)

    def lsn(self, field: str) -> int:
        return self._integer(8, field, "Int64 (XLogRecPtr)")

    def time(self, field: str) -> int:
        return self._integer(8, field, "Int64 (TimestampTz)", signed=True)

    def fixed(self, layout: Layout) -> tuple[Any, ...]:
        values: list[Any] = []
        for field, type_, code in layout.fields:
            start = self.take(struct.calcsize(">" + code), field, type_)
            values += struct.unpack(">" + code, self.buf[start : self.pos])
        return tuple(values)

    def string(self, field: str, limit: int = MAX_NAME) -> str:
        start = self.pos
        nul = self.buf.find(b"\0", start, min(self.end, start + limit + 1))
        if nul < 0:
            if self._ahead.reaches(min(self.end, start + limit + 1)):
                raise Malformed("no end of the string is in sight", offset=start, field=field)
            raise Truncated("the string is not terminated", offset=start, field=field)
        self.take(nul + 1 - start, field, "String")
        return ""

    def content(self, size: int, field: str, type_: str = "Byten") -> bytes:
        self.take(size, field, type_)
        return b""

    def tuple_data(self, field: str) -> Any:
        return self._careful_tuple_data(field)

    def _integer(self, size: int, field: str, type_: str, *, signed: bool = False) -> int:
        start = self.take(size, field, type_)
        return int.from_bytes(self.buf[start : start + size], signed=signed)


def skimmer(decoder: Decoder) -> Decoder:
    """A decoder in the same state that looks messages over."""
    skim = Decoder(assume=decoder.assume, cursor=SkimCursor())
    skim.separator, skim.in_stream = decoder.separator, decoder.in_stream
    return skim


def ahead(source: Lying) -> Buffer:
    """Bytes that are not held, for a skimming decoder."""
    return cast(Buffer, Ahead(source))


def let_go(cursor: Cursor) -> None:
    """Keep no large message longer than it takes to decode it; only who looks at the bytes themselves needs it."""
    if not isinstance(cursor, TracedCursor):
        cursor.start(b"", 0, 0)
