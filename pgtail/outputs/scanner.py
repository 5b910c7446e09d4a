"""The scanner in plain Python, for installations without the compiled one: it reads runs of ordinary rows from bytes.

Interface and rules are those of the compiled scanner: see Scanner in native/__init__.py. It leaves rows of stream
segments to the decoder: only the compiled code keeps them undecoded (changes/kept_rows.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pgtail.changes.bound_condition import Bound
from pgtail.changes.events import RowChange, Transaction
from pgtail.changes.filters import Filter
from pgtail.changes.relations import Relation
from pgtail.native.plan import LARGE
from pgtail.outputs.base import Mask
from pgtail.outputs.batch import LikeRows
from pgtail.outputs.executor import CELLS, Row
from pgtail.outputs.lines import Lines
from pgtail.pgoutput.cursor import Buffer, read_cells
from pgtail.pgoutput.decoder import XLOG_DATA, XLOG_HEADER_SIZE
from pgtail.pgoutput.frames import COPY_DATA, LENGTHS

_ROW_HEAD: Final = 6
"""The bytes of the tag, the table's OID and the kind of the first tuple, by which rows are told apart."""
_HEADS: Final = {
    LENGTHS: (struct.Struct(f">0sIBQ16x{_ROW_HEAD}s").unpack_from, b"", 4),
    COPY_DATA: (struct.Struct(f">1sIBQ16x{_ROW_HEAD}s").unpack_from, b"d", 1),
}
"""By framing: a function that reads the type of the CopyData message if there is one, the length, the frame's tag and
LSN, and the start of the message; that type; what to add to the length."""
_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">BQQq")
_OID: Final = struct.Struct(">I").unpack_from
_ROW_TAGS: Final = frozenset(b"IUD")
_BEGIN_TAG, _COMMIT_TAG, _NEW, _NEWLINE = b"BCN\n"
_OPS: Final = {b"I": ("insert", b"N"), b"U": ("update", b"KON"), b"D": ("delete", b"KO")}
"""By tag: the operation, and the kinds that its first tuple may have."""


@dataclass(slots=True)
class Kind:
    """Rows of one table, operation and kind of old tuple. `lines` are made with the first row that is shown."""

    relation: Relation
    columns: int
    op: str
    old_kind: str
    shown: bool
    condition: Bound | None
    masked: Relation
    """The table with codecs that mask values."""
    lines: Lines | None = None
    texts: list[bytes] = field(default_factory=list)
    """The texts to be written where the rows are written to."""
    known: dict[tuple[int, ...], LikeRows] = field(default_factory=dict)
    """Rows by `special` (RowScanner._emit): for plans that do not compare values."""


class RowScanner:
    """Reads runs of rows. A subclass writes them: it implements scan(), _start(), _emit() and _end()."""

    def __init__(
        self, find: Callable[[int], Relation | None], filter_: Filter | None, mask: Mask | None = None
    ) -> None:
        self._find, self._filter, self._mask = find, filter_, mask
        self._kinds: dict[bytes, Kind | None] = {}
        self._framed = False
        self._transaction = Transaction(None)
        self._selected = True
        self.inside = self.began = self.started = False
        self.seq = self.rows = self.messages = self.shown = self.not_sent = self.resume_at = self.elements = 0
        self.most: int | None = None
        self.until: int | None = None

    @property
    def begun(self) -> tuple[int, int, int]:
        transaction = self._transaction
        return transaction.xid or 0, transaction.commit_lsn or 0, transaction.commit_ts or 0

    def forget(self) -> None:
        self._kinds.clear()

    def enter(self, transaction: Transaction, started: bool) -> None:
        self._transaction = transaction
        self._selected = self._filter is None or self._filter.selects(transaction)
        self.inside, self.began, self.started, self.seq = True, False, started, transaction.changes

    def leave(self) -> None:
        self.inside = self.began = self.started = False

    def _start(self) -> None:
        """Write the start of the transaction, if it was not written."""
        raise NotImplementedError

    def _emit(self, kind: Kind, row: Row, special: tuple[int, ...], size: int) -> bool:
        """Write a row, whose message has `size` bytes; returns False if it must be decoded.

        `special`: which cells are no text (read_cells), after a 0 if the row has an LSN.
        """
        raise NotImplementedError

    def _end(self) -> None:
        """Write the end of the transaction, whose start was written."""
        raise NotImplementedError

    def _reset(self) -> None:
        """Start a run."""
        self.rows = self.messages = self.shown = self.not_sent = self.resume_at = 0
        self.began = False

    def _read(self, buf: Buffer, pos: int, end: int, framing: int, most: int) -> tuple[int, bool]:
        """Process messages until they have more than `most` bytes; returns where they end, and whether the run does."""
        read_head, copy_data, more = _HEADS.get(framing, (None, b"", 0))
        header = framing + XLOG_HEADER_SIZE if framing else 0
        self._framed = framed = framing > 0
        begin, lsn, stop, row, full, messages = -1, 0, end, self._row, pos + most, 0
        try:
            while pos < end:
                at = pos + header
                if read_head is None:
                    head = buf[at : at + _ROW_HEAD]
                else:
                    kind, size, frame, lsn, head = read_head(buf, pos)
                    stop = pos + size + more
                    if frame != XLOG_DATA or kind != copy_data or not at < stop <= end or size > LARGE:
                        break
                tag = head[0]
                if tag in _ROW_TAGS:
                    after = row(buf, at, stop, lsn, head) if self.inside else -1
                elif tag == _BEGIN_TAG:
                    after = self._begin(buf, at, stop)
                elif tag == _COMMIT_TAG:
                    after = self._commit(buf, at, stop)
                else:
                    break
                if after < 0:
                    break
                begin = pos if tag == _BEGIN_TAG else -1
                pos = after if framed else after + 1
                messages += 1
                if pos > full and begin < 0:
                    self.messages += messages
                    return pos, False
        except (IndexError, struct.error):
            pass  # the rest of the buffer is shorter than a message
        self.messages += messages
        if begin < 0:
            return pos, True
        # Only Begin of this transaction was read: undo it, as an Origin may follow, which the decoder handles.
        self.messages -= 1
        self.inside = self.began = False
        return begin, True

    def _ends(self, buf: Buffer, after: int, stop: int) -> bool:
        """Whether a message of known size ends where its frame does, or with a newline."""
        return after == stop if self._framed else after < stop and buf[after] == _NEWLINE

    def _begin(self, buf: Buffer, at: int, stop: int) -> int:
        """Process a Begin; returns its end, or -1 if it must be decoded."""
        after = at + 1 + _BEGIN.size
        if self.inside or not self._ends(buf, after, stop):
            return -1
        commit_lsn, commit_ts, xid = _BEGIN.unpack_from(buf, at + 1)
        if self.until is not None and commit_lsn > self.until:
            return -1
        if self._filter is not None and self._filter.commits.is_past(commit_lsn, commit_ts):
            return -1
        self._transaction = Transaction(xid, commit_lsn=commit_lsn, commit_ts=commit_ts)
        self._selected = self._filter is None or self._filter.selects(self._transaction)
        self.inside, self.began, self.started, self.seq, self.elements = True, True, False, 0, 0
        return after

    def _commit(self, buf: Buffer, at: int, stop: int) -> int:
        """Process the Commit of the transaction; returns its end, or -1 if it must be decoded."""
        after = at + 1 + _COMMIT.size
        if not self.inside or not self._ends(buf, after, stop):
            return -1
        flags, commit_lsn, end_lsn, commit_ts = _COMMIT.unpack_from(buf, at + 1)
        transaction = self._transaction
        if flags or commit_lsn != transaction.commit_lsn or commit_ts != transaction.commit_ts:
            return -1
        shows = self.started or self._filter is None
        last = shows and self.seq > 0 and self.most is not None and self.shown + 1 >= self.most
        if last or (self.until is not None and end_lsn >= self.until):
            return -1
        if shows:
            self.shown += self.seq > 0
            transaction.end_lsn, transaction.changes = end_lsn, self.seq
            self._start()
            self._end()
        self.resume_at = end_lsn
        self.inside = self.began = self.started = False
        return after

    def _row(self, buf: Buffer, at: int, stop: int, lsn: int, head: bytes) -> int:
        """Process a row message; returns its end, or -1 if it must be decoded."""
        kind = self._kinds[head] if head in self._kinds else self._describe(head)
        if kind is None:
            return -1
        special = [0] if lsn else []
        row, width = [self._transaction, self.seq + 1, lsn or None, None], CELLS + kind.columns
        pos = read_cells(buf, at + _ROW_HEAD, stop, row, special)
        if kind.old_kind and kind.op == "update" and pos > 0:
            if len(row) != width or buf[pos] != _NEW:
                return -1
            width += kind.columns
            pos = read_cells(buf, pos + 1, stop, row, special)
        if pos < 0 or len(row) != width or not self._ends(buf, pos, stop) or pos - at > LARGE:
            return -1
        shown = kind.shown and self._selected and (kind.condition is None or self._passes(kind, row))
        if shown and not self._emit(kind, row, tuple(special), pos - at):
            return -1
        self.seq += 1
        self.rows += 1
        return pos

    def _passes(self, kind: Kind, row: Row) -> bool:
        """Whether a row passes the condition."""
        condition, first = kind.condition, row[CELLS : CELLS + kind.columns]
        assert condition is not None
        old = tuple(first) if kind.old_kind else None
        new = None if kind.op == "delete" else tuple(row[len(row) - kind.columns :])
        change = RowChange(kind.op, self._transaction, row[1], row[2], kind.relation, kind.old_kind, old, new)
        found = condition.holds(change)
        self.not_sent += found is None and condition.untested
        return found is True

    def _describe(self, head: bytes) -> Kind | None:
        """How to write rows whose messages begin with `head`; None if they must be decoded."""
        self._kinds[head] = None
        op, kinds = _OPS[head[:1]]
        relation = self._find(_OID(head, 1)[0])
        if relation is not None and head[5:] in kinds:
            old_kind = "" if head[5] == _NEW else head[5:].decode()
            filter_, columns = self._filter, len(relation.columns)
            masked = relation if self._mask is None else self._mask(relation)
            shown = filter_ is None or filter_.row_passes(relation, op)
            condition = filter_.bound(relation, op) if filter_ is not None and shown else None
            self._kinds[head] = Kind(relation, columns, op, old_kind, shown, condition, masked)
        return self._kinds[head]
