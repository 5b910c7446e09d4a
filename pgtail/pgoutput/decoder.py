"""The decoder: bytes to messages, one at a time. It tracks whether the stream is inside a stream segment."""

from __future__ import annotations

from typing import Final, NamedTuple, NoReturn, TypeAlias

from pgtail.errors import DecodeError, Malformed, Truncated
from pgtail.humanize import plural
from pgtail.pgoutput.cursor import BYTE1, Buffer, Cursor, Layout
from pgtail.pgoutput.kinds import FRAMES, HAVE_STREAM_XID, IN_STREAM, MESSAGES, TAGS, DefinedMessage
from pgtail.pgoutput.streaming import StreamAbort, StreamStart
from pgtail.pgoutput.transaction import Message
from pgtail.pgoutput.walsender import HEADER, Keepalive, StandbyStatusUpdate, StartReplication, UnknownFrame, XLogData


class Unknown(NamedTuple):
    """A message that protocol versions 1 to 4 do not define, in a frame of known length."""

    tag_byte: int
    body: bytes


class Continued(NamedTuple):
    """A capture segment starts inside a transaction, whose Begin it repeats.

    `changes` and `messages` count the row changes and logical messages of the transaction in earlier segments.
    """

    changes: int
    messages: int


class PartitionOf(NamedTuple):
    """Changes of the table `leaf` come under the OID `root`, with publish_via_partition_root; under its own if equal.

    It stands for a row after the Relations of both, where rows are left out.
    """

    root: int
    leaf: int


class FromClient(NamedTuple):
    """A message of the other direction, found in a packet capture.

    `client` and `server` are addresses; `time` is when the packet was captured, in microseconds since 2000-01-01 UTC.
    """

    message: StartReplication | StandbyStatusUpdate
    client: str
    server: str
    time: int | None


AnyMessage: TypeAlias = DefinedMessage | Unknown
AnyFrame: TypeAlias = AnyMessage | Keepalive | StandbyStatusUpdate | UnknownFrame | Continued | PartitionOf | FromClient

Decoded: TypeAlias = tuple[AnyFrame, int | None, int, int | None]
"""What every input and the live session yield: (message, LSN if known, offset in the source, server clock if known).

A plain tuple, because one is created for each message. The LSN is never 0/0.
"""

_STREAM_START, _STREAM_ABORT = TAGS[StreamStart], TAGS[StreamAbort]
_SHORT_ABORT, _LONG_ABORT = 9, 25

_QUERY: Final = ord("Q")
_COPY_DATA_HEAD: Final = 5
"""Bytes of a CopyData message before its payload."""

XLOG_DATA: Final = ord("w")
_XLOG_HEADER: Final = Layout(("frame", *BYTE1), *HEADER.fields)
XLOG_HEADER_SIZE: Final = _XLOG_HEADER.size
_header = HEADER.unpack_from


class Decoder:
    """Decodes the messages of one stream in order.

    The length of the frame or the bytes that follow decide whether Stream Abort has an LSN and a time.

    `in_stream` is None at the start of a stream of unknown origin. The first message that is allowed both inside and
    outside a stream segment then decides.
    """

    def __init__(self, *, encoding: str = "utf-8", cursor: Cursor | None = None) -> None:
        self.cursor = cursor or Cursor()
        self.cursor.encoding = encoding
        self.separator: bytes | None = None
        """The bytes between messages that have no length; None if they are in frames."""
        self.in_stream: bool | None = None

    def frame(self, buf: Buffer, pos: int, end: int) -> tuple[AnyFrame, int | None, int | None]:
        """Decode the walsender frame `buf[pos:end]`: (message or frame, LSN, server clock).

        Raises Truncated or Malformed, with positions in `buf`.
        """
        cur = self.cursor
        start = pos + XLOG_HEADER_SIZE
        if start < end and cur.unpacks and buf[pos] == XLOG_DATA:
            lsn, _, clock = _header(buf, pos + 1)
            cur.start_frame(buf, pos, _XLOG_HEADER, end)
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

    def client_message(self, buf: bytes) -> StartReplication | StandbyStatusUpdate:
        """Decode a client's message: a Query or a CopyData message. Raises Truncated or Malformed."""
        cur = self.cursor
        cur.start(buf, 0, len(buf))
        if buf[0] == _QUERY:
            return StartReplication.read(cur)
        cur.start(buf, _COPY_DATA_HEAD, len(buf))
        cur.u8("frame", "Byte1")
        return StandbyStatusUpdate.read(cur)

    def message(self, buf: Buffer, pos: int, end: int) -> AnyMessage:
        """Decode the message `buf[pos:end]`. Raises Truncated or Malformed."""
        cur = self.cursor
        cur.start(buf, pos, end)
        return self._message(cur)

    def next_message(self, buf: Buffer, pos: int, end: int, *, final: bool) -> AnyMessage:
        """Decode the message that starts at `pos`; `cursor.pos` is then its end.

        `final` says that nothing follows `end`. Raises Truncated (more bytes may help unless `final`) or Malformed.
        """
        cur = self.cursor
        cur.start(buf, pos, end)
        if pos < end and buf[pos] == _STREAM_ABORT:
            cur.abort_info = self._long_abort(buf, pos, end, final)
        return self._read(cur)

    def _message(self, cur: Cursor) -> AnyMessage:
        """The rest of a frame, which must be one complete message."""
        start = cur.pos
        if start < cur.end and cur.buf[start] == _STREAM_ABORT:
            size = cur.end - start
            cur.abort_info = size > _SHORT_ABORT
        if self.in_stream is None and start < cur.end and cur.buf[start] in HAVE_STREAM_XID:
            return self._inside_or_outside(cur)
        return self._whole(cur)

    def _inside_or_outside(self, cur: Cursor) -> AnyMessage:
        """A message of a source that may start inside a stream segment: try without an xid, then with one.

        Only a Message can be valid both ways. The wrong reading then has bytes of the xid or of the prefix in the
        upper half of its LSN, so the lower LSN is right.
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
            raise Truncated("a message was expected here", offset=cur.pos)
        tag = cur.tag()
        kind = MESSAGES.get(tag)
        if kind is None:
            if self.separator is not None:
                raise Malformed(f"no message starts with byte 0x{tag:02x}", offset=cur.pos - 1)
            return Unknown(tag, cur.content(cur.end - cur.pos, "body"))
        if tag in HAVE_STREAM_XID:
            cur.in_stream = self.in_stream is True
        try:
            message: AnyMessage = kind.read(cur)
        except DecodeError as error:
            error.message = kind.__name__
            raise
        if tag not in IN_STREAM:
            self.in_stream = tag == _STREAM_START
        return message

    def _leftover(self, cur: Cursor, message: AnyFrame) -> NoReturn:
        left = cur.end - cur.pos
        kind = type(message).__name__
        raise Malformed(f"{left} {plural(left, 'byte')} left over", offset=cur.pos, message=kind)

    def _long_abort(self, buf: Buffer, pos: int, end: int, final: bool) -> bool:
        """Whether a Stream Abort of unknown length has an LSN and a time, judged by what follows the short form.

        In the long form the next byte is the highest of an LSN. No log is long enough for that byte to equal a
        separator or a tag.
        """
        after = pos + _SHORT_ABORT
        if self.separator:
            if buf[after : min(after + len(self.separator), end)] != self.separator[: max(end - after, 0)]:
                return True
            after += len(self.separator)
        if after >= end:
            if not final:
                raise Truncated("what follows is needed to determine its length", offset=pos, message="StreamAbort")
            return False
        return buf[after] not in MESSAGES
