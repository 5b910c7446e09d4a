"""Checks a large message before it is read into memory: follows its lengths, skips its contents.

This finds a damaged length before memory is allocated for it. The decoder reads with a SkimCursor as with any other.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, cast

from pgtail.errors import Malformed, Truncated
from pgtail.humanize import plural
from pgtail.pgoutput.cursor import MAX_LENGTH, MAX_NAME, Buffer, Cursor, Layout, TracedCursor
from pgtail.pgoutput.decoder import Decoder

_BLOCK: Final = 64 * 1024
_MAX: Final = MAX_LENGTH + _BLOCK
"""The server builds a message in one buffer of at most MaxAllocSize bytes."""


class Peekable(Protocol):
    """Bytes that can be read at any distance without loading them all."""

    @property
    def live(self) -> bool:
        """Whether asking for more than needed may block."""

    def reaches(self, distance: int) -> bool:
        """Whether the bytes reach this far."""

    def peek(self, distance: int, size: int) -> bytes:
        """`size` of them from `distance` on, fewer only at the end."""


class LookaheadBuffer:
    """A buffer interface to a Peekable; keeps one block in memory."""

    def __init__(self, source: Peekable) -> None:
        self._source = source
        self._at = 0
        self._block = b""

    def reaches(self, end: int) -> bool:
        """Whether the bytes reach this far."""
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
            # Never wait for a whole block: a pipe may not have more than is needed.
            size = end - start if self._source.live else max(end - start, _BLOCK)
            self._block = self._source.peek(start, size)
        return self._block[start - self._at : end - self._at]


class SkimCursor(Cursor):
    """A Cursor over a LookaheadBuffer. It skips contents: strings and cells are empty."""

    __slots__ = ("_buffer",)

    unpacks = False

    def start(self, buf: Buffer, pos: int, end: int) -> None:
        super().start(buf, pos, end)
        self._buffer = cast(LookaheadBuffer, buf)

    def take_bytes(self, size: int, field: str, type_: str) -> int:
        start, end = self.pos, self.pos + size
        if end > _MAX:
            raise Malformed("a message of more than 1 GB", offset=start, field=field)
        if end > self.end or not self._buffer.reaches(end):
            raise Truncated(f"of {size} {plural(size, 'byte')} some are missing", offset=start, field=field)
        self.pos = end
        return start

    def fixed(self, layout: Layout) -> tuple[Any, ...]:
        return self._checked_fixed(layout)

    def string(self, field: str, limit: int = MAX_NAME) -> str:
        start = self.pos
        nul = self.buf.find(b"\0", start, min(self.end, start + limit + 1))
        if nul < 0:
            if self._buffer.reaches(min(self.end, start + limit + 1)):
                raise Malformed("the string is not terminated within its limit", offset=start, field=field)
            raise Truncated("the string is not terminated", offset=start, field=field)
        self.take_bytes(nul + 1 - start, field, "String")
        return ""

    def content(self, size: int, field: str, type_: str = "Byten") -> bytes:
        self.take_bytes(size, field, type_)
        return b""

    def tuple_data(self, field: str) -> Any:
        return self._checked_tuple_data(field)


def skim_decoder(decoder: Decoder) -> Decoder:
    """A decoder in the same state with a SkimCursor."""
    skim = Decoder(cursor=SkimCursor())
    skim.separator, skim.in_stream = decoder.separator, decoder.in_stream
    return skim


def lookahead(source: Peekable) -> Buffer:
    """A buffer for the decoder of skim_decoder()."""
    return cast(Buffer, LookaheadBuffer(source))


def release_buffer(cursor: Cursor) -> None:
    """Release a large message after decoding. A TracedCursor keeps it for `inspect`."""
    if not isinstance(cursor, TracedCursor):
        cursor.start(b"", 0, 0)
