"""Writes decoded changes by row plans (native/plan.py), which it keeps for each version of a table."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from pgtail.changes.events import Change, LogicalMessage, RowChange, TableTruncate, Transaction
from pgtail.changes.relations import Column, Relation
from pgtail.native.plan import LARGE, Encoding, Form, Plan, Side
from pgtail.outputs.cells import columns_of
from pgtail.outputs.executor import Clock, Line, Part, Row, Run, joined_parts, text_of
from pgtail.outputs.lines import Lines
from pgtail.values import Undecoded


class Shape(NamedTuple):
    """What a plan depends on: the table, the operation, the kind of the old tuple and the widths of both tuples.

    `old_kind` is K, O or empty. A width is None for a tuple that was not sent.
    """

    relation: Relation
    op: str
    old_kind: str
    old_width: int | None
    new_width: int | None

    @property
    def columns(self) -> tuple[Column, ...]:
        """At least as many columns as either tuple has."""
        return columns_of(self.relation, max(self.old_width or 0, self.new_width or 0))

    def width(self, side: Side) -> int:
        """The width of a tuple; 0 if it was not sent."""
        return (self.old_width if side == "old" else self.new_width) or 0

    def in_old(self, index: int) -> bool:
        """Whether a NULL in the old tuple is a value, and not a column outside the replica identity."""
        if self.old_kind == "O" and self.relation.seen:
            return True
        columns = self.relation.columns
        return index < len(columns) and columns[index].key


Write: TypeAlias = Callable[[bytes], object]

PlanOf: TypeAlias = Callable[[Shape], tuple[Plan, Write]]
"""The plan of a shape, and what its rows are written to. Raises NoPlan if there is none."""


def encoding_of_text(
    column: Column,
    encode: Callable[[str], bytes],
    *,
    form: Form | None = None,
    undecoded: Callable[[Undecoded], bytes] | None = None,
) -> Encoding:
    """The encoding of a column whose values are written from PostgreSQL's text by `encode`, which may raise Undecoded.

    `undecoded` is `encode` of the text shown instead, if not given.
    """
    codec = column.codec
    text_of, binary_of = codec.text_text, codec.text_binary
    return Encoding(
        codec,
        text=lambda cell: encode(text_of(cell)),
        binary=lambda cell: encode(binary_of(cell)),
        undecoded=undecoded or (lambda found: encode(found.text)),
        form=form,
    )


class Rows:
    """Writes row changes by the plans of `plan_of`, which it keeps for each version of a table.

    `one_by_one`: even a long row is written at once.
    """

    def __init__(self, plan_of: PlanOf, clock: Clock = time.time_ns, *, one_by_one: bool = False) -> None:
        self.last_end: int | None = None
        """The value of Field.LAST_END."""
        self.counts: Counter[str] = Counter()
        """The executions of each Count in the open transaction."""
        self.ordinals: dict[str, int] = {}
        """The last number of each Ordinal in the open transaction."""
        self._plan_of = plan_of
        self._clock = clock
        self._one_by_one = one_by_one
        self._plans: dict[tuple[int | str | None, ...], tuple[Relation, Lines, Write]] = {}
        self._run = self.run(Transaction(None))

    def run(self, transaction: Transaction) -> Run:
        """For the rows of a transaction."""
        return Run(transaction, self._clock, self.counts, self.ordinals, self.last_end)

    def resume(self, ordinals: Mapping[str, int], counts: Mapping[str, int]) -> None:
        """Number and count on from these in the open transaction. Runs share the dictionaries."""
        self.ordinals.clear()
        self.ordinals.update(ordinals)
        self.counts.clear()
        self.counts.update(counts)

    def lines(self, shape: Shape) -> tuple[Lines, Write]:
        """How to write rows of this shape, and what they are written to. Raises NoPlan."""
        key = (shape.relation.version, *shape[1:])
        known = self._plans.get(key)
        if known is None or known[0] is not shape.relation:
            plan, write = self._plan_of(shape)
            known = self._plans[key] = (shape.relation, Lines(plan, shape.width("old")), write)
        return known[1:]

    def forget_plans(self) -> None:
        """Ask for new plans: those of the output have changed."""
        self._plans.clear()

    def write(self, change: RowChange, before: bytes = b"") -> None:
        """Write a change, after the text `before`. Raises NoPlan before anything is written."""
        write, line, row = self._line(change)
        if not _has_long_cell(row):
            with contextlib.suppress(Undecoded):
                write(before + line.text(row))
                return
        parts = [before, *line.parts(row)]
        if self._one_by_one:
            write(joined_parts(parts))
        else:
            write_parts(parts, write)

    def text(self, change: RowChange) -> bytes:
        """The text of a change. Raises NoPlan."""
        _, line, row = self._line(change)
        return joined_parts(line.parts(row))

    def truncate(self, plan: Plan, change: TableTruncate | RowChange) -> bytes:
        """The text of a plan without tuples for a truncated table, or for a row that its own plan cannot express."""
        return text_of(plan, self._run_of(change, change.transaction))

    def message(self, plan: Plan, message: LogicalMessage) -> bytes:
        """The text of a plan without tuples for a logical message. Without a transaction, its fields are unknown."""
        return text_of(plan, self._run_of(message, message.transaction or Transaction(None)))

    def boundary(self, plan: Plan, transaction: Transaction, *, lsn: int | None = None) -> bytes:
        """The text of a plan without tuples for a transaction: its start or its end."""
        run = self.run(transaction)
        run.lsn = lsn
        return text_of(plan, run)

    def _run_of(self, change: Change, transaction: Transaction) -> Run:
        run = self.run(transaction)
        run.seq, run.lsn, run.aborted = getattr(change, "seq", None), change.lsn, change.aborted
        return run

    def _line(self, change: RowChange) -> tuple[Write, Line, Row]:
        old, new = change.old, change.new
        widths = None if old is None else len(old), None if new is None else len(new)
        lines, write = self.lines(Shape(change.relation, change.op, change.old_kind, *widths))
        if self._run.transaction is not change.transaction or self._run.last_end != self.last_end:
            self._run = self.run(change.transaction)
        row = self._run.row(change.seq, change.lsn, aborted=change.aborted)
        row += (*(old or ()), *(new or ()))
        line = lines.line(row)
        line.numbered(row, self._run)
        return write, line, row


def _has_long_cell(row: Row) -> bool:
    return any(isinstance(cell, bytes) and len(cell) >= LARGE for cell in row)


def write_parts(parts: Sequence[Part], write: Write) -> None:
    """Write a text from its parts: at once, or one by one if it is long."""
    texts = [part for part in parts if isinstance(part, bytes)]
    if len(texts) == len(parts) and sum(map(len, texts)) < LARGE:
        write(b"".join(texts))
        return
    for part in parts:
        if isinstance(part, bytes):
            write(part)
        else:
            for piece in part:
                write(piece)
