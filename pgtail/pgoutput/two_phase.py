"""The messages of two-phase commit (protocol 3)."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from pgtail.pgoutput.cursor import INT8, LSN, TIME, XID, Cursor, Layout
from pgtail.pgoutput.transaction import COMMIT

BEGIN_PREPARE: Final = Layout(("prepare_lsn", *LSN), ("end_lsn", *LSN), ("prepare_time", *TIME), ("xid", *XID))
PREPARE: Final = Layout(("flags", *INT8), *BEGIN_PREPARE.fields)
COMMIT_PREPARED: Final = Layout(*COMMIT.fields, ("xid", *XID))
ROLLBACK_PREPARED: Final = Layout(
    *(("flags", *INT8), ("prepare_end_lsn", *LSN), ("rollback_end_lsn", *LSN)),
    *(("prepare_time", *TIME), ("rollback_time", *TIME), ("xid", *XID)),
)


class BeginPrepare(NamedTuple):
    """b: a transaction begins that ends with Prepare."""

    prepare_lsn: int
    end_lsn: int
    prepare_time: int
    xid: int
    gid: str

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls._make((*cur.fixed(BEGIN_PREPARE), cur.string("gid")))


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
        return cls._make((*cur.fixed(PREPARE), cur.string("gid")))


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
        return cls._make((*cur.fixed(COMMIT_PREPARED), cur.string("gid")))


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
        return cls._make((*cur.fixed(ROLLBACK_PREPARED), cur.string("gid")))


class StreamPrepare(Prepare):
    """p: a streamed transaction is prepared; it has the fields of Prepare."""

    __slots__ = ()
