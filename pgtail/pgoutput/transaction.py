"""The messages Begin, Commit and Origin, and the logical decoding Message."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from pgtail.pgoutput.cursor import INT8, LSN, MAX_LENGTH, TIME, XID, Cursor, Layout

BEGIN: Final = Layout(("final_lsn", *LSN), ("commit_time", *TIME), ("xid", *XID))
COMMIT: Final = Layout(("flags", *INT8), ("commit_lsn", *LSN), ("end_lsn", *LSN), ("commit_time", *TIME))


class Begin(NamedTuple):
    """B: a transaction begins; all messages up to Commit belong to it."""

    final_lsn: int
    commit_time: int
    xid: int

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(*cur.fixed(BEGIN))

    def encode(self) -> bytes:
        return b"B" + BEGIN.pack(*self)


class Commit(NamedTuple):
    """C: the transaction is committed. Resume at `end_lsn`; `commit_lsn` equals Begin's final_lsn."""

    flags: int
    commit_lsn: int
    end_lsn: int
    commit_time: int

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(*cur.fixed(COMMIT))

    def encode(self) -> bytes:
        return b"C" + COMMIT.pack(*self)


class Origin(NamedTuple):
    """O: the transaction came from another server."""

    origin_lsn: int
    name: str

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(cur.lsn("origin_lsn"), cur.string("name"))


class Message(NamedTuple):
    """M: a message written by pg_logical_emit_message; bit 0 of `flags` marks a transactional one."""

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
