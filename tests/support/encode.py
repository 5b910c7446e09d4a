"""Messages as bytes, by the layouts in the manual ("Logical Replication Message Formats"), if no capture has them.

Knows nothing of pgtail. A cell is None (NULL), UNCHANGED, a str (text form), or bytes (binary form).
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Sequence
from typing import TypeAlias


class Unchanged(enum.Enum):
    """The TOASTed value that was not sent."""

    UNCHANGED = "u"


UNCHANGED = Unchanged.UNCHANGED
Cell: TypeAlias = None | Unchanged | str | bytes

INT4, TEXT = 23, 25


def string(text: str | bytes) -> bytes:
    return (text.encode() if isinstance(text, str) else text) + b"\0"


def xid_if(xid: int | None) -> bytes:
    """Messages carry one inside stream segments only."""
    return b"" if xid is None else struct.pack(">I", xid)


def cell(value: Cell) -> bytes:
    match value:
        case None:
            return b"n"
        case Unchanged():
            return b"u"
        case str():
            return b"t" + struct.pack(">I", len(value.encode())) + value.encode()
        case bytes():
            return b"b" + struct.pack(">I", len(value)) + value


def text(data: bytes) -> bytes:
    """A cell in text form whose bytes need not be UTF-8."""
    return b"t" + struct.pack(">I", len(data)) + data


def row(cells: Sequence[Cell]) -> bytes:
    return struct.pack(">H", len(cells)) + b"".join(map(cell, cells))


def begin(xid: int = 7, lsn: int = 0x100, time: int = 0) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, time, xid)


def commit(lsn: int = 0x100, end: int = 0x108, time: int = 0, flags: int = 0) -> bytes:
    return b"C" + struct.pack(">BQQq", flags, lsn, end, time)


def snapshot(*rows: Sequence[Cell], oid: int = 100, name: str = "t", end: int = 0x100, time: int = 0) -> list[bytes]:
    """The rows of a table, as they were at the LSN `end`; xid 0 is what says that."""
    inserts = [insert(*cells, oid=oid) for cells in rows]
    return [begin(0, end - 1, time), relation(oid, name), *inserts, commit(end - 1, end, time)]


def origin(name: str | bytes, lsn: int = 0) -> bytes:
    return b"O" + struct.pack(">Q", lsn) + string(name)


def relation(
    oid: int = 100,
    name: str | bytes = "t",
    columns: Iterable[tuple[str | bytes, int]] = (("id", INT4), ("v", TEXT)),
    *,
    schema: str | bytes = "public",
    identity: str = "d",
    key: Sequence[int] = (0,),
    xid: int | None = None,
) -> bytes:
    """A Relation; `key` numbers the columns of the replica identity from 0."""
    described = [
        struct.pack(">B", index in key) + string(column) + struct.pack(">Ii", type_, -1)
        for index, (column, type_) in enumerate(columns)
    ]
    head = b"R" + xid_if(xid) + struct.pack(">I", oid) + string(schema) + string(name) + identity.encode()
    return head + struct.pack(">H", len(described)) + b"".join(described)


def type_(oid: int, name: str, schema: str = "public", xid: int | None = None) -> bytes:
    return b"Y" + xid_if(xid) + struct.pack(">I", oid) + string(schema) + string(name)


def insert(*cells: Cell, oid: int = 100, xid: int | None = None) -> bytes:
    return b"I" + xid_if(xid) + struct.pack(">I", oid) + b"N" + row(cells)


def update(
    new: Sequence[Cell], old: Sequence[Cell] | None = None, kind: str = "K", *, oid: int = 100, xid: int | None = None
) -> bytes:
    before = b"" if old is None else kind.encode() + row(old)
    return b"U" + xid_if(xid) + struct.pack(">I", oid) + before + b"N" + row(new)


def delete(*old: Cell, kind: str = "K", oid: int = 100, xid: int | None = None) -> bytes:
    return b"D" + xid_if(xid) + struct.pack(">I", oid) + kind.encode() + row(old)


def truncate(*oids: int, options: int = 0, xid: int | None = None) -> bytes:
    return (
        b"T" + xid_if(xid) + struct.pack(">IB", len(oids), options) + b"".join(struct.pack(">I", oid) for oid in oids)
    )


def message(
    content: bytes, prefix: str | bytes = "p", *, transactional: bool = True, lsn: int = 0x90, xid: int | None = None
) -> bytes:
    head = struct.pack(">BQ", transactional, lsn) + string(prefix)
    return b"M" + xid_if(xid) + head + struct.pack(">I", len(content)) + content


def stream_start(xid: int = 7, first: int = 1) -> bytes:
    return b"S" + struct.pack(">IB", xid, first)


STREAM_STOP = b"E"


def stream_commit(xid: int = 7, lsn: int = 0x100, end: int = 0x108, time: int = 0) -> bytes:
    return b"c" + struct.pack(">IBQQq", xid, 0, lsn, end, time)


def stream_abort(xid: int, subxid: int) -> bytes:
    return b"A" + struct.pack(">II", xid, subxid)


def begin_prepare(xid: int = 7, gid: str | bytes = "g", lsn: int = 0x100, end: int = 0x108, time: int = 0) -> bytes:
    return b"b" + struct.pack(">QQqI", lsn, end, time, xid) + string(gid)


def prepare(
    xid: int = 7, gid: str | bytes = "g", lsn: int = 0x100, end: int = 0x108, time: int = 0, tag: bytes = b"P"
) -> bytes:
    """Prepare, or with the tag p Stream Prepare."""
    return tag + struct.pack(">BQQqI", 0, lsn, end, time, xid) + string(gid)


def commit_prepared(xid: int = 7, gid: str | bytes = "g", lsn: int = 0x200, end: int = 0x208, time: int = 0) -> bytes:
    return b"K" + struct.pack(">BQQqI", 0, lsn, end, time, xid) + string(gid)


def rollback_prepared(
    xid: int = 7, gid: str | bytes = "g", prepare_end: int = 0x108, end: int = 0x208, time: int = 0, then: int = 0
) -> bytes:
    return b"r" + struct.pack(">BQQqqI", 0, prepare_end, end, time, then, xid) + string(gid)


def frame(data: bytes, lsn: int = 0) -> bytes:
    """XLogData around a message."""
    return b"w" + struct.pack(">QQq", lsn, lsn, 0) + data


def lengths(*messages: bytes, lsn: int = 0) -> bytes:
    """Frames, each after its int32 length."""
    frames = [frame(data, lsn) for data in messages]
    return b"".join(struct.pack(">i", len(data)) + data for data in frames)


def recvlogical(*messages: bytes) -> bytes:
    """A file of pg_recvlogical."""
    return b"".join(data + b"\n" for data in messages)
