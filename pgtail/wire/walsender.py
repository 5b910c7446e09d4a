"""Floor 1, the walsender's frames: the payloads of CopyData (manual: streaming replication protocol)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, Self

from pgtail.wire.cursor import LSN, TIME, Cursor, Layout

HEADER: Final = Layout(("start of WAL data", *LSN), ("end of WAL", *LSN), ("server clock", *TIME))
_STATUS: Final = struct.Struct(">cQQQqB")


class XLogData(NamedTuple):
    """w: the header before a message. Start and end are equal for logical decoding, and 0/0 where the server
    had no position to tell (every Relation and Type message, for one)."""

    start_lsn: int
    end_lsn: int
    clock: int

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(*cur.fixed(HEADER))


class Keepalive(NamedTuple):
    """k: how far the server has decoded, and whether it wants an answer at once."""

    end_lsn: int
    clock: int
    reply_requested: int

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(cur.lsn("end of WAL"), cur.time("server clock"), cur.u8("reply requested"))


class StandbyStatusUpdate(NamedTuple):
    """r: what the client has received (`write_lsn`), stored (`flush_lsn`) and applied, each plus one byte.

    Only a flush_lsn other than 0/0 moves the slot (src/backend/replication/walsender.c ProcessStandbyReplyMessage).
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
    """A frame that this version does not know: shown, not fatal (servers from 19 on have one more)."""

    tag_byte: int
    body: bytes
