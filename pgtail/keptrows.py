"""Floor 3, row messages of stream segments as they lie in the stream: kept without being decoded, until their end."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pgtail.compiled import compiled
from pgtail.wire.cursor import MAX_COLUMNS, Buffer
from pgtail.wire.decoder import COPY_DATA, LENGTHS, SEPARATED, XLOG_DATA, XLOG_HEADER_SIZE

MOST: Final = 256 * 1024
"""About how many bytes are kept together."""
_LARGE: Final = 1024 * 1024
"""Bytes of a message from which on it is decoded at once."""

_LENGTH: Final = struct.Struct(">I")
_COUNT: Final = struct.Struct(">H").unpack_from
_HEAD: Final = struct.Struct(">cIIc").unpack_from
_HEAD_SIZE: Final = 10
"""The tag, the xid, the relation, the kind of tuple."""
_TUPLES: Final = {b"IN": 1, b"UN": 1, b"UK": 2, b"UO": 2, b"DK": 1, b"DO": 1}
_NO_POSITION: Final = b"w" + bytes(XLOG_HEADER_SIZE - 1)

_SIZED, _EMPTY = frozenset(b"tb"), frozenset(b"nu")
_NEW, _COPY, _NEWLINE = b"Nd\n"


class KeptRows(NamedTuple):
    """Row messages of one (sub)transaction, as walsender frames behind their lengths.

    `tables` has the OIDs of their tables, each with the version in force then (Relation.version).
    """

    frames: bytes
    tables: tuple[tuple[int, int], ...]


def rows_of_one(buf: Buffer, pos: int, end: int, framing: int) -> tuple[int, bytes, int, tuple[int, ...]]:
    """Pass over the row messages in a stream segment that start at `pos` and are all of one (sub)transaction.

    Returns where the first other one starts, the rows' frames, their xid, and the OIDs of their tables. What is not
    whole, large or unusual is left to be decoded.
    """
    fast = compiled()
    if fast is not None:
        found: tuple[int, bytes, int, tuple[int, ...]] = fast.rows_of_one(buf, pos, end, framing, MOST)
        return found
    return _rows_of_one(buf, pos, end, framing)


def _rows_of_one(buf: Buffer, pos: int, end: int, framing: int) -> tuple[int, bytes, int, tuple[int, ...]]:
    frames: list[bytes] = []
    oids: dict[int, None] = {}
    start, only = pos, None
    try:
        while pos < end and pos - start < MOST:
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
            frames += (_LENGTH.pack(len(data)), data)
            pos = stop + (framing == SEPARATED)
    except (IndexError, struct.error):
        pass
    return pos, b"".join(frames), only or 0, tuple(oids)


def _frame(buf: Buffer, pos: int, end: int, framing: int) -> tuple[int, int]:
    """Where the frame (or bare message) that stands at `pos` starts and ends; raises IndexError where it is none."""
    if framing == SEPARATED:
        return pos, end
    if framing == COPY_DATA and buf[pos] != _COPY:
        raise IndexError
    start = pos + framing
    stop = start + _LENGTH.unpack_from(buf, start - _LENGTH.size)[0] - (0 if framing == LENGTHS else _LENGTH.size)
    if buf[start] != XLOG_DATA or stop > end or stop - start > _LARGE:
        raise IndexError
    return start, stop


def _after_tuples(buf: Buffer, pos: int, tuples: int) -> int:
    """Where the last of so many tuples ends, with an N before the second one; 0 where they are none."""
    left = tuples
    while left:
        (count,) = _COUNT(buf, pos)
        if count > MAX_COLUMNS:
            return 0
        pos += 2
        for _ in range(count):
            kind = buf[pos]
            if kind in _SIZED:
                pos += 5 + _LENGTH.unpack_from(buf, pos + 1)[0]
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
