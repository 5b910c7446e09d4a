"""Rows of COPY TO STDOUT as Insert messages in frames; the values are not decoded.

COPY's text form has the same text of a value as pgoutput, with escapes; its binary form the same bytes after a length.
Manual: COPY, "File Formats"; src/backend/commands/copyto.c sends each row as one CopyData message.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pgtail.native import compiled
from pgtail.pgoutput.frames import LENGTH, head
from pgtail.pgoutput.walsender import XLogData

GetCopyData: TypeAlias = Callable[[int], tuple[int, memoryview]]
"""psycopg's PGconn.get_copy_data: a length and a row; the length is 0 if there is none yet, and -1 at the end."""

_INSERT: Final = struct.Struct(">cIcH")
_SIZED: Final = struct.Struct(">cI")
_COUNT: Final = struct.Struct(">H")
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_HEADER: Final = 19
"""Bytes of the binary form's header: signature, flags, and the length of an extension that follows."""
_TRAILER: Final = b"\xff\xff"
_NULL: Final = 0xFFFFFFFF
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


@dataclass(frozen=True, slots=True)
class RowFrames:
    """How the rows of one table become frames.

    `kinds` is None for COPY's text form; for the binary form it has the kind of each column's cells (b or t).
    `framing` is LENGTHS or COPY_DATA of pgoutput/frames.py.
    """

    relation: int
    columns: int
    kinds: bytes | None
    header: XLogData
    framing: int

    def take(self, get_copy_data: GetCopyData, limit: int) -> tuple[bytes, int, int]:
        """Frames of the rows that libpq has, until they have `limit` bytes or more.

        Returns them, how many there are, and the last length from `get_copy_data`. Raises ValueError for a row that has
        other columns.
        """
        module = compiled()
        copy_inserts = _copy_inserts if module is None else module.copy_inserts
        parts: list[bytes | memoryview] = []
        start = self.header.encode(_INSERT.pack(b"I", self.relation, b"N", self.columns))
        rows, _, length = copy_inserts(get_copy_data, start, self.kinds, self.columns, self.framing, limit, parts)
        return b"".join(parts) if len(parts) != 1 else bytes(parts[0]), rows, length


def _copy_inserts(
    get_copy_data: GetCopyData,
    start: bytes,
    kinds: bytes | None,
    columns: int,
    framing: int,
    limit: int,
    parts: list[bytes | memoryview],
) -> tuple[int, int, int]:
    """Add the frames to `parts`; `start` is what they start with, up to the number of columns.

    Returns the number of rows, the bytes, and the last length from `get_copy_data`.
    """
    rows = size = length = 0
    while size < limit:
        length, data = get_copy_data(1)
        if length <= 0:
            break
        try:
            body = _text_tuple(bytes(data), columns) if kinds is None else _binary_tuple(bytes(data), kinds)
        except (ValueError, struct.error):
            raise ValueError(f"a row of COPY that does not have {columns} columns") from None
        if body is None:
            continue
        before = head(len(start) + len(body), framing)
        parts += (before, start, body)
        size += len(before) + len(start) + len(body)
        rows += 1
    return rows, size, length


def _text_tuple(line: bytes, columns: int) -> bytes:
    """The cells of a line. Raises ValueError if they are not so many."""
    values = line.removesuffix(b"\n").split(b"\t") if columns or line != b"\n" else []
    if len(values) != columns or not line.endswith(b"\n"):
        raise ValueError
    return b"".join([b"n" if value == b"\\N" else _text(value) for value in values])


def _text(value: bytes) -> bytes:
    if b"\\" in value:
        value = _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), value)
    return _SIZED.pack(b"t", len(value)) + value


def _binary_tuple(row: bytes, kinds: bytes) -> bytes | None:
    """The cells of a row; None if it is only COPY's header or trailer. Raises ValueError and struct.error."""
    pos = 0
    if row.startswith(_SIGNATURE):
        pos = _HEADER + LENGTH.unpack_from(row, _HEADER - LENGTH.size)[0]
    if row[pos:] in (b"", _TRAILER):
        return None
    if _COUNT.unpack_from(row, pos)[0] != len(kinds):
        raise ValueError
    pos += _COUNT.size
    cells = []
    for kind in kinds:
        (size,) = LENGTH.unpack_from(row, pos)
        pos += LENGTH.size
        if size == _NULL:
            cells.append(b"n")
        else:
            cells.append(_SIZED.pack(bytes((kind,)), size) + row[pos : pos + size])
            pos += size
    if pos != len(row):
        raise ValueError
    return b"".join(cells)


def kinds_of(has_send: Sequence[bool]) -> bytes:
    """The kinds of cells in a binary stream: pgoutput sends a type without a send function as text.

    src/backend/replication/logical/proto.c, logicalrep_write_tuple.
    """
    return b"".join([b"b" if one else b"t" for one in has_send])
