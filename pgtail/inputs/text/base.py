"""Base class of psql, csv, hex and copytext: lines of text, most of them rows with a message."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterator
from typing import ClassVar, Final

from pgtail.errors import DecodeError, Malformed
from pgtail.inputs.base import Input
from pgtail.inputs.binary.detect import best_run
from pgtail.inputs.source.window import LARGE, Window
from pgtail.inputs.text.bytea import BadText
from pgtail.inputs.text.layout import (
    RowLayout,
    TextForm,
    default_layout,
    find_layout,
    message_codec,
)
from pgtail.inputs.text.psql_decoration import PsqlDecoration
from pgtail.inputs.text.refused import other_format
from pgtail.inputs.text.rows import RowReader
from pgtail.pgoutput.decoder import AnyFrame, Decoded, Decoder

_SAMPLE: Final = 40
"""Lines from which the layout is found."""

_SAMPLE_SIZE: Final = 128 * 1024
_SEARCHED: Final = 256 * 1024
LONG: Final = 4 * LARGE
"""A longer line is read in pieces."""

_NEAR: Final = 4096
_CONTROL: Final = re.compile(rb"[\x01-\x08\x0e-\x1f\x7f]")
"""Bytes that text does not contain, except a few damaged ones."""

_BOM: Final = b"\xef\xbb\xbf"
_TAIL_SIZE: Final = 64
"""Maximum size of what follows a value in its line."""

_BLANK_START: Final = re.compile(rb"[-+| \xe2\x94\x80-\xbf]{65536}")
"""The beginning of psql's header or rule above a very wide column."""


class TextInput(Input):
    """Rows with one line each, or one line for each column. A base64 value may span several lines."""

    form: ClassVar[TextForm]
    comments: ClassVar[bool] = False
    """Whether lines that begin with # are comments."""

    def __init__(self, window: Window, decoder: Decoder) -> None:
        super().__init__(window, decoder)
        decoder.separator = None
        self._rows: RowReader | None = None

    @classmethod
    def sniff(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool | None:
        if len(_CONTROL.findall(head, 0, _NEAR)) * 50 > min(len(head), _NEAR):
            return False
        if other_format(head) is not None:  # asciidoc looks almost like rows, with other escapes
            return False
        lines = cls._sample(head, final=final)
        layout = find_layout(lines, cls.form, decoder)
        if layout is None and len(head) > LARGE:
            lines = cls._beginning(head)
            layout = find_layout(lines, cls.form, decoder, cut=True)
        if layout is not None:
            return cls._fits(layout, lines)
        return False if final or len(lines) == _SAMPLE or len(head) > LARGE else None

    @classmethod
    def search(cls, head: bytes, decoder: Decoder, *, final: bool) -> bool:
        if other_format(head) is not None:
            return False
        lines = [line.rstrip(b"\r") for line in head[:_SEARCHED].split(b"\n", 4 * _SAMPLE)[_SAMPLE:-1]]
        layout = find_layout(lines, cls.form, decoder)
        return layout is not None and cls._fits(layout, lines)

    @classmethod
    def _fits(cls, layout: RowLayout, lines: list[bytes]) -> bool:
        """Whether a layout that was found in these lines belongs to this form."""
        return True

    @classmethod
    def _beginning(cls, head: bytes) -> list[bytes]:
        """The beginning of the last line, which is longer than `head`."""
        start = head.rfind(b"\n") + 1
        return [head[start : start + _SAMPLE_SIZE]]

    @classmethod
    def _sample(cls, head: bytes, *, final: bool) -> list[bytes]:
        """The first complete lines that are not empty: at least two if there are, more if they are short."""
        lines: list[bytes] = []
        start = len(_BOM) * head.startswith(_BOM)
        while len(lines) < _SAMPLE and (start < _SAMPLE_SIZE or len(lines) < 2):
            stop = head.find(b"\n", start)
            if stop < 0 and not (final and start < len(head)):
                break
            line = (head[start:stop] if stop >= 0 else head[start:]).rstrip(b"\r")
            start = stop + 1 if stop >= 0 else len(head)
            if line.strip():
                lines.append(line)
        return lines

    def items(self) -> Generator[Decoded]:
        rows = self._prepare()
        try:
            yield from self._lines(rows)
        finally:
            rows.forget()

    def _lines(self, rows: RowReader) -> Iterator[Decoded]:
        window = self._window
        searched = 0
        while True:
            buf, pos, base, final = window.buf, window.pos, window.base, window.final
            end, line = len(buf), rows.line
            try:
                while pos < end:
                    stop = buf.find(b"\n", pos + searched)
                    searched = 0
                    if stop < 0:
                        if not final:
                            break
                        stop = end
                    decoded = line(buf, pos, stop - (buf[stop - 1 : stop] == b"\r"), base)
                    if decoded is not None:
                        yield decoded
                    if not rows.again:
                        pos = stop + 1
                decoded = rows.finish() if final else None
            except DecodeError as error:
                raise self._located(error, 0) from None
            finally:
                window.pos = min(pos, end)
            if decoded is not None:
                yield decoded
            if final:
                self._check_end()
                return
            searched = end - window.pos
            if searched <= LONG:
                window.more()
            else:
                yield from self._long_line(rows)
                searched = 0

    def _prepare(self) -> RowReader:
        """Find the layout, once, and whether the source continues inside a stream segment."""
        window, layout = self._window, None
        while self._rows is None:
            if window.position == 0 and window.buf.startswith(_BOM):
                window.pos = len(_BOM)
            lines = self._sample(window.buf[window.pos :], final=window.final)
            layout = find_layout(lines, self.form, self._decoder)
            if layout is None and len(window.buf) > LARGE:
                layout = find_layout(self._beginning(window.buf), self.form, self._decoder, cut=True)
            if layout is None and (len(lines) == _SAMPLE or len(window.buf) > LARGE or not window.more()):
                layout = default_layout(self.form)
            if layout is not None:
                self._rows = RowReader(layout, self._decoder, PsqlDecoration(comments=self.comments))
        self._find_stream_state(self._rows.layout)
        return self._rows

    def _find_stream_state(self, layout: RowLayout) -> None:
        window = self._window
        matches = map(layout.row.fullmatch, self._sample(window.buf[window.pos :], final=window.final))
        cells = []
        for text in (match["data"] for match in matches if match and match["data"]):
            with contextlib.suppress(BadText):
                cells.append(layout.codec.decode(text))

        def unit(scratch: Decoder, index: int) -> tuple[AnyFrame, int]:
            return scratch.message(cells[index], 0, len(cells[index])), index + 1

        found, inside = best_run(unit, self._decoder, 0, len(cells))
        if found.messages:
            self._decoder.in_stream = inside

    def _long_line(self, rows: RowReader) -> Iterator[Decoded]:
        """Read a line longer than LONG."""
        window = self._window
        if (before := rows.settle()) is not None:
            yield before
        if _BLANK_START.match(window.buf, window.pos):
            self._next_line()
            return
        match = rows.layout.start.match(window.buf, window.pos)
        try:
            if match is None:
                raise Malformed("this line is not a row like the others", offset=window.position)
            cell = rows.long_row(match, window.base)
            window.pos = match.end()
            while (newline := window.buf.find(b"\n", window.pos)) < 0 and not window.final:
                end = max(len(window.buf) - _TAIL_SIZE, window.pos)
                cell.feed(window.buf[window.pos : end], window.position)
                window.pos = end
                window.more()
            text = window.buf[window.pos : newline if newline >= 0 else len(window.buf)]
            cell.feed(rows.layout.bare(_without_border(text, rows.layout)), window.position)
            window.pos += len(text) + (newline >= 0)
            decoded = rows.finish()
        except DecodeError as error:
            raise self._located(error, 0) from None
        if decoded is not None:
            yield decoded

    def _seek(self) -> bool:
        rows = self._prepare()
        rows.forget()
        found = False
        while not found:
            if self._next_line():
                found = self._is_row(rows.layout)
            elif self.source.skip_damage():
                self._window.restart()
            else:
                return False
        self._decoder.in_stream = None
        return True

    def _next_line(self) -> bool:
        """Advance to the next line. Returns whether there is one."""
        window = self._window
        while (newline := window.buf.find(b"\n", window.pos)) < 0:
            window.pos = len(window.buf)
            if window.final or not window.more():
                return False
        window.pos = newline + 1
        return True

    def _is_row(self, layout: RowLayout) -> bool:
        """Whether the line that starts here is a row with a message, or the beginning of a very long one."""
        window = self._window
        while (newline := window.buf.find(b"\n", window.pos)) < 0 and len(window.buf) - window.pos <= LONG:
            if window.final or not window.more():
                newline = len(window.buf)
                break
        if newline < 0:
            return layout.start.match(window.buf, window.pos) is not None
        match = layout.row.fullmatch(window.buf[window.pos : newline].rstrip(b"\r"))
        data = match["data"] if match is not None else None
        return bool(data and message_codec(data, self.form, self._decoder))


def _without_border(text: bytes, layout: RowLayout) -> bytes:
    """The end of a long line without what follows its value."""
    text = text.removesuffix(b"\r")
    if not layout.padded:
        return text
    return text.rstrip(b" ").removesuffix(b"|").removesuffix("│".encode()).rstrip(b" ")
