"""Rows of COPY TO STDOUT as Insert messages in frames; the values are not decoded.

COPY's text form has the same text of a value as pgoutput, with escapes; its binary form the same bytes after a length.
Manual: COPY, "File Formats"; src/backend/commands/copyto.c sends each row as one CopyData message.
Compiled code calls the libpq that psycopg uses: a call of psycopg costs more than a row of COPY.
"""

from __future__ import annotations

import ctypes
import functools
import re
import struct
import sys
from collections.abc import Sequence
from typing import Any, Final, cast

import psycopg
from msgspec import Struct
from psycopg import pq
from psycopg.pq.abc import PGconn

from pgtail.native import compiled
from pgtail.pgoutput.frames import LENGTH, head
from pgtail.pgoutput.walsender import XLogData
from pgtail.postgres.copy_reader import wait_to_read

_NAMES: Final = "PQgetCopyData", "PQconsumeInput", "PQfreemem"


@functools.cache
def copy_functions() -> tuple[int, ...] | None:
    """The addresses of PQgetCopyData, PQconsumeInput and PQfreemem.

    None if psycopg's own module is not compiled, or has no shared libpq. The lookup goes through that module, so it
    finds what the module calls, unless the process has a libpq for all.
    """
    module = sys.modules[pq.PGconn.__module__].__file__
    if pq.__impl__ == "python" or module is None or hasattr(ctypes.CDLL(None), _NAMES[0]):
        return None
    try:
        library = ctypes.CDLL(module)
        return tuple([ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in _NAMES])
    except (AttributeError, OSError):
        return None


_INSERT: Final = struct.Struct(">cIcH")
_SIZED: Final = struct.Struct(">cI")
_COUNT: Final = struct.Struct(">H")
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_HEADER: Final = 19
"""Bytes of the binary form's header: signature, flags, and the length of an extension that follows."""
_TRAILER: Final = b"\xff\xff"
ENDED: Final = -1
"""The length that PQgetCopyData returns after the last row."""
_NULL: Final = 0xFFFFFFFF
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class RowFrames(Struct, frozen=True):
    """How the rows of one table become frames.

    `kinds` is None for COPY's text form; for the binary form it has the kind of each column's cells (b or t).
    `framing` is LENGTHS or COPY_DATA of pgoutput/frames.py.
    """

    relation: int
    columns: int
    kinds: bytes | None
    header: XLogData
    framing: int

    def receive(self, pgconn: PGconn, limit: int, milliseconds: int) -> tuple[bytes, int, int]:
        """Frames of rows that a connection in COPY_OUT sends, until they have `limit` bytes or more.

        Returns sooner if nothing arrives for so long, or if rows arrive slowly. Returns the frames, how many there are,
        and the last length from PQgetCopyData: ENDED after the last row. Raises ValueError for a row that has other
        columns, and psycopg.Error if the connection breaks.
        """
        module, functions = compiled(), copy_functions()
        start = self.header.encode(_INSERT.pack(b"I", self.relation, b"N", self.columns))
        if module is None or functions is None:
            return self._receive(pgconn, start, limit, milliseconds)
        form = start, self.kinds, self.columns, self.framing
        address = cast(Any, pgconn).pgconn_ptr  # in libpq, while the connection is open
        frames, rows, length = module.copy_inserts(functions, address, pgconn.socket, milliseconds, *form, limit)
        if length < ENDED:
            raise psycopg.OperationalError(pgconn.error_message.decode(errors="replace"))
        return frames, rows, length

    def _receive(self, pgconn: PGconn, start: bytes, limit: int, milliseconds: int) -> tuple[bytes, int, int]:
        """The same by psycopg's functions; `start` is what a frame starts with, up to the number of columns."""
        parts: list[bytes] = []
        rows = size = length = 0
        while size < limit:
            length, data = pgconn.get_copy_data(1)
            if length <= 0:
                break
            body = self._tuple(bytes(data))
            if body is not None:
                before = head(len(start) + len(body), self.framing)
                parts += (before, start, body)
                size += len(before) + len(start) + len(body)
                rows += 1
        if length == 0:
            wait_to_read(pgconn, milliseconds)
            pgconn.consume_input()
        return b"".join(parts), rows, length

    def _tuple(self, row: bytes) -> bytes | None:
        """The cells of a row; None if it is only the header or the trailer. Raises ValueError."""
        try:
            return _text_tuple(row, self.columns) if self.kinds is None else _binary_tuple(row, self.kinds)
        except (ValueError, struct.error):
            raise ValueError(f"a row of COPY that does not have {self.columns} columns") from None


def _text_tuple(line: bytes, columns: int) -> bytes:
    """The cells of a line. Raises ValueError if they are not so many."""
    values = line.removesuffix(b"\n").split(b"\t") if columns or line != b"\n" else []
    if len(values) != columns or not line.endswith(b"\n"):
        raise ValueError
    return b"".join([b"n" if value == b"\\N" else _text(value) for value in values])


def _text(value: bytes) -> bytes:
    if b"\\" in value:
        if value.startswith(b"\\N"):  # NULL, with more after it
            raise ValueError
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
