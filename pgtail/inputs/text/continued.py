"""A row that goes on in the next lines: in psql's wrapped format, or broken by a terminal at its width."""

from __future__ import annotations

import bisect
import re
from typing import Final

from pgtail.errors import Malformed

WRAP_MARKS: Final = (b".", "…".encode())
"""psql's marks in the margins of a cell that goes on in the next line (linestyle ascii and unicode)."""

CONTINUATION: Final = re.compile(rb"(?=[ \w]*+(?:\||\xe2\x94\x82))(?:[ |]|\xe2\x94\x82)++(?:\.|\xe2\x80\xa6)[^ .]")
"""A line into which psql wrapped a row."""

_MOST: Final = 256 << 20
"""Characters of the longest value."""

_BAR: Final = re.compile(r"[|│]")
_LSN: Final = re.compile(r"[0-9A-Fa-f/]+[.…]?")
_WIDEST: Final = 3
"""Bytes of the longest mark or border."""

_NO_OFFSET: Final = 1 << 63
_PREFIX: Final = re.compile(rb"(?:\\{1,2}x|0x)\Z")


class ContinuedRow:
    """The text of a row so far, of which the first line is known."""

    def __init__(self, line: bytes, offset: int, data: int, lsn: tuple[int, int] | None, *, bordered: bool) -> None:
        """`line` is at source offset `offset`; where in it the data starts, and where the LSN is."""
        prefix = _PREFIX.search(line, 0, data)
        self.prefixed = prefix is not None
        """Whether the data begins with the prefix of hex."""
        before = _chars(line[: prefix.start() if prefix else data])
        self.offset = offset
        self._start = len(before)
        self._alone = not before.strip(" ")
        """Whether the data is the only column."""
        self._bars = [bar.start() for bar in _BAR.finditer(before)]
        self._bordered = bordered
        self.text = bytearray(line[data:])
        """What follows the prefix of the data; may end with a mark, blanks and a border."""
        self._offsets = [(0, offset + data)]
        self.lsn = None if lsn is None else line[slice(*lsn)].rstrip(b" ")
        self.lsn_offset = offset if lsn is None else offset + lsn[0]
        self._lsn_start = 0 if lsn is None else len(_chars(line[: lsn[0]]))
        self._width = len(_chars(line))
        self.least = 0
        """Characters that a whole message needs at least, as far as it is known; each byte of it has one or more."""
        self.wrapped = self.broken = False
        """Whether psql wrapped it, or a terminal broke it."""
        self._full = self._last = 0
        """The width of lines with a mark at their end, if there was one, and that of the last line."""

    def marked(self) -> bool:
        """Whether the last line may end with a mark that psql made."""
        return self._lsn_wraps() or self._end()[1] in WRAP_MARKS

    def wraps_into(self, line: bytes, offset: int) -> bool:
        """Add a line if psql wrapped the row into it. Raises Malformed if only one of the lines has its marks."""
        shown = _chars(line)
        cell = self._cell(shown)
        if cell is None:
            return False
        if cell:
            end, mark = self._end()
            if mark != (b" " if self._by_border(shown) else mark) or mark not in (*WRAP_MARKS, b" "):
                raise Malformed("the line before has no mark that its cell goes on in this one", offset=offset)
            if mark in WRAP_MARKS:
                self._full = self._width
            del self.text[end:]
            piece = cell.encode("utf-8", "surrogateescape")
            self._add(piece, offset + len(line) - len(piece))
            self._last = len(shown)
        self._continue_lsn(shown)
        self.wrapped = True
        return True

    def lacks_lines(self) -> bool:
        """Whether psql wrapped the row into more lines: the last one is full and has a mark where others had one."""
        return self.wrapped and self._last == self._full and self._end()[1] in WRAP_MARKS

    def breaks_into(self, line: bytes, offset: int) -> bool:
        """Add a line into which a terminal broke the row. Returns whether the row may go on after it."""
        self._add(line, offset)
        self.broken = True
        return self.full(line)

    def narrower_than(self, line: bytes) -> bool:
        """Whether a line is wider than the first one: a terminal breaks all lines at its width."""
        return len(_chars(line)) > self._width

    def full(self, line: bytes) -> bool:
        """Whether a line is as wide as the first one."""
        return len(_chars(line)) == self._width

    def source_offset(self, index: int) -> int:
        """The source offset of a character of `text`."""
        start, offset = self._offsets[bisect.bisect_right(self._offsets, (index, _NO_OFFSET)) - 1]
        return offset + index - start

    def _cell(self, line: str) -> str | None:
        """The data in a line into which psql wrapped the row; None if it did not."""
        before, margin, cell = line[: max(self._start - 1, 0)], line[self._start - 1 : self._start], line[self._start :]
        if not self._start or (not self._bars and before.strip(" ")):
            return None
        if self._by_border(line):
            return cell
        if [bar.start() for bar in _BAR.finditer(line, 0, self._start)] != self._bars:
            return None
        if margin in (".", "…"):
            return cell
        if before[max(self._lsn_start - 1, 0) :].startswith((".", "…")) and self._lsn_wraps():
            return ""
        blank = not self._alone and not self._bars and margin == " "
        return cell if blank and cell.strip(" ") and self.marked() else None

    def _by_border(self, line: str) -> bool:
        """Whether it is a border that shows that the cell goes on (linestyle old-ascii)."""
        return (
            bool(self._bars)
            and line[: self._start].strip(" ") == ";"
            and line[self._start - 2 : self._start - 1] == ";"
        )

    def _lsn_wraps(self) -> bool:
        return self.lsn is not None and self.lsn.endswith(WRAP_MARKS)

    def _continue_lsn(self, line: str) -> None:
        piece = _LSN.match(line, self._lsn_start)
        if piece is not None and self.lsn is not None and self._lsn_wraps():
            self.lsn = self.lsn.rstrip("….".encode()) + piece[0].encode()

    def _end(self) -> tuple[int, bytes]:
        """Where the last character of the text before a border is, and this character."""
        tail = bytes(self.text[-2 * _WIDEST :])
        bare = tail.removesuffix(b"|").removesuffix("│".encode()) if self._bordered else tail
        last = next((mark for mark in WRAP_MARKS if bare.endswith(mark)), bare[-1:])
        return len(self.text) - len(tail) + len(bare) - len(last), last

    def _add(self, piece: bytes, offset: int) -> None:
        if len(self.text) + len(piece) > _MOST:
            raise Malformed("a value of so many lines: have it in one line (psql -At)", offset=offset)
        self._offsets.append((len(self.text), offset))
        self.text += piece


def ends_in_prefix(line: bytes, end: int) -> bool:
    """Whether line[:end] ends with the prefix of hex."""
    return _PREFIX.search(line, 0, end) is not None


def _chars(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")
