"""The scanner of text outputs in plain Python, for installations without the compiled one.

It processes runs of ordinary rows from bytes to text, without messages and events. Interface and rules are those of the
compiled scanner: see Scanner in native/__init__.py.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from pgtail.changes.bound_condition import Bound
from pgtail.changes.events import RowChange, Transaction
from pgtail.changes.filters import Filter
from pgtail.changes.relations import Relation
from pgtail.native.plan import LARGE, NoPlan, Plan
from pgtail.outputs.batch import Batch, LikeRows
from pgtail.outputs.executor import CELLS, Clock, Row
from pgtail.outputs.lines import Lines
from pgtail.outputs.rows import Rows, Shape, Write
from pgtail.pgoutput.cursor import Buffer, read_cells
from pgtail.pgoutput.decoder import XLOG_DATA, XLOG_HEADER_SIZE
from pgtail.pgoutput.frames import COPY_DATA, LENGTHS
from pgtail.values import Undecoded

_HEADS: Final = {
    LENGTHS: (struct.Struct(">0sIBQ16xB").unpack_from, b"", 4),
    COPY_DATA: (struct.Struct(">1sIBQ16xB").unpack_from, b"d", 1),
}
"""By framing: a function that reads the type of the CopyData message if there is one, the length, the frame's tag and
LSN, and the message's tag; that type; what to add to the length."""
_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">BQQq")
_OID: Final = struct.Struct(">I").unpack_from
_ROW_TAGS: Final = frozenset(b"IUD")
_BEGIN_TAG, _COMMIT_TAG, _NEW, _NEWLINE = b"BCN\n"
_XID_SIZE: Final = 4
_OPS: Final = {b"I": ("insert", b"N"), b"U": ("update", b"KON"), b"D": ("delete", b"KO")}
"""By tag: the operation, and the kinds that its first tuple may have."""
_LEAST, _MOST = 512, 32 * 1024
"""Bytes of messages in a batch, which grows with success. Larger ones do not stay in the processor's caches."""
_MOST_KNOWN: Final = 1000
"""Remembered lines of a kind of rows."""

ShapeOf: TypeAlias = Callable[[Relation, str, str], Shape]
"""(table, operation, kind of the old tuple) -> the shape of ordinary rows."""


class TextOutput(Protocol):
    """What the scanner needs of an output (outputs/planned.py)."""

    @property
    def begin(self) -> Plan: ...
    @property
    def end(self) -> Plan: ...
    @property
    def separator(self) -> bytes: ...
    @property
    def one_by_one(self) -> bool: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def write(self) -> Write: ...
    def row(self, shape: Shape, /) -> tuple[Plan, Write]: ...


@dataclass(slots=True)
class _Kind:
    """Rows of one table, operation and kind of old tuple. `lines` are made with the first row that is shown."""

    relation: Relation
    columns: int
    op: str
    old_kind: str
    shown: bool
    condition: Bound | None
    lines: Lines | None = None
    texts: list[bytes] = field(default_factory=list)
    """The texts to be written where the rows are written to."""
    known: dict[tuple[int, ...], LikeRows] = field(default_factory=dict)
    """Rows by which cells are no text (read_cells): for plans that do not compare values."""


class TextScanner:
    """Writes rows by the plans of an output."""

    def __init__(
        self,
        find: Callable[[int], Relation | None],
        filter_: Filter | None,
        shape_of: ShapeOf,
        output: TextOutput,
    ) -> None:
        self._find, self._filter, self._shape_of, self._output = find, filter_, shape_of, output
        self._rows = Rows(output.row, output.clock)
        self._kinds: dict[bytes, _Kind | None] = {}
        self._batch = Batch(one_by_one=output.one_by_one)
        self._boundaries = self._batch.texts_to(output.write)
        self._batch_size = _MOST
        self._framed = False
        self._transaction = Transaction(None)
        self._run = self._rows.run(self._transaction)
        self._selected = True
        self._counts: Counter[str] = Counter()
        """The counts of committed transactions."""
        self.inside = self.began = self.started = False
        self.seq = self.rows = self.messages = self.shown = self.not_sent = self.resume_at = self.elements = 0
        self.most: int | None = None
        self.until: int | None = None

    @property
    def begun(self) -> tuple[int, int, int]:
        transaction = self._transaction
        return transaction.xid or 0, transaction.commit_lsn or 0, transaction.commit_ts or 0

    @property
    def last_end_lsn(self) -> int | None:
        """The end LSN of the transaction written last."""
        return self._rows.last_end

    @last_end_lsn.setter
    def last_end_lsn(self, value: int | None) -> None:
        self._rows.last_end = value

    def forget(self) -> None:
        self._kinds.clear()
        self._batch = Batch(one_by_one=self._output.one_by_one)
        self._boundaries = self._batch.texts_to(self._output.write)

    def forget_plans(self) -> None:
        """Ask for new plans: those of the output have changed."""
        self.forget()
        self._rows.forget_plans()

    def enter(self, transaction: Transaction, started: bool) -> None:
        self._transaction = transaction
        self._selected = self._filter is None or self._filter.selects(transaction)
        self.inside, self.began, self.started, self.seq = True, False, started, transaction.changes

    def leave(self) -> None:
        self.inside = self.began = self.started = False

    def take_counts(self) -> tuple[Counter[str], Counter[str]]:
        """The executions of each Count since the last call: of committed transactions, and of the open one."""
        committed, self._counts = self._counts, Counter()
        of_open = self._rows.counts.copy()
        self._rows.counts.clear()
        return committed, of_open

    def scan(self, buf: Buffer, pos: int, end: int, framing: int, in_stream: bool = False) -> int:
        self.rows = self.messages = self.shown = self.not_sent = self.resume_at = 0
        self.began = False
        xid_size, done = _XID_SIZE if in_stream else 0, False
        while not done:
            before = self._state()
            try:
                after, done = self._read_batch(buf, pos, end, framing, xid_size)
                self._batch.convert()
            except (Undecoded, NoPlan):
                self._restore(before)
                done = self._batch_size == 0
                self._batch_size = 0  # message by message, up to the one that must be decoded
            except BaseException:
                self._restore(before)
                raise
            else:
                self._batch.flush()
                self._batch_size, pos = min(max(2 * self._batch_size, _LEAST), _MOST), after
        return pos

    def _read_batch(self, buf: Buffer, pos: int, end: int, framing: int, xid_size: int) -> tuple[int, bool]:
        """Process messages up to the end of a batch; returns where it ends, and whether the run ends there."""
        read_head, copy_data, more = _HEADS.get(framing, (None, b"", 0))
        header = framing + XLOG_HEADER_SIZE if framing else 0
        self._run = self._rows.run(self._transaction)
        self._framed = framed = framing > 0
        begin, lsn, stop, row, full, messages = -1, 0, end, self._row, pos + self._batch_size, 0
        try:
            while pos < end:
                at = pos + header
                if read_head is None:
                    tag = buf[at]
                else:
                    kind, size, frame, lsn, tag = read_head(buf, pos)
                    stop = pos + size + more
                    if frame != XLOG_DATA or kind != copy_data or not at < stop <= end or size > LARGE:
                        break
                if tag in _ROW_TAGS:
                    after = row(buf, at, stop, lsn, xid_size) if self.inside else -1
                elif xid_size:
                    break
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
        self._transaction = Transaction(xid, commit_lsn=commit_lsn, commit_ts=commit_ts)
        self._run = self._rows.run(self._transaction)
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
            self._boundary(self._output.end)
            self._rows.last_end = end_lsn
            if self._rows.counts:
                self._counts.update(self._rows.counts)
                self._rows.counts.clear()
        self.resume_at = end_lsn
        self.inside = self.began = self.started = False
        return after

    def _row(self, buf: Buffer, at: int, stop: int, lsn: int, xid_size: int) -> int:
        """Process a row message; returns its end, or -1 if it must be decoded."""
        pos = at + xid_size + 6
        head = buf[at : at + 1] + buf[at + 1 + xid_size : pos] if xid_size else buf[at:pos]
        kind = self._kinds[head] if head in self._kinds else self._describe(head)
        if kind is None:
            return -1
        special: list[int] = []
        row, width = [self._run, self.seq + 1, lsn or None, None], CELLS + kind.columns
        pos = read_cells(buf, pos, stop, row, special)
        if kind.old_kind and kind.op == "update" and pos > 0:
            if len(row) != width or buf[pos] != _NEW:
                return -1
            width += kind.columns
            pos = read_cells(buf, pos + 1, stop, row, special)
        if pos < 0 or len(row) != width or not self._ends(buf, pos, stop) or pos - at > LARGE:
            return -1
        if kind.shown and self._selected and (kind.condition is None or self._passes(kind, row)):
            try:
                like = kind.known.get(tuple(special)) or self._like(kind, row, tuple(special))
            except NoPlan:
                return -1
            if not self.started:
                self._start()
            if self.elements and self._output.separator:
                kind.texts.append(self._output.separator)
            self.elements += 1
            if like.line.counts:
                self._rows.counts.update(like.line.counts)
            self._batch.add(like, row)
        self.seq += 1
        self.rows += 1
        return pos

    def _passes(self, kind: _Kind, row: Row) -> bool:
        """Whether a row passes the condition."""
        condition, first = kind.condition, row[CELLS : CELLS + kind.columns]
        assert condition is not None
        old = tuple(first) if kind.old_kind else None
        new = None if kind.op == "delete" else tuple(row[len(row) - kind.columns :])
        change = RowChange(kind.op, self._transaction, row[1], row[2], kind.relation, kind.old_kind, old, new)
        found = condition.holds(change)
        self.not_sent += found is None and condition.untested
        return found is True

    def _describe(self, head: bytes) -> _Kind | None:
        """How to write rows whose messages begin with `head`; None if they must be decoded."""
        self._kinds[head] = None
        op, kinds = _OPS[head[:1]]
        relation = self._find(_OID(head, 1)[0])
        if relation is not None and head[5:] in kinds:
            old_kind = "" if head[5] == _NEW else head[5:].decode()
            filter_, columns = self._filter, len(relation.columns)
            shown = filter_ is None or filter_.row_passes(relation, op)
            condition = filter_.bound(relation, op) if filter_ is not None and shown else None
            self._kinds[head] = _Kind(relation, columns, op, old_kind, shown, condition)
        return self._kinds[head]

    def _like(self, kind: _Kind, row: Row, special: tuple[int, ...]) -> LikeRows:
        """The rows of the batch that are written as this one. Raises NoPlan."""
        if kind.lines is None:
            kind.lines, write = self._rows.lines(self._shape_of(kind.relation, kind.op, kind.old_kind))
            kind.texts = self._batch.texts_to(write)
        line = kind.lines.line(row)
        if kind.lines.compares:
            return self._batch.like(line, kind.texts)
        if len(kind.known) >= _MOST_KNOWN:
            kind.known.clear()
        return kind.known.setdefault(special, LikeRows(line, kind.texts))

    def _start(self) -> None:
        """Write the start of the transaction, if it was not written."""
        if not self.started:
            self.started = True
            self._boundary(self._output.begin)

    def _boundary(self, plan: Plan) -> None:
        """Write the start or the end of the transaction."""
        if plan:
            text = self._rows.boundary(plan, self._transaction, lsn=self._transaction.commit_lsn)
            self._boundaries.append(text)

    def _state(self) -> dict[str, Any]:
        """What a batch changes."""
        counts = (self._counts.copy(), self._rows.counts.copy(), self._rows.last_end, self._transaction.end_lsn)
        return {**vars(self), "counts": counts}

    def _restore(self, state: dict[str, Any]) -> None:
        """Go back to the start of the batch, of which nothing was written."""
        counts, of_open, self._rows.last_end, end_lsn = state.pop("counts")
        vars(self).update(state)
        self._counts = counts
        self._transaction.end_lsn = end_lsn
        self._rows.counts.clear()
        self._rows.counts.update(of_open)
        self._batch.drop()
