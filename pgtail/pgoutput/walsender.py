"""The walsender's frames: the payloads of CopyData (manual: streaming replication protocol)."""

from __future__ import annotations

import re
import struct
from typing import Final, NamedTuple, Self

from pgtail.pgoutput.cursor import INT8, LSN, TIME, Cursor, Layout

HEADER: Final = Layout(("start of WAL data", *LSN), ("end of WAL", *LSN), ("server clock", *TIME))
KEEPALIVE: Final = Layout(("end of WAL", *LSN), ("server clock", *TIME), ("reply requested", *INT8))
_STATUS: Final = Layout(
    ("written", *LSN), ("flushed", *LSN), ("applied", *LSN), ("client clock", *TIME), ("reply requested", *INT8)
)
_LSNS: Final = struct.Struct(">QQ")
_START: Final = (
    r"(?is)\s*START_REPLICATION\s+SLOT\s+"
    r"(\"(?:[^\"]|\"\")+\"|\w+)\s+(?:LOGICAL\s+)?([0-9A-F]+/[0-9A-F]+)\s*(?:\((.*)\))?"
)
_OPTION: Final = r"""(\"(?:[^"]|"")+\"|\w+)\s*(?:'((?:[^']|'')*)')?\s*(?:,|$)"""


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

    def encode(self, message: bytes) -> bytes:
        """The frame of a message."""
        return b"w" + HEADER.pack(*self) + message


def with_lsn(frame: bytes, lsn: int) -> bytes:
    """The frame of a message with this LSN as its start and end."""
    return frame[:1] + _LSNS.pack(lsn, lsn) + frame[1 + _LSNS.size :]


class Keepalive(NamedTuple):
    """k: how far the server has decoded, and whether it requests an immediate reply."""

    end_lsn: int
    clock: int
    reply_requested: int

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        return cls(*cur.fixed(KEEPALIVE))

    def encode(self) -> bytes:
        return b"k" + KEEPALIVE.pack(*self)


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
        return cls(*cur.fixed(_STATUS))

    def encode(self) -> bytes:
        """The payload of the CopyData message to send."""
        return b"r" + _STATUS.pack(*self)


class StartReplication(NamedTuple):
    """Q: the command with which a client starts replication (manual: streaming replication protocol)."""

    command: str

    @classmethod
    def read(cls, cur: Cursor) -> Self:
        cur.u8("type", "Byte1")
        cur.u32("length")
        return cls(cur.string("command"))

    @property
    def slot(self) -> str | None:
        """The name of the slot; None if the command has none or is not understood."""
        found = re.match(_START, self.command)
        return None if found is None else _unquoted(found[1])

    @property
    def lsn(self) -> str | None:
        """The position to start from, as it was written."""
        found = re.match(_START, self.command)
        return None if found is None else found[2]

    @property
    def options(self) -> dict[str, str]:
        """The options for the output plugin."""
        found = re.match(_START, self.command)
        pairs = () if found is None else re.findall(_OPTION, found[3] or "")
        return {_unquoted(name): value.replace("''", "'") for name, value in pairs}


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


class UnknownFrame(NamedTuple):
    """A frame of unknown type. It is reported, not an error: PostgreSQL 19 adds one."""

    tag_byte: int
    body: bytes
