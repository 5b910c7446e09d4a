"""Converts the messages of a dump for a capture: each streamed transaction becomes a whole one, at its commit.

Only here does a capture differ from what the server sent: rolled-back parts and the xids of streaming are removed.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from pgtail.capture.recorder import Recorder, RunLimits
from pgtail.changes.events import time_damage
from pgtail.changes.stream_buffer import StreamBuffer
from pgtail.errors import InputError
from pgtail.log import log_outcome, logger
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import AnyFrame, Continued, Unknown
from pgtail.pgoutput.kinds import Role, messages, stream_xid
from pgtail.pgoutput.scalars import lsn_text
from pgtail.pgoutput.schema import Relation, Type
from pgtail.pgoutput.streaming import StreamAbort, StreamCommit, StreamStart, StreamStop
from pgtail.pgoutput.transaction import Begin, Commit, Message
from pgtail.pgoutput.two_phase import PREPARE, BeginPrepare, CommitPrepared, Prepare, RollbackPrepared, StreamPrepare

_XLOG_DATA: Final = struct.Struct(">cQQq")
_IN_MEMORY: Final = 8 << 20

_INSIDE: Final = messages(Role.ROW, Role.TRUNCATE, Role.MESSAGE, Role.ORIGIN, Role.END)
_STREAMED: Final = messages(Role.ROW, Role.TRUNCATE, Role.MESSAGE, Role.ORIGIN, Role.DESCRIPTION)
"""Messages that may be in a stream segment."""


def _was_recorded(position: int, positions: array[int]) -> bool:
    """Whether this is one of the ascending positions: dumps may repeat what came before a reconnection.

    Raises InputError for a position that should have come earlier.
    """
    if not positions or position > positions[-1]:
        return False
    if positions[bisect_left(positions, position)] == position:
        return True
    raise InputError(
        f"{lsn_text(position)} follows {lsn_text(positions[-1])}: give the dumps in the order of the stream, and those"
        " of one slot only"
    )


class DumpConverter:
    """Converts messages and passes them to a recorder. `left_out` counts those left out."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._streams = StreamBuffer(_IN_MEMORY)
        """Entries are (whether it is a Relation or Type, frame)."""
        self._whole: dict[int, bool] = {}
        """Whether the beginning of each open streamed transaction was seen, by xid."""
        self._segment: int | None = None
        self._commits, self._others = array("Q"), array("Q")
        """Recorded starts of records (commits), and ends (others), as LSNs: a start may be equal to an end."""
        self._position = 0
        """The commit or prepare LSN of the current transaction."""
        self._skipping = False
        """Whether the current transaction is left out."""
        self._time = 0
        """The commit or prepare time of the current transaction."""
        self.left_out = 0
        self.damaged = False
        """Whether a transaction was recorded whose end has another time than its beginning."""

    @property
    def recorded(self) -> int:
        """The LSN up to which transactions were recorded."""
        return self._recorder.whole

    def feed(self, message: AnyFrame, raw: bytes, lsn: int | None, clock: int | None) -> None:
        """Convert one message. Raises InputError if dumps are not in order, and OutputError."""
        frame = _XLOG_DATA.pack(b"w", lsn or 0, lsn or 0, clock or 0)
        if isinstance(message, StreamStart):
            self._break_off()
            self._start_segment(message)
        elif isinstance(message, StreamStop):
            self._segment = None
        elif isinstance(message, StreamAbort):
            self._abort(message)
        elif isinstance(message, StreamCommit | StreamPrepare):
            self._break_off()
            self._replay(message, raw, frame)
        elif isinstance(message, Continued):
            self._continue(message)
        elif isinstance(message, Unknown):
            self._leave_out(f"a message of unknown kind {chr(message.tag_byte)!r}")
        elif raw:
            if stream_xid(message) is not None:
                raw = raw[:1] + raw[5:]
            self._ordinary(message, frame + raw)

    def take_run(self, buf: Buffer, pos: int, end: int, framing: int) -> int:
        """Record ordinary messages undecoded. Returns the offset of the first message that must be decoded."""
        begins = None if self._segment is None and not self._skipping else pos
        while begins != pos < end:
            begins = pos
            limits = RunLimits(after=self._commits[-1] if self._commits else 0)
            pos, commits = self._recorder.take_run(buf, pos, end, framing, limits, dump=True)
            self._commits.frombytes(commits)
        return pos

    def finish(self) -> None:
        """End the capture without incomplete transactions."""
        if self._recorder.stream.inside:
            self._leave_out("the last transaction, which is incomplete")
        for xid in self._whole:
            self._leave_out(f"streamed transaction {xid}, whose end is missing")
        self._whole.clear()
        self._streams.close()
        self._recorder.close()

    def _ordinary(self, message: AnyFrame, frame: bytes) -> None:
        if isinstance(message, Message) and not message.transactional:
            if not _was_recorded(message.lsn, self._others):
                self._recorder.take_frame(frame)
                self._others.append(message.lsn)
        elif self._segment is not None and type(message) in _STREAMED:
            self._buffer(self._segment, message, frame)
        elif isinstance(message, Begin | BeginPrepare):
            self._begin_transaction(message, frame)
        elif isinstance(message, CommitPrepared | RollbackPrepared):
            self._break_off()
            self._record_outcome(message, frame)
        elif type(message) in _INSIDE and not (self._recorder.stream.inside or self._skipping):
            self._leave_out(f"{type(message).__name__} of a transaction whose beginning is missing")
        else:
            self._record(frame)
            if isinstance(message, Commit | Prepare):
                self._end_transaction(message)

    def _begin_transaction(self, message: Begin | BeginPrepare, frame: bytes) -> None:
        if isinstance(message, Begin):
            position, self._time = message.final_lsn, message.commit_time
        else:
            position, self._time = message.prepare_lsn, message.prepare_time
        if not message.xid:
            self._break_off()
            self._skipping = True
            self._leave_out("the snapshot of a table, which has no place in a capture made of dumps")
            return
        self._break_off(again=position)
        self._position, self._skipping = position, _was_recorded(position, self._commits)
        self._record(frame)

    def _end_transaction(self, message: Commit | Prepare) -> None:
        if not self._skipping:
            self._commits.append(self._position)
            for damage in time_damage(message, self._time):
                self.damaged = True
                logger.warning(f"transaction at {lsn_text(self._position)}: {damage.text}")
        self._skipping = False

    def _break_off(self, *, again: int | None = None) -> None:
        """Drop a transaction that lacks its end. `again` is the position of the next one, which may be the same."""
        self._segment, self._skipping = None, False
        if self._recorder.stream.inside:
            self._recorder.restart()
            if again != self._position:
                self._leave_out("a transaction without its end")

    def _record_outcome(self, message: CommitPrepared | RollbackPrepared, frame: bytes) -> None:
        if isinstance(message, CommitPrepared):
            recorded, position = self._commits, message.commit_lsn
        else:
            recorded, position = self._others, message.rollback_end_lsn
        if not _was_recorded(position, recorded):
            self._record(frame)
            recorded.append(position)

    def _record(self, frame: bytes) -> None:
        if not self._skipping:
            self._recorder.take_frame(frame)

    def _continue(self, message: Continued) -> None:
        """Handle a segment that starts inside a transaction, after the repeated Begin."""
        if not self._skipping and any(message):
            self._recorder.restart()
            self._leave_out("a transaction whose beginning is in a segment that is not here")
            self._skipping = True

    # -- streamed transactions ---------------------------------------------------------------------------------

    def _start_segment(self, message: StreamStart) -> None:
        self._segment = xid = message.xid
        if message.first_segment or xid not in self._streams:
            self._streams.start(xid)
            self._whole[xid] = bool(message.first_segment)

    def _buffer(self, top: int, message: AnyFrame, frame: bytes) -> None:
        xid = stream_xid(message) or top
        self._streams.add(top, xid, (isinstance(message, Relation | Type), frame), len(frame))

    def _abort(self, message: StreamAbort) -> None:
        if message.subxid == message.xid:
            self._drop(message.xid)
        elif message.xid in self._streams:
            self._streams.abort(message.xid, message.subxid)

    def _replay(self, message: StreamCommit | StreamPrepare, raw: bytes, frame: bytes) -> None:
        """Record a streamed transaction as an ordinary one."""
        xid = message.xid
        if isinstance(message, StreamCommit):
            self._position = message.commit_lsn
            begin = Begin(message.commit_lsn, message.commit_time, xid).encode()
            end = Commit(message.flags, message.commit_lsn, message.end_lsn, message.commit_time).encode()
        else:
            self._position = message.prepare_lsn
            body = raw[1:]
            begin, end = b"b" + body[PREPARE.offset("prepare_lsn") :], b"P" + body
        if _was_recorded(self._position, self._commits):
            frames: Iterable[bytes] = ()
        elif self._whole.get(xid):
            frames = chain([frame + begin], self._frames(xid), [frame + end])
            self._commits.append(self._position)
        else:
            self._leave_out(f"streamed transaction {xid}, whose beginning is missing")
            frames = self._frames(xid, only_tables=True)
        for each in frames:
            self._recorder.take_frame(each)
        self._drop(xid)

    def _frames(self, xid: int, *, only_tables: bool = False) -> Iterator[bytes]:
        """Frames that were not rolled back, and all Relations and Types, which the server does not send again.

        A row that shows that a table is a partition is replaced by the Relation of the root, which shows it, too.
        """
        if xid in self._streams:
            for (describes, frame), aborted in self._streams.take_all(xid):
                if describes or not (aborted or only_tables):
                    yield frame
                elif (root := self._recorder.stream.root_of(frame)) is not None:
                    yield root

    def _drop(self, xid: int) -> None:
        self._streams.drop(xid)
        self._whole.pop(xid, None)

    def _leave_out(self, what: str) -> None:
        self.left_out += 1
        if self.left_out <= 10:
            log_outcome(f"not in the capture: {what}")
