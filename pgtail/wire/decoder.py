"""Floor 1, the decoder: one message from bytes; the only holder of "inside a stream segment"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias

from pgtail.errors import DecodeError, Malformed, Truncated
from pgtail.wire.capture import Continued
from pgtail.wire.cursor import Buffer, Cursor
from pgtail.wire.rows import Delete, Insert, Truncate, Update
from pgtail.wire.schema import Relation, Type
from pgtail.wire.stream import StreamAbort, StreamCommit, StreamStart, StreamStop
from pgtail.wire.transaction import Begin, Commit, Message, Origin
from pgtail.wire.two_phase import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared, StreamPrepare
from pgtail.wire.walsender import HEADER, Keepalive, StandbyStatusUpdate, UnknownFrame, XLogData


class Unknown(NamedTuple):
    """A message of a kind that protocol versions 1 to 4 do not have, in a frame of known length."""

    tag_byte: int
    body: bytes


AnyMessage: TypeAlias = (
    Begin
    | Message
    | Commit
    | Origin
    | Relation
    | Type
    | Insert
    | Update
    | Delete
    | Truncate
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
    | BeginPrepare
    | Prepare
    | CommitPrepared
    | RollbackPrepared
    | StreamPrepare
    | Unknown
)
AnyFrame: TypeAlias = AnyMessage | Keepalive | StandbyStatusUpdate | UnknownFrame | Continued

Decoded: TypeAlias = tuple[AnyFrame, int | None, int, int | None]
"""What every input and the live session yield: (message, LSN if known, offset in the source, server clock if known).

A plain tuple, because one is made for each message. The LSN is never 0/0.
"""

MESSAGES: Final[dict[int, type[Any]]] = {
    ord("B"): Begin,
    ord("M"): Message,
    ord("C"): Commit,
    ord("O"): Origin,
    ord("R"): Relation,
    ord("Y"): Type,
    ord("I"): Insert,
    ord("U"): Update,
    ord("D"): Delete,
    ord("T"): Truncate,
    ord("S"): StreamStart,
    ord("E"): StreamStop,
    ord("c"): StreamCommit,
    ord("A"): StreamAbort,
    ord("b"): BeginPrepare,
    ord("P"): Prepare,
    ord("K"): CommitPrepared,
    ord("r"): RollbackPrepared,
    ord("p"): StreamPrepare,
}
"""Every message of protocol versions 1 to 4, by its first byte (src/include/replication/logicalproto.h)."""

FRAMES: Final[dict[int, type[Any]]] = {ord("w"): XLogData, ord("k"): Keepalive, ord("r"): StandbyStatusUpdate}

_IN_STREAM = frozenset(b"RYIUDTM")
"""The messages that may stand inside a stream segment, where they carry an xid."""

_STREAM_START, _STREAM_ABORT, _ORIGIN = b"SAO"
_SHORT_ABORT, _LONG_ABORT = 9, 25

XLOG_DATA: Final = ord("w")
XLOG_HEADER_SIZE: Final = 1 + HEADER.size
_header = HEADER.unpack_from

Assume: TypeAlias = Literal["on", "parallel"] | None

SEPARATED: Final = 0
"""The framing of messages without frames, each with a newline behind it."""
LENGTHS: Final = 4
"""The framing of walsender frames, each behind an int32 length that does not count itself."""
COPY_DATA: Final = 5
"""The framing of walsender frames in CopyData: behind a byte `d` and an int32 length that counts itself."""

RowTaker: TypeAlias = Callable[[Buffer, int, int, int], int]
"""A short way for ordinary messages: (buf, pos, end, framing).

Returns where the first one starts that is to be decoded as any other.
"""


class Decoder:
    """Decodes messages one after another, as one stream sent them.

    `assume` says which streaming option the stream was made with, where that is known: only it tells whether
    Stream Abort has a log position and time. Without it the length of the frame or what follows decides.

    `in_stream` is None at the start of a stream of unknown origin: the first message that could stand on either
    side of the border then decides.
    """

    def __init__(self, *, assume: Assume = None, encoding: str = "utf-8", cursor: Cursor | None = None) -> None:
        self.assume = assume
        self.cursor = cursor or Cursor()
        self.cursor.encoding = encoding
        self.separator: bytes | None = None
        """What stands between messages where nothing else tells their length; None where frames do."""
        self.segment = ""
        """The segment of a capture that was read to its end last."""
        self.in_stream: bool | None = None
        self.rows: RowTaker | None = None
        """What may take ordinary messages outside of stream segments before they are decoded: see take_rows()."""
        self.segment_rows: RowTaker | None = None
        """The same for those inside."""

    def frame(self, buf: Buffer, pos: int, end: int) -> tuple[AnyFrame, int | None, int | None]:
        """Decode a walsender frame that is `buf[pos:end]`: (message or frame, LSN, server clock).

        Raises Truncated or Malformed, with positions in `buf`.
        """
        cur = self.cursor
        start = pos + XLOG_HEADER_SIZE
        if start < end and buf[pos] == XLOG_DATA and not cur.traced:
            lsn, _, clock = _header(buf, pos + 1)
            cur.start(buf, start, end)
            return self._message(cur), lsn or None, clock
        cur.start(buf, pos, end)
        kind = "frame"
        try:
            tag = cur.u8("frame", "Byte1")
            frame = FRAMES.get(tag)
            if frame is None:
                return UnknownFrame(tag, cur.content(end - cur.pos, "body")), None, None
            kind = frame.__name__
            header: XLogData | Keepalive | StandbyStatusUpdate = frame.read(cur)
            if not isinstance(header, XLogData):
                if cur.pos != cur.end:
                    self._leftover(cur, header)
                return header, (header.end_lsn or None if isinstance(header, Keepalive) else None), header.clock
        except DecodeError as error:
            error.message = kind
            raise
        return self._message(cur), header.start_lsn or None, header.clock

    def take_rows(self, buf: Buffer, pos: int, end: int, framing: int) -> int:
        """Pass over the messages that `rows` or `segment_rows` takes; returns where the first other one starts."""
        taker = self.segment_rows if self.in_stream else self.rows if self.in_stream is False else None
        return pos if taker is None or pos >= end else taker(buf, pos, end, framing)

    def message(self, buf: Buffer, pos: int, end: int) -> AnyMessage:
        """Decode a message that is exactly `buf[pos:end]`. Raises Truncated or Malformed."""
        cur = self.cursor
        cur.start(buf, pos, end)
        return self._message(cur)

    def next_message(self, buf: Buffer, pos: int, end: int, *, final: bool) -> AnyMessage:
        """Decode the message that starts at `pos` and ends where it ends; `cursor.pos` tells where that is.

        `final` says that nothing follows `end`. Raises Truncated (more bytes may help unless `final`) or Malformed.
        """
        cur = self.cursor
        cur.start(buf, pos, end)
        if pos < end and buf[pos] == _STREAM_ABORT:
            cur.abort_info = self._long_abort(buf, pos, end, final)
        return self._read(cur)

    def _message(self, cur: Cursor) -> AnyMessage:
        """The rest of a frame, which must be one whole message."""
        start = cur.pos
        if start < cur.end and cur.buf[start] == _STREAM_ABORT:
            size = cur.end - start
            cur.abort_info = size > _SHORT_ABORT if self.assume is None else self.assume == "parallel"
        if self.in_stream is None and start < cur.end and cur.buf[start] in _IN_STREAM:
            return self._on_either_side(cur)
        return self._whole(cur)

    def _on_either_side(self, cur: Cursor) -> AnyMessage:
        """A message of a source that may have started inside a stream segment: the reading that decodes.

        Only a Message can decode both ways. The wrong reading then takes bytes of the xid or of the prefix for the
        upper half of a log position: the lower one is right.
        """
        start = cur.pos
        outside = self._try(cur)
        if outside is not None and not isinstance(outside, Message):
            return outside
        self.in_stream = True
        cur.rewind(start)
        inside = self._try(cur)
        if isinstance(outside, Message) and isinstance(inside, Message) and outside.lsn < inside.lsn:
            inside = None
        if inside is not None:
            return inside
        self.in_stream = None
        cur.rewind(start)
        return self._whole(cur)

    def _try(self, cur: Cursor) -> AnyMessage | None:
        try:
            return self._whole(cur)
        except DecodeError:
            return None

    def _whole(self, cur: Cursor) -> AnyMessage:
        message = self._read(cur)
        if cur.pos != cur.end:
            self._leftover(cur, message)
        return message

    def _read(self, cur: Cursor) -> AnyMessage:
        if cur.pos >= cur.end:
            raise Truncated("a message should stand here", offset=cur.pos)
        tag = cur.tag()
        kind = MESSAGES.get(tag)
        if kind is None:
            if self.separator is not None:
                raise Malformed(f"no message starts with byte 0x{tag:02x}", offset=cur.pos - 1)
            return Unknown(tag, cur.content(cur.end - cur.pos, "body"))
        may_be_inside = tag in _IN_STREAM
        if may_be_inside:
            cur.in_stream = self.in_stream is True
        try:
            message: AnyMessage = kind.read(cur)
        except DecodeError as error:
            error.message = kind.__name__
            raise
        if not may_be_inside and tag != _ORIGIN:  # Origin stands on either side, without an xid
            self.in_stream = tag == _STREAM_START
        return message

    def _leftover(self, cur: Cursor, message: AnyFrame) -> NoReturn:
        left = cur.end - cur.pos
        kind = type(message).__name__
        raise Malformed(f"{left} byte{'s'[: left != 1]} left over", offset=cur.pos, message=kind)

    def _long_abort(self, buf: Buffer, pos: int, end: int, final: bool) -> bool:
        """Whether a Stream Abort of unknown length has its log position and time: by what follows the short form.

        The ninth byte would be the highest of a log position, and no log is long enough for that to be a
        separator or a message's tag.
        """
        if self.assume is not None:
            return self.assume == "parallel"
        after = pos + _SHORT_ABORT
        if self.separator:
            if buf[after : min(after + len(self.separator), end)] != self.separator[: max(end - after, 0)]:
                return True
            after += len(self.separator)
        if after >= end:
            if not final:
                raise Truncated("what follows is needed to tell its length", offset=pos, message="StreamAbort")
            return False
        return buf[after] not in MESSAGES
