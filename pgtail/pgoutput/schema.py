"""The messages that describe tables and types: Relation and Type."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, Self

from pgtail.errors import Malformed
from pgtail.pgoutput.cursor import MAX_COLUMNS, Cursor

_COLUMN_TYPE: Final = struct.Struct(">Ii")
_OID: Final = struct.Struct(">I")
_COUNT: Final = struct.Struct(">H")


class RelationColumn(NamedTuple):
    """One column of a Relation; bit 0 of `flags` marks the columns of the replica identity."""

    flags: int
    name: str
    type_oid: int
    typmod: int

    @property
    def is_key(self) -> bool:
        return bool(self.flags & 1)

    @classmethod
    def read(cls, cur: Cursor, field: str) -> Self:
        return cls(
            cur.u8(f"{field} flags"),
            cur.string(f"{field} name"),
            cur.oid(f"{field} type"),
            cur.i32(f"{field} atttypmod"),
        )

    def encode(self, encoding: str) -> bytes:
        return bytes((self.flags,)) + _string(self.name, encoding) + _COLUMN_TYPE.pack(self.type_oid, self.typmod)


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

    def encode(self, encoding: str = "utf-8") -> bytes:
        """The message outside a stream segment (src/backend/replication/logical/proto.c, logicalrep_write_rel)."""
        assert self.xid is None
        head = b"R" + _OID.pack(self.oid) + _string(self.namespace, encoding) + _string(self.name, encoding)
        columns = [column.encode(encoding) for column in self.columns]
        return head + self.identity.encode() + _COUNT.pack(len(columns)) + b"".join(columns)


class Type(NamedTuple):
    """Y: the name of a type that is not built in. A domain has its own OID and the name of its base type."""

    xid: int | None
    oid: int
    namespace: str
    name: str

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(cur.stream_xid(), cur.oid("oid"), cur.string("namespace"), cur.string("name"))

    def encode(self, encoding: str = "utf-8") -> bytes:
        """The message outside a stream segment (src/backend/replication/logical/proto.c, logicalrep_write_typ)."""
        assert self.xid is None
        return b"Y" + _OID.pack(self.oid) + _string(self.namespace, encoding) + _string(self.name, encoding)


def _string(text: str, encoding: str) -> bytes:
    """A null-terminated string; lone surrogates are the bytes that could not be decoded."""
    return text.encode(encoding, "surrogateescape") + b"\0"
