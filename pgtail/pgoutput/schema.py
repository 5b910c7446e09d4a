"""The messages that describe tables and types: Relation and Type."""

from __future__ import annotations

from typing import NamedTuple, Self

from pgtail.errors import Malformed
from pgtail.pgoutput.cursor import MAX_COLUMNS, Cursor


class RelationColumn(NamedTuple):
    """One column of a Relation; bit 0 of `flags` marks the columns of the replica identity."""

    flags: int
    name: str
    type_oid: int
    typmod: int

    @classmethod
    def read(cls, cur: Cursor, field: str) -> Self:
        return cls(
            cur.u8(f"{field} flags"),
            cur.string(f"{field} name"),
            cur.oid(f"{field} type"),
            cur.i32(f"{field} atttypmod"),
        )


class Relation(NamedTuple):
    """R: describes a table from here on. An empty namespace is pg_catalog; `identity` is pg_class.relreplident."""

    xid: int | None
    oid: int
    namespace: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        xid = cur.stream_xid()
        oid, namespace, name = cur.oid("oid"), cur.string("namespace"), cur.string("relation name")
        identity = chr(cur.marker("replica identity", b"dnfi"))
        count = cur.u16("number of columns")
        if count > MAX_COLUMNS:
            raise Malformed(f"{count} columns", offset=cur.pos - 2, field="number of columns")
        columns = tuple([RelationColumn.read(cur, f"column[{index}]") for index in range(count)])
        return cls(xid, oid, namespace, name, identity, columns)


class Type(NamedTuple):
    """Y: the name of a type that is not built in. A domain has its own OID and the name of its base type."""

    xid: int | None
    oid: int
    namespace: str
    name: str

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(cur.stream_xid(), cur.oid("oid"), cur.string("namespace"), cur.string("name"))
