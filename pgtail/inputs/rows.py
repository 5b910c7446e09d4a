"""Floor 4, lines of text -> messages, by the layout that was found; knows nothing of files."""

from __future__ import annotations

import re
from typing import Final

from pgtail.errors import DecodeError, Malformed, Truncated
from pgtail.inputs.bytea import BadText
from pgtail.inputs.layout import LSN, Layout, unmarked
from pgtail.inputs.longcell import LongCell
from pgtail.inputs.noise import Noise
from pgtail.inputs.skim import let_go
from pgtail.wire.decoder import AnyMessage, Decoded, Decoder, Unknown

_AROUND: Final = b' |"\xe2\x94\x82'
"""What stands around a line that only goes on with a value: blanks, borders (also in Unicode), quotes."""


class RowReader:
    """Takes lines one after another; remembers what of a row stood in the lines before."""

    def __init__(self, layout: Layout, decoder: Decoder, noise: Noise) -> None:
        self.layout = layout
        self.again = False
        """Whether the last line is to be given once more: it ended the row before it."""
        self._decoder = decoder
        self._noise = noise
        self._lsn: int | None = None
        self._cell: LongCell | None = None

    def line(self, buf: bytes, pos: int, stop: int, base: int) -> Decoded | None:
        """What the line `buf[pos:stop]` says; `buf` lies at `base` in the source.

        Most lines are a row with a message. Raises DecodeError with an offset in the source.
        """
        match = self.layout.row.fullmatch(buf, pos, stop)
        self.again = False
        if self._cell is not None:
            return self._go_on(match, buf, pos, stop, base)
        if match is None:
            self._lsn = None
            if self._noise.covers(buf[pos:stop]):
                return None
            raise Malformed("this line is no row like the others", offset=base + pos)
        start, end = match.span("data")
        if start < 0:
            self._lsn = self._position(match, base)
            return None
        text = self.layout.bare(buf[start:end])
        try:
            if self.layout.codec.wrapped:
                text, goes_on = unmarked(text)
                if goes_on:
                    self.begin(self._position(match, base), base + start).feed(text, base + start)
                    return None
            message = self._message(text, base + start)
        except DecodeError:
            if self._noise.covers(buf[pos:stop]):
                self.forget()
                return None
            raise
        # What psql prints around the rows may be text of the codec by chance, but it has no message's first byte.
        if isinstance(message, Unknown) and self._noise.covers(buf[pos:stop]):
            return None
        if self._noise.fresh:
            self._noise.row()
        return message, self._position(match, base), base + start, None

    def begin(self, lsn: int | None, offset: int) -> LongCell:
        """Begin a value that comes in pieces, which starts at this place in the source."""
        self._cell = LongCell(self.layout.codec, self._decoder, lsn, offset)
        return self._cell

    def finish(self) -> Decoded | None:
        """The message of a value that came in pieces, if there is one."""
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
        let_go(self._decoder.cursor)
        if self._noise.fresh:
            self._noise.row()
        return message, cell.lsn, cell.offset, None

    def forget(self) -> None:
        """A new row comes, whatever was there before."""
        if self._cell is not None:
            self._cell.close()
        self._cell = self._lsn = None

    def long_row(self, match: re.Match[bytes], base: int) -> LongCell:
        """Begin a row whose value is too long for a line; `match` is its layout's start."""
        return self.begin(self._position(match, base), base + match.end())

    def _go_on(self, match: re.Match[bytes] | None, buf: bytes, pos: int, stop: int, base: int) -> Decoded | None:
        """Another line of a value that is broken into several."""
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
        """The message of a cell that starts `at` in the source. Raises DecodeError at the place of the damage."""
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
                # In the escape format some of the spaces that fill the column may be the value's own.
                if codec.name != "escape" or error.missing > blanks:
                    raise error.located(None, at + codec.width(data[: error.offset])) from None
                data += b" " * error.missing
                blanks -= error.missing
            except DecodeError as error:
                raise error.located(None, at + codec.width(data[: error.offset])) from None

    def _bad(self, text: bytes, bad: BadText, at: int) -> Malformed:
        """The error that a character is wrong, with the message and the field that it stands in."""
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
        """The LSN of a row. Raises Malformed if its text is none."""
        if "lsn" not in match.re.groupindex:
            return None
        text = match["lsn"]
        if text is None:
            lsn, self._lsn = self._lsn, None
            return lsn
        text = text.rstrip(b" ")
        if LSN.fullmatch(text) is None:
            shown = text[:40].decode("ascii", "backslashreplace")
            raise Malformed(f"{shown!r} is no log position", offset=base + match.start("lsn"), field="lsn")
        high, _, low = text.partition(b"/")
        return (int(high, 16) << 32 | int(low, 16)) or None


def _beside(match: re.Match[bytes]) -> list[tuple[str, bytes | None]]:
    """The cells of a row beside the data, and the data where it is not in this line."""
    cells = match.groupdict().items()
    return [(name, value and value.strip()) for name, value in cells if name != "data" or value is None]
