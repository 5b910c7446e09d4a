"""The messages that change rows: Insert, Update, Delete and Truncate."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from pgtail.errors import Malformed, Truncated
from pgtail.pgoutput.cells import TupleData
from pgtail.pgoutput.cursor import BYTE1, OID, Cursor, Layout

_NEW = ord("N")
_new: Final = tuple.__new__
"""Creates a NamedTuple in half the time of its constructor; used for every row."""

_MAX_RELATIONS: Final = 1 << 20
"""Far more tables than one TRUNCATE can lock: a higher count is damage and is not buffered."""

_HEAD: Final = Layout(("relation", *OID), ("tuple kind", *BYTE1))


class Insert(NamedTuple):
    """I: a row was inserted."""

    xid: int | None
    relation: int
    new: TupleData

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        xid = cur.xid("xid") if cur.in_stream else None
        relation, kind = cur.fixed(_HEAD)
        if kind != _NEW:
            cur.reject(kind, "tuple kind", b"N")
        return _new(cls, (xid, relation, cur.tuple_data("new")))


class Update(NamedTuple):
    """U: a row was updated.

    `old_kind` is K (the replica identity's columns; the others are NULL), O (the complete old row, with REPLICA
    IDENTITY FULL) or empty (the replica identity did not change, and no old tuple was sent).
    """

    xid: int | None
    relation: int
    old_kind: str
    old: TupleData | None
    new: TupleData

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        xid = cur.xid("xid") if cur.in_stream else None
        relation, kind = cur.fixed(_HEAD)
        if kind == _NEW:
            return _new(cls, (xid, relation, "", None, cur.tuple_data("new")))
        if kind not in b"KO":
            cur.reject(kind, "tuple kind", b"KON")
        old = cur.tuple_data("old")
        cur.marker("new tuple", b"N")
        return cls(xid, relation, chr(kind), old, cur.tuple_data("new"))


class Delete(NamedTuple):
    """D: a row was deleted; `old_kind` is K or O as in Update."""

    xid: int | None
    relation: int
    old_kind: str
    old: TupleData

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        xid = cur.xid("xid") if cur.in_stream else None
        relation, kind = cur.fixed(_HEAD)
        if kind not in b"KO":
            cur.reject(kind, "tuple kind", b"KO")
        return _new(cls, (xid, relation, chr(kind), cur.tuple_data("old")))


class Truncate(NamedTuple):
    """T: tables were truncated; bit 0 of `options` is CASCADE, bit 1 RESTART IDENTITY."""

    xid: int | None
    options: int
    relations: tuple[int, ...]

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        xid = cur.stream_xid()
        count, options = cur.u32("number of relations"), cur.u8("options")
        if count > _MAX_RELATIONS:
            raise Malformed(f"{count} relations", offset=cur.pos - 5, field="number of relations")
        if count * 4 > cur.end - cur.pos:
            raise Truncated(f"{count} relations do not fit", offset=cur.pos, field="relations")
        return cls(xid, options, tuple([cur.oid(f"relation[{index}]") for index in range(count)]))
