"""The message kinds of pgoutput: each tag's class, its role, and whether it may appear inside a stream segment."""

from __future__ import annotations

import enum
from typing import Any, Final, NamedTuple

from pgtail.pgoutput.rows import Delete, Insert, Truncate, Update
from pgtail.pgoutput.schema import Relation, Type
from pgtail.pgoutput.streaming import StreamAbort, StreamCommit, StreamStart, StreamStop
from pgtail.pgoutput.transaction import Begin, Commit, Message, Origin
from pgtail.pgoutput.two_phase import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared, StreamPrepare
from pgtail.pgoutput.walsender import Keepalive, StandbyStatusUpdate, XLogData


class Role(enum.Enum):
    """What a message does to the stream."""

    BEGIN = enum.auto()
    END = enum.auto()
    """Commit or Prepare of a transaction that is not streamed."""
    OUTCOME = enum.auto()
    """A prepared transaction was committed or rolled back."""
    ROW = enum.auto()
    TRUNCATE = enum.auto()
    MESSAGE = enum.auto()
    ORIGIN = enum.auto()
    DESCRIPTION = enum.auto()
    """Describes a table or a type."""
    STREAM = enum.auto()
    """Starts or ends a stream segment or a streamed transaction."""


class Kind(NamedTuple):
    """One kind of message; `has_stream_xid` says that inside a stream segment it starts with an xid."""

    message: type[Any]
    role: Role
    has_stream_xid: bool = False


KINDS: Final[dict[int, Kind]] = {
    ord("B"): Kind(Begin, Role.BEGIN),
    ord("M"): Kind(Message, Role.MESSAGE, has_stream_xid=True),
    ord("C"): Kind(Commit, Role.END),
    ord("O"): Kind(Origin, Role.ORIGIN),
    ord("R"): Kind(Relation, Role.DESCRIPTION, has_stream_xid=True),
    ord("Y"): Kind(Type, Role.DESCRIPTION, has_stream_xid=True),
    ord("I"): Kind(Insert, Role.ROW, has_stream_xid=True),
    ord("U"): Kind(Update, Role.ROW, has_stream_xid=True),
    ord("D"): Kind(Delete, Role.ROW, has_stream_xid=True),
    ord("T"): Kind(Truncate, Role.TRUNCATE, has_stream_xid=True),
    ord("S"): Kind(StreamStart, Role.STREAM),
    ord("E"): Kind(StreamStop, Role.STREAM),
    ord("c"): Kind(StreamCommit, Role.STREAM),
    ord("A"): Kind(StreamAbort, Role.STREAM),
    ord("b"): Kind(BeginPrepare, Role.BEGIN),
    ord("P"): Kind(Prepare, Role.END),
    ord("K"): Kind(CommitPrepared, Role.OUTCOME),
    ord("r"): Kind(RollbackPrepared, Role.OUTCOME),
    ord("p"): Kind(StreamPrepare, Role.STREAM),
}
"""Every message of protocol versions 1 to 4, by tag (src/include/replication/logicalproto.h)."""

MESSAGES: Final[dict[int, type[Any]]] = {tag: kind.message for tag, kind in KINDS.items()}
FRAMES: Final[dict[int, type[Any]]] = {ord("w"): XLogData, ord("k"): Keepalive, ord("r"): StandbyStatusUpdate}
"""The walsender's frames, by tag."""

HAVE_STREAM_XID: Final = frozenset([tag for tag, kind in KINDS.items() if kind.has_stream_xid])
IN_STREAM: Final = HAVE_STREAM_XID | {ord("O")}
"""The tags that may appear both inside and outside a stream segment. Origin has no xid in either place."""


def tags(*roles: Role) -> frozenset[int]:
    """The tags of the messages with these roles."""
    return frozenset([tag for tag, kind in KINDS.items() if kind.role in roles])


def messages(*roles: Role) -> frozenset[type]:
    """The classes of the messages with these roles."""
    return frozenset([kind.message for kind in KINDS.values() if kind.role in roles])
