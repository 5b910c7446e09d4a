"""Reads messages from lines of text, according to a layout."""

from __future__ import annotations

import re
from typing import Final

from pgtail.errors import DecodeError, Malformed, Truncated
from pgtail.inputs.binary.detect import MESSAGE_START
from pgtail.inputs.source.lookahead import release_buffer
from pgtail.inputs.text.bytea import BadText, Escape, Hex
from pgtail.inputs.text.continued import CONTINUATION, WRAP_MARKS, ContinuedRow, ends_in_prefix
from pgtail.inputs.text.layout import LSN, RowLayout, unmarked
from pgtail.inputs.text.long_value import LongValue
from pgtail.inputs.text.psql_decoration import PsqlDecoration, begins_record
from pgtail.pgoutput.decoder import AnyMessage, Decoded, Decoder, Unknown

_AROUND: Final = b' |"\xe2\x94\x82'
"""What surrounds a line that continues a value: blanks, borders (also in Unicode), quotes."""

_FILL: Final = (b" ", b"|", "│".encode())
"""What may follow a value in the lines into which a terminal broke its row."""

_HEX: Final = re.compile(rb"[0-9A-Fa-f][0-9A-Fa-f ]*+(?:(?:\||\xe2\x94\x82)?+)\Z")

_START_SIZE: Final = 16
"""More bytes than MESSAGE_START needs."""


class RowReader:
    """Reads lines one after another; a row may span several."""

    def __init__(self, layout: RowLayout, decoder: Decoder, noise: PsqlDecoration) -> None:
        self.layout = layout
        self.again = False
        """Whether to pass the last line again: it only ended the row before it."""
        self.behind = 0
        """Bytes from the row that the last line ended to this line; 0 if it ended none."""
        self.continues = False
        """Whether there was a row that went on in other lines."""
        self._decoder = decoder
        self._decoration = noise
        self._lsn: int | None = None
        self._cell: LongValue | None = None
        self._row: ContinuedRow | None = None
        self._row_lsn: int | None = None

    def line(self, buf: bytes, pos: int, stop: int, base: int) -> Decoded | None:
        """The message that ends with the line `buf[pos:stop]`, or None. `buf` starts at source offset `base`.

        Raises DecodeError with a source offset.
        """
        match = self.layout.row.fullmatch(buf, pos, stop)
        self.again, self.behind = False, 0
        if self._row is not None:
            return self._go_on_with_row(match, buf[pos:stop], base + pos)
        if self._cell is not None:
            return self._go_on(match, buf, pos, stop, base)
        if CONTINUATION.match(buf, pos, stop):
            raise Malformed("this line goes on with a row whose first line is missing", offset=base + pos)
        if match is None:
            self._other_line(buf, pos, stop, base)
            return None
        if match.start("data") < 0:
            self._lsn = self._position(match, base)
            return None
        return self._row_line(match, buf, pos, stop, base)

    def _other_line(self, buf: bytes, pos: int, stop: int, base: int) -> None:
        """Read a line that is not a whole row. Raises Malformed if it is not decoration or the beginning of one."""
        if buf[pos:stop].strip(_AROUND):  # not only the border of a broken line
            self._lsn = None
        if self._begins_row(self.layout.start.match(buf, pos, stop), buf[pos:stop], base + pos):
            return
        if not self._decoration.matches(buf[pos:stop]):
            raise Malformed("this line is not a row like the others", offset=base + pos)

    def _row_line(self, match: re.Match[bytes], buf: bytes, pos: int, stop: int, base: int) -> Decoded | None:
        """The message of a row; None if it may go on in the next line."""
        start, end = match.span("data")
        text = self.layout.bare(buf[start:end])
        if self._may_wrap(match, text) and self._begins_row(match, buf[pos:stop], base + pos, whole=True):
            return None
        try:
            if self.layout.codec.wrapped:
                text, goes_on = unmarked(text)
                if goes_on:
                    self.begin(self._position(match, base), base + start).feed(text, base + start)
                    return None
            message = self._message(text, base + start)
        except DecodeError:
            if self._decoration.matches(buf[pos:stop]):
                self.forget()
                return None
            if self._begins_row(match, buf[pos:stop], base + pos):
                return None
            raise
        # Decoration may happen to be valid text of the codec, but does not begin like a message.
        if isinstance(message, Unknown) and self._decoration.matches(buf[pos:stop]):
            return None
        if isinstance(message, Unknown) and text.startswith(b'"'):
            raise Malformed("this value is in quotes: --input-format csv reads it", offset=base + start)
        if self._decoration.fresh:
            self._decoration.row()
        return message, self._position(match, base), base + start, None

    def begin(self, lsn: int | None, offset: int) -> LongValue:
        """Begin a value that comes in pieces, at this source offset."""
        self._cell = LongValue(self.layout.codec, self._decoder, lsn, offset)
        return self._cell

    def finish(self) -> Decoded | None:
        """The message of a value that came in pieces, if there is one."""
        if self._row is not None:
            return self._end_row()
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

    def forget(self) -> None:
        """Drop an incomplete row."""
        if self._cell is not None:
            self._cell.close()
        self._cell = self._lsn = self._row = None

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

    def _may_wrap(self, match: re.Match[bytes], text: bytes) -> bool:
        """Whether a row may go on although it looks complete.

        What ends a text in the escape format may belong to it, or be the mark or the margin of psql's wrapped format.
        """
        lsn = match["lsn"] if "lsn" in match.re.groupindex else None
        escape = self.layout.codec.name == Escape.name and not self.layout.quoted
        return (escape and text.endswith((*WRAP_MARKS, b" "))) or (lsn or b"").rstrip(b" ").endswith(WRAP_MARKS)

    def _begins_row(self, match: re.Match[bytes] | None, line: bytes, offset: int, *, whole: bool = False) -> bool:
        """Keep a row that may go on in the next lines, although it is `whole`. Returns whether it may."""
        if match is None or self.layout.codec.wrapped:
            return False
        names, start = match.re.groupindex, match.start()
        data = match.start("data") if "data" in names else match.end()
        lsn = match.span("lsn") if "lsn" in names else (-1, -1)
        in_line = (lsn[0] - start, lsn[1] - start) if lsn[0] >= 0 else None
        row = ContinuedRow(line, offset, data - start, in_line, bordered=self.layout.padded)
        found = self._is_whole(row)
        # Without a prefix, nothing tells the next lone row from a part of this one.
        if (found is False or (self.layout.lone and not row.prefixed)) and not row.marked():
            return False
        if found and not whole:
            return False
        if in_line is None:
            self._row_lsn, self._lsn = self._lsn, None
        self._row = row
        return True

    def _is_whole(self, row: ContinuedRow) -> bool | None:
        """Whether the text so far is a message; None if it is only the beginning of one.

        Blanks at its end may only fill the line.
        """
        codec, text = self.layout.codec, self._text(row)
        for part in (text, text.rstrip(b" ")):
            try:
                size = codec.safe(part)
                data = codec.decode(part[:size])
                message = Decoder(assume=self._decoder.assume).message(data, 0, len(data))
            except Truncated as error:
                row.least = size + error.missing
                return None if len(data) < _START_SIZE or MESSAGE_START.match(data) else False
            except (BadText, DecodeError):
                continue
            return not isinstance(message, Unknown)
        return False

    def _text(self, row: ContinuedRow) -> bytes:
        return bytes(row.text).removesuffix(b'"') if self.layout.quoted else bytes(row.text)

    def _go_on_with_row(self, match: re.Match[bytes] | None, line: bytes, offset: int) -> Decoded | None:
        """Read a line that may continue a row."""
        row = self._row
        assert row is not None
        if row.wraps_into(line, offset):
            self.continues = True
            return None
        if row.wrapped or self._ends_before(row, match, line):
            self.again, self.behind = True, offset - row.offset
            return self._end_row()
        self.continues = True
        if row.breaks_into(line, offset) and not line.endswith(_FILL):
            return None
        may_go_on = len(line) and row.full(line) and self.layout.codec.name == Escape.name
        if may_go_on and (len(row.text) < row.least or self._is_whole(row) is None):
            return None
        return self._end_row()

    def _ends_before(self, row: ContinuedRow, match: re.Match[bytes] | None, line: bytes) -> bool:
        """Whether a row ends before a line that psql did not wrap it into."""
        if row.narrower_than(line) or (not row.broken and self._is_whole(row) is not None):
            return True
        start = self.layout.start.match(line) if match is None or self.layout.lone else match
        if self.layout.lone and (not row.prefixed or (start is not None and ends_in_prefix(line, start.end()))):
            return True
        if start is not None and not self.layout.lone:
            lsn = start["lsn"] if "lsn" in start.re.groupindex else None
            return lsn is None or LSN.fullmatch(lsn.rstrip(b" ")) is not None
        if self.layout.codec.name == Hex.name:
            return not _HEX.match(line) and self._decoration.matches(line)
        return begins_record(line)

    def _end_row(self) -> Decoded:
        """The message of a row whose lines are all known."""
        row, self._row = self._row, None
        assert row is not None
        text = self._text(row)
        if row.lacks_lines():
            raise Malformed("the next line of this row is missing", offset=row.source_offset(max(len(text) - 1, 0)))
        bare = text.rstrip(b" ").removesuffix(b"|").removesuffix("│".encode())
        try:
            try:
                message = self._message(bare if self.layout.padded else text, 0, padded=True)
            except DecodeError:
                if not row.broken:
                    raise
                message = self._message(bare, 0, padded=True)
        except DecodeError as error:
            raise error.located(None, row.source_offset(error.offset)) from None
        if self._decoration.fresh:
            self._decoration.row()
        lsn = self._row_lsn if row.lsn is None else self._lsn_of(row.lsn, row.lsn_offset)
        self._row_lsn = None
        return message, lsn, row.source_offset(0), None

    def _message(self, text: bytes, at: int, *, padded: bool = False) -> AnyMessage:
        """The message of a cell at source offset `at`. Raises DecodeError with the source offset of the damage."""
        codec = self.layout.codec
        blanks = 0
        if padded or self.layout.padded:
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
            Decoder(assume=self._decoder.assume).message(data, 0, len(data))
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
        return self._lsn_of(text.rstrip(b" "), base + match.start("lsn"))

    def _lsn_of(self, text: bytes, offset: int) -> int | None:
        """The LSN of a text. Raises Malformed if it is none."""
        if LSN.fullmatch(text) is None:
            shown = text[:40].decode("ascii", "backslashreplace")
            raise Malformed(f"{shown!r} is not an LSN", offset=offset, field="lsn")
        high, _, low = text.partition(b"/")
        return (int(high, 16) << 32 | int(low, 16)) or None


def _beside(match: re.Match[bytes]) -> list[tuple[str, bytes | None]]:
    """The cells of a row except the data; the data as well if it is not in this line."""
    cells = match.groupdict().items()
    return [(name, value and value.strip()) for name, value in cells if name != "data" or value is None]
