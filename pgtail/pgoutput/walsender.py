"""The walsender's frames: the payloads of CopyData (manual: streaming replication protocol)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, Self

from pgtail.pgoutput.cursor import LSN, TIME, Cursor, Layout

HEADER: Final = Layout(("start of WAL data", *LSN), ("end of WAL", *LSN), ("server clock", *TIME))
_STATUS: Final = struct.Struct(">cQQQqB")


class XLogData(NamedTuple):
    """w: the header before a message.

    In logical decoding start and end are equal; both are 0/0 for messages without a position, such as Relation.
    """

    start_lsn: int
    end_lsn: int
    clock: int

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(*cur.fixed(HEADER))


class Keepalive(NamedTuple):
    """k: how far the server has decoded, and whether it requests an immediate reply."""

    end_lsn: int
    clock: int
    reply_requested: int

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(cur.lsn("end of WAL"), cur.time("server clock"), cur.u8("reply requested"))


class StandbyStatusUpdate(NamedTuple):
    """r: the last position that the client has written, flushed and applied, each plus 1.

    The slot advances only for a flush_lsn other than 0/0 (src/backend/replication/walsender.c,
    ProcessStandbyReplyMessage).
    """

    write_lsn: int
    flush_lsn: int
    apply_lsn: int
    clock: int
    reply_requested: int

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(
            cur.lsn("written"),
            cur.lsn("flushed"),
            cur.lsn("applied"),
            cur.time("client clock"),
            cur.u8("reply requested"),
        )

    def encode(self) -> bytes:
        """The payload of the CopyData message to send."""
        return _STATUS.pack(b"r", self.write_lsn, self.flush_lsn, self.apply_lsn, self.clock, self.reply_requested)


class UnknownFrame(NamedTuple):
    """A frame of unknown type. It is reported, not an error: PostgreSQL 19 adds one."""

    tag_byte: int
    body: bytes
