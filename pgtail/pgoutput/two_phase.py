"""The messages of two-phase commit (protocol 3)."""

from __future__ import annotations

from typing import NamedTuple, Self

from pgtail.pgoutput.cursor import Cursor


class BeginPrepare(NamedTuple):
    """b: a transaction begins that ends with Prepare."""

    prepare_lsn: int
    end_lsn: int
    prepare_time: int
    xid: int
    gid: str

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(
            cur.lsn("prepare_lsn"), cur.lsn("end_lsn"), cur.time("prepare_time"), cur.xid("xid"), cur.string("gid")
        )


class Prepare(NamedTuple):
    """P: the transaction is prepared."""

    flags: int
    prepare_lsn: int
    end_lsn: int
    prepare_time: int
    xid: int
    gid: str

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(
            cur.u8("flags"),
            cur.lsn("prepare_lsn"),
            cur.lsn("end_lsn"),
            cur.time("prepare_time"),
            cur.xid("xid"),
            cur.string("gid"),
        )


class CommitPrepared(NamedTuple):
    """K: a prepared transaction is committed."""

    flags: int
    commit_lsn: int
    end_lsn: int
    commit_time: int
    xid: int
    gid: str

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(
            cur.u8("flags"),
            cur.lsn("commit_lsn"),
            cur.lsn("end_lsn"),
            cur.time("commit_time"),
            cur.xid("xid"),
            cur.string("gid"),
        )


class RollbackPrepared(NamedTuple):
    """r: a prepared transaction is rolled back."""

    flags: int
    prepare_end_lsn: int
    rollback_end_lsn: int
    prepare_time: int
    rollback_time: int
    xid: int
    gid: str

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(
            cur.u8("flags"),
            cur.lsn("prepare_end_lsn"),
            cur.lsn("rollback_end_lsn"),
            cur.time("prepare_time"),
            cur.time("rollback_time"),
            cur.xid("xid"),
            cur.string("gid"),
        )


class StreamPrepare(Prepare):
    """p: a streamed transaction is prepared; it has the fields of Prepare."""

    __slots__ = ()
