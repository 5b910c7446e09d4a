"""Reads messages from lines of text, according to a layout; a long value in pieces into a temporary file."""

from __future__ import annotations

import bisect
import re
from array import array
from typing import Final

from pgtail.errors import DecodeError, InputError, Malformed, Truncated
from pgtail.files.spool import SpoolFile
from pgtail.inputs.source.lookahead import lookahead, release_buffer, skim_decoder
from pgtail.inputs.text.bytea import BadText, Codec, Escape, Hex
from pgtail.inputs.text.layout import LSN, WRAP_MARKS, RowLayout, unmarked
from pgtail.inputs.text.psql_decoration import PsqlDecoration
from pgtail.inputs.text.refused import BROKEN_ROWS, ONE_LINE
from pgtail.pgoutput.decoder import AnyMessage, Decoded, Decoder, Unknown

_IN_MEMORY: Final = 8 << 20
FIRST_CHECK: Final = 1 << 20
_NO_END: Final = 1 << 62


class LongValue:
    """Decodes the text of one value in pieces, and checks the message before it is read into memory.

    Errors have source offsets.
    """

    live = False
    """For Peekable: reading never blocks."""

    def __init__(self, codec: Codec, decoder: Decoder, lsn: int | None, offset: int) -> None:
        self.lsn = lsn
        self.offset = offset
        """Source offset of the value."""
        self._codec = codec
        self._decoder = decoder
        self._spool = SpoolFile("keep a long value", memory=_IN_MEMORY, error=InputError)
        self._rest = b""
        self._rest_at = offset
        self._starts = array("Q")
        self._offsets = array("Q")
        self._check_at = FIRST_CHECK

    def close(self) -> None:
        """Close the temporary file."""
        self._spool.close()

    def feed(self, text: bytes, offset: int) -> None:
        """Add text from this source offset. Raises Malformed if it cannot be part of a message."""
        if self._rest and offset == self._rest_at + len(self._rest):
            text, offset = self._rest + text, self._rest_at
        elif self._rest:
            self._decode(self._rest, self._rest_at)
        safe = self._codec.safe(text)
        self._rest, self._rest_at = text[safe:], offset + safe
        self._decode(text[:safe], offset)
        if self._spool.size >= self._check_at:
            self._check_at = 2 * self._spool.size
            self._check_start()

    def finish(self) -> bytes:
        """The whole value. Raises Malformed or Truncated if its lengths are not those of a message."""
        self._decode(self._rest, self._rest_at)
        self._rest = b""
        if self._spool.size >= FIRST_CHECK:
            skim = skim_decoder(self._decoder)
            try:
                skim.message(lookahead(self), 0, self._spool.size)
            except DecodeError as error:
                raise self.located(error) from None
        return self._spool.read(0, self._spool.size)

    def located(self, error: DecodeError) -> DecodeError:
        """An error in the value, with its source offset."""
        return error.located(None, self._source_offset(error.offset))

    def reaches(self, distance: int) -> bool:
        """Whether this many bytes were decoded (for Peekable)."""
        return distance <= self._spool.size

    def peek(self, distance: int, size: int) -> bytes:
        """A part of the decoded bytes (for Peekable)."""
        return self._spool.read(distance, size)

    def _decode(self, text: bytes, offset: int) -> None:
        if not text:
            return
        try:
            data = self._codec.decode(text)
        except BadText as bad:
            raise Malformed(bad.reason, offset=offset + bad.index) from None
        self._starts.append(self._spool.write(data))
        self._offsets.append(offset)

    def _check_start(self) -> None:
        """Raise Malformed if the bytes so far cannot begin a message."""
        skim = skim_decoder(self._decoder)
        skim.separator = b""
        try:
            skim.next_message(lookahead(self), 0, _NO_END, final=False)
        except Truncated:
            return
        except Malformed as error:
            raise self.located(error) from None
        if skim.cursor.pos < self._spool.size:
            raise Malformed("the value is longer than its message", offset=self._source_offset(skim.cursor.pos))

    def _source_offset(self, position: int) -> int:
        piece = bisect.bisect_right(self._starts, position) - 1
        if piece < 0:
            return self.offset
        start = self._starts[piece]
        return self._offsets[piece] + self._codec.width(self.peek(start, position - start))


_AROUND: Final = b' |"\xe2\x94\x82'
"""What surrounds a line that continues a value: blanks, borders (also in Unicode), quotes."""

_WRAPPED: Final = re.compile(rb"(?:[ |:]|\xe2\x94\x82)*+(?:[.;]|\xe2\x80\xa6)| {4}(?! *+(?:[0-9A-Fa-f/]++ |\Z))")
"""A line into which psql wrapped the row before it; the blanks are those of its format without borders."""


class RowReader:
    """Reads lines one after another; a base64 value may span several."""

    def __init__(self, layout: RowLayout, decoder: Decoder, noise: PsqlDecoration) -> None:
        self.layout = layout
        self.again = False
        """Whether to pass the last line again: it only ended the row before it."""
        self._decoder = decoder
        self._decoration = noise
        self._lsn: int | None = None
        self._cell: LongValue | None = None
        self._unsure: Decoded | None = None
        """A message of which the next line shows whether it is whole."""

    def line(self, buf: bytes, pos: int, stop: int, base: int) -> Decoded | None:
        """The message that ends with the line `buf[pos:stop]`, or None. `buf` starts at source offset `base`.

        Raises DecodeError with a source offset.
        """
        match = self.layout.row.fullmatch(buf, pos, stop)
        self.again = False
        if self._unsure is not None:
            if _WRAPPED.match(buf, pos, stop):
                raise Malformed(BROKEN_ROWS, offset=base + pos)
            self.again = True
            return self.settle()
        if self._cell is not None:
            return self._go_on(match, buf, pos, stop, base)
        if match is None:
            self._other_line(buf, pos, stop, base)
            return None
        if match.start("data") < 0:
            self._lsn = self._position(match, base)
            return None
        return self._row_line(match, buf, pos, stop, base)

    def _other_line(self, buf: bytes, pos: int, stop: int, base: int) -> None:
        """Read a line that is not a row. Raises Malformed if it is not decoration."""
        if buf[pos:stop].strip(_AROUND):
            self._lsn = None
        if not self._decoration.matches(buf[pos:stop]):
            raise Malformed(f"this line is not a row like the others{ONE_LINE}", offset=base + pos)

    def _row_line(self, match: re.Match[bytes], buf: bytes, pos: int, stop: int, base: int) -> Decoded | None:
        """The message of a row; None if the next line shows whether it is whole."""
        start, end = match.span("data")
        text = self.layout.bare(buf[start:end])
        try:
            if self.layout.codec.wrapped:
                text, goes_on = unmarked(text)
                if goes_on:
                    self.begin(self._position(match, base), base + start).feed(text, base + start)
                    return None
            message = self._message(text, base + start)
        except DecodeError as error:
            if self._decoration.matches(buf[pos:stop]):
                self.forget()
                return None
            error.reason += ONE_LINE
            raise
        # Decoration may happen to be valid text of the codec, but does not begin like a message.
        if isinstance(message, Unknown) and self._decoration.matches(buf[pos:stop]):
            return None
        if isinstance(message, Unknown) and text.startswith(b'"'):
            raise Malformed("this value is in quotes: --input-format csv reads it", offset=base + start)
        if self._decoration.fresh:
            self._decoration.row()
        decoded = message, self._position(match, base), base + start, None
        # The last byte may be psql's mark that the cell continues, or the blank in its place.
        if isinstance(self.layout.codec, Escape) and not self.layout.quoted and text.endswith((*WRAP_MARKS, b" ")):
            self._unsure = decoded
            return None
        return decoded

    def begin(self, lsn: int | None, offset: int) -> LongValue:
        """Begin a value that comes in pieces, at this source offset."""
        self._cell = LongValue(self.layout.codec, self._decoder, lsn, offset)
        return self._cell

    def finish(self) -> Decoded | None:
        """The message that waits for the next line or came in pieces, if there is one."""
        if self._unsure is not None:
            return self.settle()
        cell, self._cell = self._cell, None
        if cell is None:
            return None
        try:
            data = cell.finish()
            try:
                message = self._decoder.message(data, 0, len(data))
            except DecodeError as error:
                raise cell.located(error) from None
        finally:
            cell.close()
        release_buffer(self._decoder.cursor)
        if self._decoration.fresh:
            self._decoration.row()
        return message, cell.lsn, cell.offset, None

    def settle(self) -> Decoded | None:
        """The message that waits for the next line, if there is one: it is complete."""
        unsure, self._unsure = self._unsure, None
        return unsure

    def forget(self) -> None:
        """Drop an incomplete row."""
        if self._cell is not None:
            self._cell.close()
        self._cell = self._lsn = self._unsure = None

    def long_row(self, match: re.Match[bytes], base: int) -> LongValue:
        """Begin a row with a long value. `match` is that of RowLayout.start."""
        return self.begin(self._position(match, base), base + match.end())

    def _go_on(self, match: re.Match[bytes] | None, buf: bytes, pos: int, stop: int, base: int) -> Decoded | None:
        """Read another line of a value that spans several."""
        assert self._cell is not None
        if match is not None and any(value or (name == "data" and value is None) for name, value in _beside(match)):
            self.again = True
            return self.finish()
        start, end = match.span("data") if match is not None else (pos, stop)
        text = buf[start:end].lstrip(_AROUND)
        start = end - len(text)
        text, goes_on = unmarked(text.rstrip(_AROUND))
        self._cell.feed(text, base + start)
        return None if goes_on else self.finish()

    def _message(self, text: bytes, at: int) -> AnyMessage:
        """The message of a cell at source offset `at`. Raises DecodeError with the source offset of the damage."""
        codec = self.layout.codec
        blanks = 0
        if self.layout.padded:
            bare = text.rstrip(b" ")
            blanks, text = len(text) - len(bare), bare
        try:
            data = codec.decode(text)
        except BadText as bad:
            raise self._bad(text, bad, at) from None
        while True:
            try:
                return self._decoder.message(data, 0, len(data))
            except Truncated as error:
                # In the escape format some of the padding may belong to the value.
                if codec.name != "escape" or error.missing > blanks:
                    raise error.located(None, at + self._width(text, data, error.offset)) from None
                data += b" " * error.missing
                blanks -= error.missing
            except DecodeError as error:
                raise error.located(None, at + self._width(text, data, error.offset)) from None

    def _width(self, text: bytes, data: bytes, size: int) -> int:
        """Characters of the first bytes of a cell."""
        width = self.layout.codec.width(data[:size])
        return (
            width * len(text) // (2 * len(data))
            if data and b" " in text and isinstance(self.layout.codec, Hex)
            else width
        )

    def _bad(self, text: bytes, bad: BadText, at: int) -> Malformed:
        """The error for a wrong character, with the message and the field that contain it."""
        error = Malformed(bad.reason, offset=at + bad.index)
        codec, good = self.layout.codec, text[: bad.index]
        try:
            data = codec.decode(good[: codec.safe(good)])
            Decoder().message(data, 0, len(data))
        except DecodeError as cut:
            error.message, error.field = cut.message, cut.field
        except BadText:
            pass
        return error

    def _position(self, match: re.Match[bytes], base: int) -> int | None:
        """The LSN of a row. Raises Malformed if its text is not one."""
        if "lsn" not in match.re.groupindex:
            return None
        text = match["lsn"]
        if text is None:
            lsn, self._lsn = self._lsn, None
            return lsn
        text = text.rstrip(b" ")
        if LSN.fullmatch(text) is None:
            shown = text[:40].decode("ascii", "backslashreplace")
            raise Malformed(f"{shown!r} is not an LSN", offset=base + match.start("lsn"), field="lsn")
        high, _, low = text.partition(b"/")
        return (int(high, 16) << 32 | int(low, 16)) or None


def _beside(match: re.Match[bytes]) -> list[tuple[str, bytes | None]]:
    """The cells of a row except the data; the data as well if it is not in this line."""
    cells = match.groupdict().items()
    return [(name, value and value.strip()) for name, value in cells if name != "data" or value is None]
