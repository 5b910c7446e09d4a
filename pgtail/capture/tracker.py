"""Tracks a recorder's position in the stream, and the frames that a new segment must repeat to decode alone.

Reads only the first bytes of each message. Captures have no streamed transactions: they are recorded with streaming
off.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pgtail.capture.format import SegmentName
from pgtail.pgoutput.decoder import XLOG_HEADER_SIZE
from pgtail.pgoutput.kinds import TAGS, Role, tags
from pgtail.pgoutput.rows import Truncate
from pgtail.pgoutput.schema import Relation, Type
from pgtail.pgoutput.transaction import COMMIT, Message, Origin
from pgtail.pgoutput.two_phase import BeginPrepare, Prepare, RollbackPrepared

_OID: Final = struct.Struct(">I").unpack_from
_LSN: Final = struct.Struct(">Q").unpack_from
_MESSAGE: Final = struct.Struct(">BQ").unpack_from

_TAG: Final = XLOG_HEADER_SIZE
_BODY: Final = _TAG + 1
_WITH_OID: Final = _BODY + 4
"""The least bytes of a frame with an OID."""

_BEGINS: Final = tags(Role.BEGIN)
_ROWS: Final = tags(Role.ROW)
_ENDS: Final = tags(Role.END, Role.OUTCOME)
"""Messages that end a transaction, or come outside of one."""
_COMMIT_LSN, _END_LSN = COMMIT.offset("commit_lsn"), COMMIT.offset("end_lsn")
"""Offsets in the bodies of all of them. Rollback Prepared has the end LSN of the Prepare in place of the commit LSN."""
_ORIGIN, _RELATION, _TYPE, _TRUNCATE, _LOGICAL = (TAGS[one] for one in (Origin, Relation, Type, Truncate, Message))
_BEGIN_PREPARE, _PREPARE, _ROLLBACK = (TAGS[one] for one in (BeginPrepare, Prepare, RollbackPrepared))
_TRANSACTIONAL: Final = 1


class Description(NamedTuple):
    """A table's OID, the commit LSN of a transaction that is not prepared, and whether the last description was equal.

    `message` is the Relation message.
    """

    oid: int
    commits_at: int | None
    repeats: bool
    message: bytes


class StreamTracker:
    """Follows walsender frames that contain messages.

    `whole` is the end LSN of the last complete transaction. Within a transaction `ordinal` counts all messages that
    change something, `changes` the rows and truncated tables, `messages` the logical messages. `rows` counts the
    changes of all transactions.

    `repeats` counts descriptions of tables that were described before: ALTER PUBLICATION may be the reason.

    The stream starts at the LSN `start`. A transaction that was prepared before its slot had two_phase is sent late:
    when it is committed, right before that outcome, with an older LSN. After a restart between the two the
    server sends both again. `late`: the outcome of such a transaction is still to come.
    """

    def __init__(self, start: int) -> None:
        self.whole = 0
        self.inside = False
        self._start = start
        self.late = False
        self.changes = self.messages = self.ordinal = self.rows = 0
        self.repeats = 0
        self._position = 0
        self._begin: list[bytes] = []
        self._relations: dict[int, bytes] = {}
        self._partitions: dict[int, dict[int, None]] = {}
        """The tables whose changes came under the OID of each root, both by OID."""
        self._adjacent: tuple[int | None, int] | None = None
        """As Relations.adjacent."""
        self._types: dict[int, bytes] = {}

    def restart(self) -> None:
        """Drop an incomplete transaction. Its Relations and Types remain valid."""
        self.inside = self.late = False
        self._begin.clear()

    @property
    def complete(self) -> bool:
        """Whether every transaction so far is complete."""
        return not (self.inside or self.late)

    def name_before(self, frame: bytes) -> SegmentName:
        """The name of a segment that starts with this frame."""
        if self.inside:
            return SegmentName(self._position, self.ordinal + 1)
        tag = frame[_TAG]
        if tag in _BEGINS:
            return SegmentName(self._begins_at(frame), 1)
        if tag == _LOGICAL:
            return SegmentName(_MESSAGE(frame, _BODY)[1], 0)
        if tag in _ENDS:
            return SegmentName(_LSN(frame, _BODY + (_END_LSN if tag == _ROLLBACK else _COMMIT_LSN))[0], 0)
        return SegmentName(self.whole, 0)

    def repeated(self) -> list[bytes]:
        """Frames that the following ones need: current Types and Relations, the transaction's Begin and Origin.

        The Relation of a partition is between two of its root, which no server sends: readers know the partition by it.
        """
        frames, pairs, rest = list(self._types.values()), list[bytes](), dict(self._relations)
        for root, partitions in self._partitions.items():
            pairs.append(self._relations[root])
            for leaf in partitions:
                pairs += self._relations[leaf], self._relations[root]
            for oid in (root, *partitions):
                rest.pop(oid, None)
        return [*frames, *pairs, *rest.values(), *self._begin]

    @property
    def expects_row(self) -> bool:
        """Whether take_frame() must have the next frame: it may show a partition."""
        if self._adjacent is None:
            return False
        root, leaf = self._adjacent
        return root is not None or any(leaf in group for group in self._partitions.values())

    def root_of(self, frame: bytes) -> bytes | None:
        """The Relation of the root, if a row or a Relation shows that the table described last is a partition."""
        root, leaf = self._adjacent or (None, None)
        tag = frame[_TAG]
        if root is None or root == leaf or not (tag in _ROWS or tag == _RELATION):
            return None
        return self._relations[root] if _OID(frame, _BODY)[0] == root else None

    def description(self, frame: bytes) -> Description | None:
        """The description of a table in a frame; None if it has none, or is cut off."""
        if len(frame) < _WITH_OID or frame[_TAG] != _RELATION:
            return None
        oid = _OID(frame, _BODY)[0]
        is_ordinary = self.inside and self._begin[0][_TAG] != _BEGIN_PREPARE
        before, message = self._relations.get(oid), frame[_TAG:]
        repeats = before is not None and before[_TAG:] == message
        return Description(oid, self._position if is_ordinary else None, repeats, message)

    def take_frame(self, frame: bytes) -> bool:
        """Advance by a frame. Returns whether the last transaction is complete. Raises struct.error, IndexError."""
        tag = frame[_TAG]
        if tag in _ROWS:
            self._see_partition(frame)
            self.add_rows(1)
        elif tag in _BEGINS:
            self._position = self._begins_at(frame)
            self.inside, self.late = True, False
            self._begin = [frame]
            self.changes = self.messages = self.ordinal = 0
        elif tag in _ENDS:
            self._take_end(frame)
        elif tag == _RELATION:
            oid = _OID(frame, _BODY)[0]
            self._see_partition(frame)
            self._adjacent = (None if self._adjacent is None else self._adjacent[1], oid)
            self.repeats += oid in self._relations
            self._relations[oid] = frame
            return self.complete
        elif tag == _TYPE:
            self._types[_OID(frame, _BODY)[0]] = frame
            return self.complete
        elif tag == _ORIGIN:
            self._begin.append(frame)
        elif tag == _TRUNCATE:
            self.ordinal += 1
            tables = _OID(frame, _BODY)[0]
            self.changes += tables
            self.rows += tables
        elif tag == _LOGICAL:
            self._take_message(*_MESSAGE(frame, _BODY))
        self._adjacent = None
        return self.complete

    def add_rows(self, count: int) -> None:
        if count:
            self._adjacent = None
        self.ordinal += count
        self.changes += count
        self.rows += count

    def add_transactions(self, rows: int, end_lsn: int) -> None:
        """Advance by whole transactions with this many row changes, of which the last one ends at `end_lsn`."""
        self._adjacent = None
        self.rows += rows
        self.late = False
        self.whole = max(self.whole, end_lsn)

    def _see_partition(self, frame: bytes) -> None:
        """Note if a row or a Relation shows that the table described last is a partition, or no longer one."""
        if self._adjacent is None:
            return
        root, leaf = self._adjacent
        if root is not None and self.root_of(frame):
            self._partitions.setdefault(root, {})[leaf] = None
            self._adjacent = None
        elif frame[_TAG] != _RELATION and _OID(frame, _BODY)[0] == leaf:
            for group in self._partitions.values():
                group.pop(leaf, None)

    def _take_message(self, flags: int, lsn: int) -> None:
        if flags & _TRANSACTIONAL:
            self.ordinal += 1
            self.messages += 1
        elif not self.inside:
            self.whole = max(self.whole, lsn)

    def _begins_at(self, frame: bytes) -> int:
        """The position of the transaction that a frame begins: if it is sent late, that of the stream."""
        position: int = _LSN(frame, _BODY)[0]
        return max(position, self.whole, self._start) if frame[_TAG] == _BEGIN_PREPARE else position

    def _take_end(self, frame: bytes) -> None:
        position, end_lsn = (_LSN(frame, _BODY + at)[0] for at in (_COMMIT_LSN, _END_LSN))
        self.inside = False
        self._begin.clear()
        self.late = frame[_TAG] == _PREPARE and position < max(self.whole, self._start)
        if not self.late:
            self.whole = max(self.whole, end_lsn)
