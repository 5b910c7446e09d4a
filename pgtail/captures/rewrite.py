"""Floor 4, the messages of a dump as a capture holds them: streamed transactions whole, at their commit.

The one case where a capture is not what the server sent: rolled-back parts are gone, and so are the xids of streaming.
"""

from __future__ import annotations

import struct
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import IO, Final

from pgtail.captures.recorder import Recorder
from pgtail.errors import InputError
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
_INSIDE: Final = (Insert, Update, Delete, Truncate, Commit, Prepare, Origin)
_OUTCOMES: Final = (CommitPrepared, RollbackPrepared)


class _Kept:
    """The frames of one streamed transaction, on disk where they are many."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="pgtail-")  # noqa: SIM115 - close()
        self.aborted: set[int] = set()

    def add(self, xid: int, frame: bytes) -> None:
        self._file.write(_KEPT.pack(xid, len(frame)))
        self._file.write(frame)

    def frames(self) -> Iterator[bytes]:
        """What was not rolled back."""
        self._file.seek(0)
        while head := self._file.read(_KEPT.size):
            xid, size = _KEPT.unpack(head)
            frame = self._file.read(size)
            if xid not in self.aborted:
                yield frame

    def close(self) -> None:
        self._file.close()


class Rewriter:
    """Feeds a recorder. `note` is told what is left out; `left_out` counts it."""

    def __init__(self, recorder: Recorder, note: Callable[[str], None]) -> None:
        self._recorder = recorder
        self._note = note
        self._streams: dict[int, _Kept] = {}
        self._segment: int | None = None
        self._positions = array("Q")
        """Of every transaction and outcome that was recorded, ascending."""
        self._passing = False
        self.left_out = 0

    def feed(self, message: AnyFrame, raw: bytes, lsn: int | None, clock: int | None) -> None:
        """One message and its bytes. Raises InputError where dumps are not in order, OutputError."""
        frame = _XLOG_DATA.pack(b"w", lsn or 0, lsn or 0, clock or 0)
        if isinstance(message, StreamStart):
            self._segment = message.xid
            if message.xid not in self._streams:
                self._streams[message.xid] = _Kept()
        elif isinstance(message, StreamStop):
            self._segment = None
        elif isinstance(message, StreamAbort):
            self._abort(message)
        elif isinstance(message, StreamCommit | StreamPrepare):
            self._replay(message, raw, frame)
        elif isinstance(message, Unknown):
            self._leave_out(f"a message of unknown kind {chr(message.tag_byte)!r}")
        elif raw:
            self._ordinary(message, raw, frame)

    def finish(self) -> None:
        """There is no more: what is not whole is not in the capture."""
        if self._recorder.inside:
            self._leave_out("the last transaction, which is not whole")
        for xid, kept in self._streams.items():
            self._leave_out(f"streamed transaction {xid}, whose end is missing")
            kept.close()
        self._streams.clear()
        self._recorder.close()

    def _ordinary(self, message: AnyFrame, raw: bytes, frame: bytes) -> None:
        if self._segment is not None:
            self._keep(self._segment, message, raw, frame)
        elif isinstance(message, Begin | BeginPrepare):
            if self._recorder.inside:
                self._leave_out("a transaction that breaks off")
                self._recorder.restart()
            position = message.final_lsn if isinstance(message, Begin) else message.prepare_lsn
            self._passing = not self._is_next(position)
            self._take(frame + raw)
        elif isinstance(message, _OUTCOMES):
            position = message.commit_lsn if isinstance(message, CommitPrepared) else message.rollback_end_lsn
            self._passing = not self._is_next(position)
            self._take(frame + raw)
            self._passing = False
        elif isinstance(message, _INSIDE) and not (self._recorder.inside or self._passing):
            self._leave_out(f"{type(message).__name__} of a transaction whose beginning is missing")
        else:
            self._take(frame + raw)
            self._passing = self._passing and not isinstance(message, Commit | Prepare)

    def _take(self, frame: bytes) -> None:
        if not self._passing:
            self._recorder.take(frame)

    def _keep(self, top: int, message: AnyFrame, raw: bytes, frame: bytes) -> None:
        if not isinstance(message, _WITH_XID):
            self._streams[top].add(top, frame + raw)
            return
        whole = frame + raw[:1] + raw[5:]
        if isinstance(message, Message) and not message.transactional:
            if not self._recorder.inside:
                self._recorder.take(whole)
        else:
            self._streams[top].add(message.xid or top, whole)

    def _abort(self, message: StreamAbort) -> None:
        if message.subxid != message.xid:
            if message.xid in self._streams:
                self._streams[message.xid].aborted.add(message.subxid)
        elif (kept := self._streams.pop(message.xid, None)) is not None:
            kept.close()

    def _replay(self, message: StreamCommit | StreamPrepare, raw: bytes, frame: bytes) -> None:
        """A streamed transaction, as if it had come whole."""
        kept = self._streams.pop(message.xid, None)
        if kept is None:
            self._leave_out(f"streamed transaction {message.xid}, whose beginning is missing")
            return
        if isinstance(message, StreamCommit):
            position = message.commit_lsn
            begin, end = b"B" + raw[6:14] + raw[22:30] + raw[1:5], b"C" + raw[5:]
        else:
            position = message.prepare_lsn
            begin, end = b"b" + raw[2:], b"P" + raw[1:]
        self._passing = not self._is_next(position)
        self._take(frame + begin)
        for one in kept.frames():
            self._take(one)
        self._take(frame + end)
        self._passing = False
        kept.close()

    def _is_next(self, position: int) -> bool:
        """Whether this was not recorded before: dumps may repeat what came before a reconnection."""
        positions = self._positions
        if not positions or position > positions[-1]:
            positions.append(position)
            return True
        index = bisect_left(positions, position)
        if positions[index] == position:
            return False
        raise InputError(
            f"what lies at {lsn_text(position)} comes behind {lsn_text(positions[-1])}: give the dumps in the order of"
            " the stream, and those of one slot only"
        )

    def _leave_out(self, what: str) -> None:
        self.left_out += 1
        if self.left_out <= 10:
            self._note(f"not in the capture: {what}")
