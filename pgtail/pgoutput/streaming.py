"""The messages of streamed transactions (protocol 2): Stream Start, Stop, Commit and Abort."""

from __future__ import annotations

from typing import NamedTuple, Self

from pgtail.pgoutput.cursor import Cursor
from pgtail.pgoutput.transaction import COMMIT


class StreamStart(NamedTuple):
    """S: a segment of transaction `xid` starts. Messages inside it carry the xid of their (sub)transaction."""

    xid: int
    first_segment: int

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(cur.xid("xid"), cur.u8("first segment"))


class StreamStop(NamedTuple):
    """E: the segment ends."""

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls()


class StreamCommit(NamedTuple):
    """c: a streamed transaction is committed."""

    xid: int
    flags: int
    commit_lsn: int
    end_lsn: int
    commit_time: int

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(cur.xid("xid"), *cur.fixed(COMMIT))


class StreamAbort(NamedTuple):
    """A: a streamed (sub)transaction is rolled back; `subxid` equals `xid` for the top-level transaction.

    The LSN and time are present only with streaming=parallel, in any protocol version
    (src/backend/replication/pgoutput/pgoutput.c, write_abort_info).
    """

    xid: int
    subxid: int
    abort_lsn: int | None
    abort_time: int | None

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        xid, subxid = cur.xid("xid"), cur.xid("subxid")
        if not cur.abort_info:
            return cls(xid, subxid, None, None)
        return cls(xid, subxid, cur.lsn("abort_lsn"), cur.time("abort_time"))
