"""Undecoded row messages of stream segments, buffered until their transaction ends."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pgtail.native import compiled
from pgtail.pgoutput.cursor import MAX_COLUMNS, Buffer
from pgtail.pgoutput.decoder import XLOG_DATA, XLOG_HEADER_SIZE
from pgtail.pgoutput.frames import COPY_DATA, COPY_DATA_TAG, LENGTH, SEPARATED, bounds

_CHUNK: Final = 256 * 1024
"""The approximate number of bytes in one KeptRows."""
_LARGE: Final = 1024 * 1024
"""Bytes; larger messages are decoded at once."""

_COUNT: Final = struct.Struct(">H").unpack_from
_HEAD: Final = struct.Struct(">cIIc").unpack_from
_HEAD_SIZE: Final = 10
"""The tag, the xid, the relation and the kind of tuple."""
_TUPLES: Final = {b"IN": 1, b"UN": 1, b"UK": 2, b"UO": 2, b"DK": 1, b"DO": 1}
_NO_POSITION: Final = b"w" + bytes(XLOG_HEADER_SIZE - 1)

_SIZED, _EMPTY = frozenset(b"tb"), frozenset(b"nu")
_NEW, _NEWLINE = b"N\n"


class KeptRows(NamedTuple):
    """Row messages of one (sub)transaction, as walsender frames with framing LENGTHS.

    `tables` are the OIDs of their tables, each with the version at that point (Relation.version).
    """

    frames: bytes
    tables: tuple[tuple[int, int], ...]


def rows_of_one(buf: Buffer, pos: int, end: int, framing: int) -> tuple[int, bytes, int, tuple[int, ...]]:
    """Collect the row messages from `pos` on that belong to one (sub)transaction, inside a stream segment.

    Returns where the first other message starts, the frames of the rows, their xid and the OIDs of their tables.
    Incomplete, large and unusual messages are not collected: they must be decoded.
    """
    fast = compiled()
    if fast is not None:
        found: tuple[int, bytes, int, tuple[int, ...]] = fast.rows_of_one(buf, pos, end, framing, _CHUNK)
        return found
    return _rows_of_one(buf, pos, end, framing)


def _rows_of_one(buf: Buffer, pos: int, end: int, framing: int) -> tuple[int, bytes, int, tuple[int, ...]]:
    frames: list[bytes] = []
    oids: dict[int, None] = {}
    start, only = pos, None
    try:
        while pos < end and pos - start < _CHUNK:
            frame, stop = _frame(buf, pos, end, framing)
            at = frame if framing == SEPARATED else frame + XLOG_HEADER_SIZE
            tag, subxid, oid, kind = _HEAD(buf, at)
            after = _after_tuples(buf, at + _HEAD_SIZE, _TUPLES.get(tag + kind, 0))
            if framing == SEPARATED:
                stop = after
                if buf[stop] != _NEWLINE or stop >= end or stop - at > _LARGE:
                    break
            if not after or after != stop or (only is not None and subxid != only):
                break
            only = subxid
            oids[oid] = None
            data = buf[frame:stop] if framing != SEPARATED else _NO_POSITION + buf[frame:stop]
            frames += (LENGTH.pack(len(data)), data)
            pos = stop + (framing == SEPARATED)
    except (IndexError, struct.error):
        pass
    return pos, b"".join(frames), only or 0, tuple(oids)


def _frame(buf: Buffer, pos: int, end: int, framing: int) -> tuple[int, int]:
    """Where the frame (or bare message) at `pos` starts and ends. Raises IndexError if it is not an XLogData frame."""
    if framing == SEPARATED:
        return pos, end
    if framing == COPY_DATA and buf[pos] != COPY_DATA_TAG:
        raise IndexError
    start, stop = bounds(buf, pos, framing)
    if buf[start] != XLOG_DATA or stop > end or stop - start > _LARGE:
        raise IndexError
    return start, stop


def _after_tuples(buf: Buffer, pos: int, tuples: int) -> int:
    """Where the last of `tuples` tuples ends, with an N before the second one; 0 if they are invalid."""
    left = tuples
    while left:
        (count,) = _COUNT(buf, pos)
        if count > MAX_COLUMNS:
            return 0
        pos += 2
        for _ in range(count):
            kind = buf[pos]
            if kind in _SIZED:
                pos += 5 + LENGTH.unpack_from(buf, pos + 1)[0]
            elif kind in _EMPTY:
                pos += 1
            else:
                return 0
        left -= 1
        if left:
            if buf[pos] != _NEW:
                return 0
            pos += 1
    return pos if tuples else 0
