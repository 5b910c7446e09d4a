"""Floor 1, the messages around a transaction: Begin, Commit, Origin, and the logical decoding Message."""

from __future__ import annotations

from typing import NamedTuple, Self

from pgtail.wire.cursor import MAX_LENGTH, Cursor


class Begin(NamedTuple):
    """B: a transaction begins; everything up to its Commit belongs to it."""

    final_lsn: int
    commit_time: int
    xid: int

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(cur.lsn("final_lsn"), cur.time("commit_time"), cur.xid("xid"))


class Commit(NamedTuple):
    """C: the transaction is committed; `end_lsn` is where to resume, `commit_lsn` equals Begin's final_lsn."""

    flags: int
    commit_lsn: int
    end_lsn: int
    commit_time: int

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(cur.u8("flags"), cur.lsn("commit_lsn"), cur.lsn("end_lsn"), cur.time("commit_time"))


class Origin(NamedTuple):
    """O: the transaction came from another server."""

    origin_lsn: int
    name: str

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(cur.lsn("origin_lsn"), cur.string("name"))


class Message(NamedTuple):
    """M: a message written by pg_logical_emit_message; bit 0 of `flags` says that it is transactional."""

    xid: int | None
    flags: int
    lsn: int
    prefix: str
    content: bytes

    @property
    def transactional(self) -> bool:
        return bool(self.flags & 1)

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        xid = cur.stream_xid()
        flags, lsn, prefix = cur.u8("flags"), cur.lsn("lsn"), cur.string("prefix", MAX_LENGTH)
        return cls(xid, flags, lsn, prefix, cur.content(cur.length("length"), "content"))
