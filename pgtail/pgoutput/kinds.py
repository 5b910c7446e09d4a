"""The one table of message kinds: tag, class, role, whether it may appear in a stream segment, how its bytes begin."""

from __future__ import annotations

import enum
from typing import Any, Final, NamedTuple, TypeAlias

from pgtail.pgoutput.rows import Delete, Insert, Truncate, Update
from pgtail.pgoutput.schema import Relation, Type
from pgtail.pgoutput.streaming import StreamAbort, StreamCommit, StreamStart, StreamStop
from pgtail.pgoutput.transaction import Begin, Commit, Message, Origin
from pgtail.pgoutput.two_phase import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared, StreamPrepare
from pgtail.pgoutput.walsender import Keepalive, StandbyStatusUpdate, XLogData


class Role(enum.Enum):
    """The role of a message in the stream."""

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
    SEGMENT = enum.auto()
    """Starts or ends a stream segment."""
    STREAM_END = enum.auto()
    """Commit, Prepare or Abort of a streamed transaction."""


class Kind(NamedTuple):
    """One kind of message; `has_stream_xid` says that inside a stream segment it starts with an xid.

    `start` is a pattern of the bytes after the tag, as servers send them: flags are 0, the high byte of an LSN is 0, no
    table has 1792 columns. `light`: random bytes may resemble it, a letter with a few numbers and names.
    """

    message: type[Any]
    role: Role
    start: bytes = b""
    has_stream_xid: bool = False
    light: bool = False


KINDS: Final[dict[int, Kind]] = {
    ord("B"): Kind(Begin, Role.BEGIN, rb"\0"),
    ord("M"): Kind(Message, Role.MESSAGE, rb"(?:.{4})?[\0\1]\0", has_stream_xid=True),
    ord("C"): Kind(Commit, Role.END, rb"\0\0"),
    ord("O"): Kind(Origin, Role.ORIGIN, rb"\0", light=True),
    ord("R"): Kind(Relation, Role.DESCRIPTION, has_stream_xid=True),
    ord("Y"): Kind(Type, Role.DESCRIPTION, has_stream_xid=True, light=True),
    ord("I"): Kind(Insert, Role.ROW, rb".{4}(?:.{4})?N[\0-\6]", has_stream_xid=True),
    ord("U"): Kind(Update, Role.ROW, rb".{4}(?:.{4})?[KON][\0-\6]", has_stream_xid=True),
    ord("D"): Kind(Delete, Role.ROW, rb".{4}(?:.{4})?[KO][\0-\6]", has_stream_xid=True),
    ord("T"): Kind(Truncate, Role.TRUNCATE, rb"(?:.{4})?\0.{3}[\0-\3]", has_stream_xid=True),
    ord("S"): Kind(StreamStart, Role.SEGMENT, rb".{4}[\0\1]", light=True),
    ord("E"): Kind(StreamStop, Role.SEGMENT, light=True),
    ord("c"): Kind(StreamCommit, Role.STREAM_END, rb".{4}\0\0"),
    ord("A"): Kind(StreamAbort, Role.STREAM_END, light=True),
    ord("b"): Kind(BeginPrepare, Role.BEGIN, rb"\0"),
    ord("P"): Kind(Prepare, Role.END),
    ord("K"): Kind(CommitPrepared, Role.OUTCOME),
    ord("r"): Kind(RollbackPrepared, Role.OUTCOME),
    ord("p"): Kind(StreamPrepare, Role.STREAM_END),
}
"""Every message of protocol versions 1 to 4, by tag (src/include/replication/logicalproto.h)."""

_OfTransactions: TypeAlias = Begin | Message | Commit | Origin
_OfTables: TypeAlias = Relation | Type | Insert | Update | Delete | Truncate
_Streaming: TypeAlias = StreamStart | StreamStop | StreamCommit | StreamAbort | StreamPrepare
_TwoPhase: TypeAlias = BeginPrepare | Prepare | CommitPrepared | RollbackPrepared
DefinedMessage: TypeAlias = _OfTransactions | _OfTables | _Streaming | _TwoPhase

MESSAGES: Final[dict[int, type[Any]]] = {tag: kind.message for tag, kind in KINDS.items()}
TAGS: Final[dict[type, int]] = {kind.message: tag for tag, kind in KINDS.items()}
FRAMES: Final[dict[int, type[Any]]] = {ord("w"): XLogData, ord("k"): Keepalive, ord("r"): StandbyStatusUpdate}
"""The walsender's frames, by tag."""

HAVE_STREAM_XID: Final = frozenset([tag for tag, kind in KINDS.items() if kind.has_stream_xid])
IN_STREAM: Final = HAVE_STREAM_XID | {TAGS[Origin]}
"""The tags that may appear both inside and outside a stream segment. Origin has no xid in either place."""


def stream_xid(message: Any) -> int | None:
    """The xid at the start of a message inside a stream segment; None for any other message."""
    return message.xid if TAGS.get(type(message)) in HAVE_STREAM_XID else None


def tags(*roles: Role) -> frozenset[int]:
    """The tags of the messages with these roles."""
    return frozenset([tag for tag, kind in KINDS.items() if kind.role in roles])


def messages(*roles: Role) -> frozenset[type]:
    """The classes of the messages with these roles."""
    return frozenset([kind.message for kind in KINDS.values() if kind.role in roles])
