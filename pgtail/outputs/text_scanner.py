"""Writes rows by the plans of an output, from bytes to text, without messages and events, in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from pgtail.changes.filters import Filter
from pgtail.changes.relations import Relation
from pgtail.native.plan import NoPlan, Plan
from pgtail.outputs.batch import Batch, LikeRows
from pgtail.outputs.executor import Clock, Row
from pgtail.outputs.rows import Rows, Shape, Write
from pgtail.outputs.scanner import Kind, RowScanner
from pgtail.pgoutput.cursor import Buffer
from pgtail.values import Undecoded

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


class TextScanner(RowScanner):
    """Writes rows by the plans of an output."""

    def __init__(
        self,
        find: Callable[[int], Relation | None],
        filter_: Filter | None,
        shape_of: ShapeOf,
        output: TextOutput,
    ) -> None:
        super().__init__(find, filter_)
        self._shape_of, self._output = shape_of, output
        self._rows = Rows(output.row, output.clock)
        self._batch = Batch(one_by_one=output.one_by_one)
        self._boundaries = self._batch.texts_to(output.write)
        self._batch_size = _MOST
        self._run = self._rows.run(self._transaction)
        self._counts: Counter[str] = Counter()
        """The counts of committed transactions."""

    @property
    def last_end_lsn(self) -> int | None:
        """The end LSN of the transaction written last."""
        return self._rows.last_end

    @last_end_lsn.setter
    def last_end_lsn(self, value: int | None) -> None:
        self._rows.last_end = value

    @property
    def ordinals(self) -> dict[str, int]:
        """The last number of each Ordinal in the open transaction."""
        return self._rows.ordinals.copy()

    @ordinals.setter
    def ordinals(self, value: dict[str, int]) -> None:
        self._rows.resume(value)

    def forget(self) -> None:
        super().forget()
        self._batch = Batch(one_by_one=self._output.one_by_one)
        self._boundaries = self._batch.texts_to(self._output.write)

    def forget_plans(self) -> None:
        """Ask for new plans: those of the output have changed."""
        self.forget()
        self._rows.forget_plans()

    def take_counts(self) -> tuple[Counter[str], Counter[str]]:
        """The executions of each Count since the last call: of committed transactions, and of the open one."""
        committed, self._counts = self._counts, Counter()
        of_open = self._rows.counts.copy()
        self._rows.counts.clear()
        return committed, of_open

    def scan(self, buf: Buffer, pos: int, end: int, framing: int, in_stream: bool = False) -> int:
        self._reset()
        done = in_stream
        while not done:
            before = self._state()
            self._run = self._rows.run(self._transaction)
            try:
                after, done = self._read(buf, pos, end, framing, self._batch_size)
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

    def _emit(self, kind: Kind, row: Row, special: tuple[int, ...], size: int) -> bool:
        try:
            like = kind.known.get(special) or self._like(kind, row, special)
        except NoPlan:
            return False
        if not self.started:
            self._start()
        if self.elements and self._output.separator:
            kind.texts.append(self._output.separator)
        self.elements += 1
        if like.line.counts:
            self._rows.counts.update(like.line.counts)
        if self._run.transaction is not self._transaction:
            self._run = self._rows.run(self._transaction)
        row[0] = self._run
        if like.line.ordinals:
            like.line.numbered(row, self._run)
        self._batch.add(like, row)
        return True

    def _end(self) -> None:
        self._boundary(self._output.end)
        self._rows.last_end = self._transaction.end_lsn
        if self._rows.counts:
            self._counts.update(self._rows.counts)
            self._rows.counts.clear()

    def _like(self, kind: Kind, row: Row, special: tuple[int, ...]) -> LikeRows:
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
            self._rows.ordinals.clear()
            self._boundary(self._output.begin)

    def _boundary(self, plan: Plan) -> None:
        """Write the start or the end of the transaction."""
        if plan:
            text = self._rows.boundary(plan, self._transaction, lsn=self._transaction.commit_lsn)
            self._boundaries.append(text)

    def _state(self) -> dict[str, Any]:
        """What a batch changes."""
        counts = (self._counts.copy(), self._rows.counts.copy(), self._rows.last_end, self._transaction.end_lsn)
        return {**vars(self), "counts": counts, "ordinals": self.ordinals}

    def _restore(self, state: dict[str, Any]) -> None:
        """Go back to the start of the batch, of which nothing was written."""
        counts, of_open, self._rows.last_end, end_lsn = state.pop("counts")
        self.ordinals = state.pop("ordinals")
        vars(self).update(state)
        self._counts = counts
        self._transaction.end_lsn = end_lsn
        self._rows.counts.clear()
        self._rows.counts.update(of_open)
        self._batch.drop()
