"""Reads the protocol's data types from bytes. Every length is checked before it is used.

`TracedCursor` reads like `Cursor` and also records the position of every field, for `pgtail inspect`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from mmap import mmap
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from pgtail.errors import Malformed, Truncated
from pgtail.humanize import plural
from pgtail.pgoutput.cells import UNCHANGED, Binary, Cell, TupleData

Buffer: TypeAlias = bytes | mmap
"""What a cursor reads from; slices of both types are bytes."""

MAX_COLUMNS = 1600
"""MaxHeapAttributeNumber, src/include/access/htup_details.h."""

MAX_LENGTH = 0x3FFF_FFFF
"""MaxAllocSize, src/include/utils/memutils.h: no server can hold or send a longer value."""

MAX_NAME = 64 * 1024
"""Far above any NAMEDATALEN or GIDSIZE: a longer name is damage and is not buffered."""

_U16 = struct.Struct(">H").unpack_from
_U32 = struct.Struct(">I").unpack_from

_TEXT, _BINARY, _NULL, _UNCHANGED = b"tbnu"


def read_cells(buf: Buffer, pos: int, end: int, cells: list[Any]) -> int:
    """Append the cells of the TupleData at `pos`; returns where it ends, or -1 if it is not valid.

    Raises IndexError or struct.error if `buf` ends inside it. The hot loop: it does not check every byte.
    """
    u32 = _U32
    append = cells.append
    (count,) = _U16(buf, pos)
    pos += 2
    for _ in range(count):
        kind = buf[pos]
        if kind == _TEXT:
            start = pos + 5
            (size,) = u32(buf, pos + 1)
            pos = start + size
            if pos > end:
                return -1
            append(buf[start:pos])
            continue
        if kind == _NULL:
            append(None)
            pos += 1
        elif kind == _BINARY:
            start = pos + 5
            (size,) = u32(buf, pos + 1)
            pos = start + size
            if pos > end:
                return -1
            append(Binary(buf[start:pos]))
        elif kind == _UNCHANGED:
            append(UNCHANGED)
            pos += 1
        else:
            return -1
    return -1 if pos > end or count > MAX_COLUMNS else pos


class Span(NamedTuple):
    """One field of a message: `buf[start:end]`; `type` is the manual's name for the data type."""

    field: str
    type: str
    start: int
    end: int


class Layout:
    """Consecutive fields of fixed size, read in one step: (name, manual's type, struct code) each."""

    __slots__ = ("fields", "pack", "size", "unpack_from")

    def __init__(self, *fields: tuple[str, str, str]) -> None:
        layout = struct.Struct(">" + "".join(code for _, _, code in fields))
        self.fields = fields
        self.size = layout.size
        self.pack = layout.pack
        self.unpack_from = layout.unpack_from

    def offset(self, field: str) -> int:
        """The number of bytes before a field. Raises ValueError if no field has this name."""
        names = [name for name, _, _ in self.fields]
        return struct.calcsize(">" + "".join(code for _, _, code in self.fields[: names.index(field)]))


LSN: Final = ("Int64 (XLogRecPtr)", "Q")
TIME: Final = ("Int64 (TimestampTz)", "q")
OID: Final = ("Int32 (Oid)", "I")
XID: Final = ("Int32 (TransactionId)", "I")
INT8: Final = ("Int8", "B")
BYTE1: Final = ("Byte1", "B")


class Cursor:
    """Reads the protocol's data types from `buf[pos:end]`.

    Raises Truncated if the bytes end inside a field, Malformed if they can never be valid; both carry the field's
    name and its position in the buffer. The decoder sets `in_stream` (row messages start with an xid) and
    `abort_info` (Stream Abort has an LSN and a time).
    """

    __slots__ = ("abort_info", "buf", "encoding", "end", "in_stream", "pos")

    unpacks = True
    """Whether struct can unpack from its buffers."""

    def __init__(self, buf: Buffer = b"", pos: int = 0, end: int | None = None, *, encoding: str = "utf-8") -> None:
        self.buf = buf
        self.pos = pos
        self.end = len(buf) if end is None else end
        self.encoding = encoding
        self.in_stream = False
        self.abort_info = False

    def start(self, buf: Buffer, pos: int, end: int) -> None:
        """Start to read another message or frame."""
        self.buf = buf
        self.pos = pos
        self.end = end

    def start_frame(self, buf: Buffer, pos: int, layout: Layout, end: int) -> None:
        """Start to read the message of a frame, whose header at `pos` the caller has read."""
        self.start(buf, pos + layout.size, end)

    def rewind(self, pos: int) -> None:
        """Go back, to read the same bytes in another way."""
        self.pos = pos

    def take_bytes(self, size: int, field: str, type_: str) -> int:
        """Skip the `size` bytes of one field; returns where they start."""
        start = self.pos
        if size > self.end - start:
            raise _truncated(size - (self.end - start), start, field)
        self.pos = start + size
        return start

    def tag(self) -> int:
        """The tag of a message. The caller checks that there is a byte."""
        self.pos += 1
        return self.buf[self.pos - 1]

    def integer(self, size: int, field: str, type_: str, *, signed: bool = False) -> int:
        start = self.take_bytes(size, field, type_)
        return int.from_bytes(self.buf[start : start + size], signed=signed)

    def u8(self, field: str, type_: str = "Int8") -> int:
        return self.integer(1, field, type_)

    def u16(self, field: str) -> int:
        return self.integer(2, field, "Int16")

    def u32(self, field: str, type_: str = "Int32") -> int:
        return self.integer(4, field, type_)

    def i32(self, field: str) -> int:
        return self.integer(4, field, "Int32", signed=True)

    def lsn(self, field: str) -> int:
        """Int64 (XLogRecPtr), unsigned."""
        return self.integer(8, field, "Int64 (XLogRecPtr)")

    def time(self, field: str) -> int:
        """Int64 (TimestampTz): microseconds since 2000-01-01 UTC."""
        return self.integer(8, field, "Int64 (TimestampTz)", signed=True)

    def oid(self, field: str) -> int:
        return self.u32(field, "Int32 (Oid)")

    def xid(self, field: str) -> int:
        return self.u32(field, "Int32 (TransactionId)")

    def fixed(self, layout: Layout) -> tuple[Any, ...]:
        """Several fields at once."""
        start = self.pos
        end = start + layout.size
        if end > self.end:
            return self._checked_fixed(layout)
        self.pos = end
        return layout.unpack_from(self.buf, start)

    def _checked_fixed(self, layout: Layout) -> tuple[Any, ...]:
        """The same field by field, for errors."""
        values: list[Any] = []
        for field, type_, code in layout.fields:
            start = self.take_bytes(struct.calcsize(">" + code), field, type_)
            values += struct.unpack(">" + code, self.buf[start : self.pos])
        return tuple(values)

    def stream_xid(self) -> int | None:
        """The xid at the start of a message inside a stream segment; None outside."""
        return self.xid("xid") if self.in_stream else None

    def marker(self, field: str, expected: bytes) -> int:
        """A Byte1 that must be one of `expected`."""
        value = self.u8(field, "Byte1")
        if value not in expected:
            self.reject(value, field, expected)
        return value

    def reject(self, value: int, field: str, expected: bytes) -> NoReturn:
        """Raise Malformed for the Byte1 just read, which must be one of `expected`."""
        raise Malformed(f"{shown_byte(value)} where {_one_of(expected)} was expected", offset=self.pos - 1, field=field)

    def string(self, field: str, limit: int = MAX_NAME) -> str:
        """A null-terminated string; bytes that are not valid in the encoding become \\xNN."""
        start = self.pos
        nul = self.buf.find(b"\0", start, min(self.end, start + limit + 1))
        if nul < 0:
            if self.end - start > limit:
                raise Malformed(f"no end of the string within {limit} bytes", offset=start, field=field)
            raise Truncated("the string is not terminated", offset=start, field=field)
        self.take_bytes(nul + 1 - start, field, "String")
        return self.buf[start:nul].decode(self.encoding, "backslashreplace")

    def length(self, field: str) -> int:
        """An Int32 length, at most MAX_LENGTH bytes."""
        value = self.i32(field)
        if not 0 <= value <= MAX_LENGTH:
            raise Malformed(f"a length of {value} bytes", offset=self.pos - 4, field=field)
        return value

    def content(self, size: int, field: str, type_: str = "Byten") -> bytes:
        start = self.take_bytes(size, field, type_)
        return self.buf[start : start + size]

    def tuple_data(self, field: str) -> TupleData:
        """TupleData (manual: logical replication message formats)."""
        cells: list[Any] = []
        try:
            pos = read_cells(self.buf, self.pos, self.end, cells)
        except (IndexError, struct.error):
            pos = -1
        if pos < 0:
            return self._checked_tuple_data(field)
        self.pos = pos
        return tuple(cells)

    def _checked_tuple_data(self, field: str) -> TupleData:
        """The same field by field, for errors; it raises one if read_cells() could not read the tuple."""
        count = self.u16(f"{field} number of columns")
        if count > MAX_COLUMNS:
            raise Malformed(f"{count} columns: no table has more than {MAX_COLUMNS}", offset=self.pos - 2, field=field)
        return tuple([self._cell(f"{field}[{index}]") for index in range(count)])

    def _cell(self, field: str) -> Cell:
        kind = self.marker(f"{field} kind", b"tbnu")
        if kind == _NULL:
            return None
        if kind == _UNCHANGED:
            return UNCHANGED
        size = self.length(f"{field} length")
        if kind == _TEXT:
            return self.content(size, field, "text")
        return Binary(self.content(size, field, "binary"))


Traced: TypeAlias = tuple[int, "str | Layout", "str | TupleData", int]
"""What a TracedCursor read at once, from a position to another: a field with its type, a Layout, or a tuple's cells."""


class TracedCursor(Cursor):
    """A Cursor that records what it read, also before an error; `spans` are the fields of that."""

    __slots__ = ("trace",)

    def __init__(self, buf: Buffer = b"", pos: int = 0, end: int | None = None, *, encoding: str = "utf-8") -> None:
        super().__init__(buf, pos, end, encoding=encoding)
        self.trace: list[Traced] = []
        """What was read since start(), in the order of the bytes; a new list for each message."""

    @property
    def spans(self) -> list[Span]:
        """Every field read since start()."""
        return spans_of(self.trace)

    def start(self, buf: Buffer, pos: int, end: int) -> None:
        self.buf, self.pos, self.end = buf, pos, end
        self.trace = []

    def start_frame(self, buf: Buffer, pos: int, layout: Layout, end: int) -> None:
        self.buf, self.end = buf, end
        self.pos = start = pos + layout.size
        self.trace = [(pos, layout, "", start)]

    def rewind(self, pos: int) -> None:
        super().rewind(pos)
        self.trace = [traced for traced in self.trace if traced[3] <= pos]

    def take_bytes(self, size: int, field: str, type_: str) -> int:
        start = super().take_bytes(size, field, type_)
        self.trace.append((start, field, type_, self.pos))
        return start

    def tag(self) -> int:
        return self.u8("tag", "Byte1")

    def fixed(self, layout: Layout) -> tuple[Any, ...]:
        if self.pos + layout.size <= self.end:  # otherwise field by field, up to the one that is cut off
            self.trace.append((self.pos, layout, "", self.pos + layout.size))
        return super().fixed(layout)

    def tuple_data(self, field: str) -> TupleData:
        start = self.pos
        cells = super().tuple_data(field)
        self.trace.append((start, field, cells, self.pos))
        return cells


def spans_of(trace: Iterable[Traced]) -> list[Span]:
    """The fields of a trace."""
    spans: list[Span] = []
    for start, what, type_, end in trace:
        if isinstance(what, Layout):
            for name, manual_type, code in what.fields:
                spans.append(Span(name, manual_type, start, start := start + struct.calcsize(">" + code)))
        elif isinstance(type_, tuple):
            spans += _tuple_spans(what, type_, start)
        else:
            spans.append(Span(what, type_, start, end))
    return spans


def _tuple_spans(field: str, cells: TupleData, start: int) -> Iterator[Span]:
    yield Span(f"{field} number of columns", "Int16", start, start := start + 2)
    for index, cell in enumerate(cells):
        spans = cell_spans(f"{field}[{index}]", cell, start)
        yield from spans
        start = spans[-1].end


def cell_spans(field: str, cell: Cell, start: int) -> list[Span]:
    """The fields of a cell whose kind is at `start`."""
    kind = Span(f"{field} kind", "Byte1", start, start + 1)
    if not isinstance(cell, bytes):
        return [kind]
    type_, at = "binary" if isinstance(cell, Binary) else "text", start + 5
    return [kind, Span(f"{field} length", "Int32", start + 1, at), Span(field, type_, at, at + len(cell))]


def shown_byte(value: int) -> str:
    """A byte in words: a printable ASCII character in quotes, or its number."""
    return f"{chr(value)!r}" if 0x20 <= value < 0x7F else f"byte 0x{value:02x}"


def _one_of(expected: bytes) -> str:
    *others, last = (repr(chr(value)) for value in expected)
    return f"{', '.join(others)} or {last}" if others else last


def _truncated(missing: int, start: int, field: str) -> Truncated:
    """The error of a field that starts there; no variable of what raises it, whose frames would then live as long."""
    error = Truncated(f"{missing} more {plural(missing, 'byte')} needed", offset=start, field=field)
    error.missing = missing
    return error
