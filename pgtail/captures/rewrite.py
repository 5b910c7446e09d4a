"""Floor 4, the messages of a dump as a capture holds them: streamed transactions whole, at their commit.

The one case where a capture is not what the server sent: rolled-back parts are gone, and so are the xids of streaming.
"""

from __future__ import annotations

import contextlib
import struct
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import IO, Final

from pgtail.captures.recorder import Recorder
from pgtail.errors import InputError, OutputError
from pgtail.wire.capture import Continued
from pgtail.wire.decoder import AnyFrame, Unknown
from pgtail.wire.rows import Delete, Insert, Truncate, Update
from pgtail.wire.scalars import lsn_text
from pgtail.wire.schema import Relation, Type
from pgtail.wire.stream import StreamAbort, StreamCommit, StreamStart, StreamStop
from pgtail.wire.transaction import Begin, Commit, Message, Origin
from pgtail.wire.two_phase import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared, StreamPrepare

_XLOG_DATA: Final = struct.Struct(">cQQq")
_KEPT: Final = struct.Struct(">II")
"""The (sub)transaction and the size of what follows."""
_IN_MEMORY: Final = 8 << 20

_WITH_XID: Final = (Relation, Type, Insert, Update, Delete, Truncate, Message)
_INSIDE: Final = (Insert, Update, Delete, Truncate, Message, Commit, Prepare, Origin)
_OUTCOMES: Final = (CommitPrepared, RollbackPrepared)
_NEVER_ABORTED: Final = 0
"""No transaction's xid: what a rolled-back part said of tables is in force behind it all the same."""


class _Kept:
    """The frames of one streamed transaction, on disk where they are many. `whole`: from its beginning on.

    Methods raise OutputError where the disk has no room.
    """

    def __init__(self, *, whole: bool) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="pgtail-")  # noqa: SIM115 - close()
        self.whole = whole
        self.aborted: set[int] = set()

    def add(self, xid: int, frame: bytes) -> None:
        try:
            self._file.write(_KEPT.pack(xid, len(frame)))
            self._file.write(frame)
        except OSError as error:
            raise _no_room(error) from error

    def frames(self, *, only_tables: bool = False) -> Iterator[bytes]:
        """What was not rolled back, or only what describes tables."""
        try:
            self._file.seek(0)
        except OSError as error:
            raise _no_room(error) from error
        while head := self._file.read(_KEPT.size):
            xid, size = _KEPT.unpack(head)
            frame = self._file.read(size)
            if xid == _NEVER_ABORTED if only_tables else xid not in self.aborted:
                yield frame

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it is to go, whatever of it could not be written
            self._file.close()


def _no_room(error: OSError) -> OutputError:
    return OutputError(
        f"cannot keep a streamed transaction in {tempfile.gettempdir()}: {error.strerror}; set TMPDIR to a folder"
        " with room"
    )


class _Recorded:
    """Positions of what was recorded, ascending."""

    def __init__(self) -> None:
        self._positions = array("Q")

    def has(self, position: int) -> bool:
        """Whether this was recorded before: dumps may repeat what came before a reconnection.

        Raises InputError for what should have come earlier.
        """
        positions = self._positions
        if not positions or position > positions[-1]:
            return False
        if positions[bisect_left(positions, position)] == position:
            return True
        raise InputError(
            f"what lies at {lsn_text(position)} comes behind {lsn_text(positions[-1])}: give the dumps in the order of"
            " the stream, and those of one slot only"
        )

    def add(self, position: int) -> None:
        """This is recorded now."""
        self._positions.append(position)


class Rewriter:
    """Feeds a recorder. `note` is told what is left out; `left_out` counts it."""

    def __init__(self, recorder: Recorder, note: Callable[[str], None]) -> None:
        self._recorder = recorder
        self._note = note
        self._streams: dict[int, _Kept] = {}
        self._segment: int | None = None
        self._commits, self._others = _Recorded(), _Recorded()
        """Of what the stream numbers by the start of a record, and by its end: the two may be the same."""
        self._position = 0
        """Of the transaction that is being recorded."""
        self._passing = False
        self.left_out = 0

    def feed(self, message: AnyFrame, raw: bytes, lsn: int | None, clock: int | None) -> None:
        """One message and its bytes. Raises InputError where dumps are not in order, OutputError."""
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
            if isinstance(message, _WITH_XID) and message.xid is not None:
                raw = raw[:1] + raw[5:]
            self._ordinary(message, frame + raw)

    def finish(self) -> None:
        """There is no more: what is not whole is not in the capture."""
        if self._recorder.inside:
            self._leave_out("the last transaction, which is not whole")
        for xid, kept in self._streams.items():
            self._leave_out(f"streamed transaction {xid}, whose end is missing")
            kept.close()
        self._streams.clear()
        self._recorder.close()

    def _ordinary(self, message: AnyFrame, frame: bytes) -> None:
        if isinstance(message, Message) and not message.transactional:
            self._lone(message, frame)
        elif self._segment is not None and isinstance(message, (*_WITH_XID, Origin)):
            self._keep(self._segment, message, frame)
        elif isinstance(message, Begin | BeginPrepare):
            self._begin(message, frame)
        elif isinstance(message, _OUTCOMES):
            self._break_off()
            self._outcome(message, frame)
        elif isinstance(message, _INSIDE) and not (self._recorder.inside or self._passing):
            self._leave_out(f"{type(message).__name__} of a transaction whose beginning is missing")
        else:
            self._take(frame)
            if isinstance(message, Commit | Prepare):
                self._end()

    def _begin(self, message: Begin | BeginPrepare, frame: bytes) -> None:
        position = message.final_lsn if isinstance(message, Begin) else message.prepare_lsn
        self._break_off(again=position)
        self._position, self._passing = position, self._commits.has(position)
        self._take(frame)

    def _end(self) -> None:
        if not self._passing:
            self._commits.add(self._position)
        self._passing = False

    def _break_off(self, *, again: int | None = None) -> None:
        """Drop a transaction that has not ended although it should have; `again`: where the one that comes lies."""
        self._segment, self._passing = None, False
        if self._recorder.inside:
            self._recorder.restart()
            if again != self._position:
                self._leave_out("a transaction that breaks off")

    def _outcome(self, message: CommitPrepared | RollbackPrepared, frame: bytes) -> None:
        if isinstance(message, CommitPrepared):
            recorded, position = self._commits, message.commit_lsn
        else:
            recorded, position = self._others, message.rollback_end_lsn
        if not recorded.has(position):
            self._take(frame)
            recorded.add(position)

    def _lone(self, message: Message, frame: bytes) -> None:
        """A message that belongs to no transaction."""
        if not self._others.has(message.lsn):
            self._recorder.take(frame)
            self._others.add(message.lsn)

    def _take(self, frame: bytes) -> None:
        if not self._passing:
            self._recorder.take(frame)

    def _continue(self, message: Continued) -> None:
        """A segment of a capture begins inside the transaction whose Begin it has just repeated."""
        if not self._passing and any(message):
            self._recorder.restart()
            self._leave_out("a transaction whose beginning is in a segment that is not here")
            self._passing = True

    # -- streamed transactions ---------------------------------------------------------------------------------

    def _start_segment(self, message: StreamStart) -> None:
        self._segment = xid = message.xid
        if message.first_segment and (before := self._streams.pop(xid, None)) is not None:
            before.close()  # it is sent again, after a reconnection
        if xid not in self._streams:
            self._streams[xid] = _Kept(whole=bool(message.first_segment))

    def _keep(self, top: int, message: AnyFrame, frame: bytes) -> None:
        if isinstance(message, Relation | Type):
            xid = _NEVER_ABORTED
        else:
            xid = (isinstance(message, _WITH_XID) and message.xid) or top
        self._streams[top].add(xid, frame)

    def _abort(self, message: StreamAbort) -> None:
        if message.subxid != message.xid:
            if message.xid in self._streams:
                self._streams[message.xid].aborted.add(message.subxid)
        elif (kept := self._streams.pop(message.xid, None)) is not None:
            kept.close()

    def _replay(self, message: StreamCommit | StreamPrepare, raw: bytes, frame: bytes) -> None:
        """A streamed transaction, as if it had come whole."""
        kept = self._streams.pop(message.xid, None)
        if isinstance(message, StreamCommit):
            self._position = message.commit_lsn
            begin, end = b"B" + raw[6:14] + raw[22:30] + raw[1:5], b"C" + raw[5:]
        else:
            self._position = message.prepare_lsn
            begin, end = b"b" + raw[2:], b"P" + raw[1:]
        if self._commits.has(self._position):
            frames: Iterable[bytes] = ()
        elif kept is not None and kept.whole:
            frames = chain([frame + begin], kept.frames(), [frame + end])
            self._commits.add(self._position)
        else:
            self._leave_out(f"streamed transaction {message.xid}, whose beginning is missing")
            frames = () if kept is None else kept.frames(only_tables=True)  # they are not sent again
        for one in frames:
            self._recorder.take(one)
        if kept is not None:
            kept.close()

    def _leave_out(self, what: str) -> None:
        self.left_out += 1
        if self.left_out <= 10:
            self._note(f"not in the capture: {what}")
