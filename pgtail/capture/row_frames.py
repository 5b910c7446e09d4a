"""Finds frames with row messages in a dump that can be recorded as they are; checks each without decoding it."""

from __future__ import annotations

import struct
from typing import Final

from pgtail.pgoutput.cursor import MAX_COLUMNS, MAX_LENGTH, Buffer
from pgtail.pgoutput.decoder import XLOG_DATA, XLOG_HEADER_SIZE
from pgtail.pgoutput.frames import COPY_DATA, COPY_DATA_TAG, bounds
from pgtail.pgoutput.kinds import TAGS
from pgtail.pgoutput.rows import Delete, Insert, Update

_COUNT: Final = struct.Struct(">H").unpack_from
_LENGTH: Final = struct.Struct(">I").unpack_from
_INSERT, _UPDATE, _DELETE = (TAGS[one] for one in (Insert, Update, Delete))
_NEW: Final = ord("N")
_OLD: Final = b"KO"
_WITH_VALUE: Final = b"tb"
_WITHOUT: Final = b"nu"


def row_frame(buf: Buffer, pos: int, end: int, framing: int) -> tuple[int, int] | None:
    """The bounds of the frame at `pos`; None if it is not complete, or not a valid row message with equal LSNs."""
    try:
        start, stop = bounds(buf, pos, framing)
        if stop > end or buf[start] != XLOG_DATA or (framing == COPY_DATA and buf[pos] != COPY_DATA_TAG):
            return None
        if buf[start + 1 : start + 9] != buf[start + 9 : start + 17] or _row_end(buf, start + XLOG_HEADER_SIZE) != stop:
            return None
    except (struct.error, IndexError):
        return None
    return start, stop


def _row_end(buf: Buffer, pos: int) -> int:
    """Where the row message at `pos` ends; -1 if it is not a valid one. Raises struct.error and IndexError."""
    tag, kind = buf[pos], buf[pos + 5]
    pos += 6
    if tag != _INSERT and kind in _OLD:
        pos = _tuple_end(buf, pos)
        if tag == _DELETE or pos < 0:
            return pos
        kind = buf[pos]
        pos += 1
    return _tuple_end(buf, pos) if kind == _NEW and tag in (_INSERT, _UPDATE) else -1


def _tuple_end(buf: Buffer, pos: int) -> int:
    (left,) = _COUNT(buf, pos)
    if left > MAX_COLUMNS:
        return -1
    pos += 2
    while left:
        left -= 1
        kind = buf[pos]
        if kind in _WITH_VALUE:
            (size,) = _LENGTH(buf, pos + 1)
            if size > MAX_LENGTH:
                return -1
            pos += 5 + size
        elif kind in _WITHOUT:
            pos += 1
        else:
            return -1
    return pos
