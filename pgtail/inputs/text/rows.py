"""Reads messages from lines of text, according to a layout."""

from __future__ import annotations

import bisect
import re
from typing import Final

from pgtail.errors import DecodeError, Malformed, Truncated
from pgtail.inputs.text.bytea import BadText, Codec, Escape, Hex
from pgtail.inputs.text.layout import LSN, WRAP_MARKS, RowLayout, unmarked
from pgtail.inputs.text.psql_decoration import PsqlDecoration
from pgtail.inputs.text.refused import BROKEN_ROWS, ONE_LINE
from pgtail.pgoutput.decoder import AnyMessage, Decoded, Decoder, Unknown


class WrappedValue:
    """A base64 value in several lines, each of which is whole groups of digits. Errors have source offsets."""

    def __init__(self, codec: Codec, lsn: int | None, offset: int) -> None:
        self.lsn = lsn
        self.offset = offset
        """Source offset of the value."""
        self._codec = codec
        self._data = bytearray()
        self._starts: list[int] = []
        self._offsets: list[int] = []

    def add(self, text: bytes, offset: int) -> None:
        """Add a line from this source offset. Raises Malformed."""
        try:
            data = self._codec.decode(text)
        except BadText as bad:
            raise Malformed(bad.reason, offset=offset + bad.index) from None
        self._starts.append(len(self._data))
        self._offsets.append(offset)
        self._data += data

    def message(self, decoder: Decoder) -> AnyMessage:
        """The message that all lines are. Raises DecodeError."""
        try:
            return decoder.message(bytes(self._data), 0, len(self._data))
        except DecodeError as error:
            raise error.located(None, self._source_offset(error.offset)) from None

    def _source_offset(self, position: int) -> int:
        line = bisect.bisect_right(self._starts, position) - 1
        return self._offsets[line] + self._codec.width(bytes(self._data[self._starts[line] : position]))


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
        self._wrapped: WrappedValue | None = None
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
        if self._wrapped is not None:
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
                    self._wrapped = WrappedValue(self.layout.codec, self._position(match, base), base + start)
                    self._wrapped.add(text, base + start)
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

    def finish(self) -> Decoded | None:
        """The message that waits for the next line or spans several, if there is one."""
        if self._unsure is not None:
            return self.settle()
        wrapped, self._wrapped = self._wrapped, None
        if wrapped is None:
            return None
        message = wrapped.message(self._decoder)
        if self._decoration.fresh:
            self._decoration.row()
        return message, wrapped.lsn, wrapped.offset, None

    def settle(self) -> Decoded | None:
        """The message that waits for the next line, if there is one: it is complete."""
        unsure, self._unsure = self._unsure, None
        return unsure

    def forget(self) -> None:
        """Drop an incomplete row."""
        self._wrapped = self._lsn = self._unsure = None

    def _go_on(self, match: re.Match[bytes] | None, buf: bytes, pos: int, stop: int, base: int) -> Decoded | None:
        """Read another line of a value that spans several."""
        assert self._wrapped is not None
        if match is not None and any(value or (name == "data" and value is None) for name, value in _beside(match)):
            self.again = True
            return self.finish()
        start, end = match.span("data") if match is not None else (pos, stop)
        text = buf[start:end].lstrip(_AROUND)
        start = end - len(text)
        text, goes_on = unmarked(text.rstrip(_AROUND))
        self._wrapped.add(text, base + start)
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
        data = self.layout.codec.decode_beginning(text[: bad.index])
        try:
            Decoder().message(data, 0, len(data))
        except DecodeError as cut:
            error.message, error.field = cut.message, cut.field
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
