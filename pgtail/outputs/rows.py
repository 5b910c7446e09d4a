"""Writes decoded changes by row plans (native/plan.py), which it keeps for each version of a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from pgtail.changes.events import OLD_ROWS, SEEN, Change, LogicalMessage, RowChange, TableTruncate, Transaction
from pgtail.changes.relations import Column, Relation, unnamed
from pgtail.native.plan import LARGE, Encoding, Form, Piece, Plan, Side
from pgtail.outputs.executor import Part, Program, joined_parts, parts_of, program
from pgtail.outputs.fields import Clock, PlanRow
from pgtail.values import Undecoded

if TYPE_CHECKING:
    from pgtail.changes.context import Context


def columns_of(relation: Relation, count: int) -> tuple[Column, ...]:
    """At least `count` columns: those of the table, and columns named ?n for cells beyond them."""
    known = len(relation.columns)
    if known >= count:
        return relation.columns
    more = [Column(unnamed(index), 0, -1, False, "", relation.beyond) for index in range(known, count)]
    return (*relation.columns, *more)


class Shape(NamedTuple):
    """The key of a plan: the table, the operation, the kind of the old tuple and the widths of both tuples.

    `old_kind` is K, O, SEEN or empty. A width is None for a tuple that was not sent.
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

    @property
    def row_side(self) -> Side:
        """The tuple with the row: for a delete the old one, as far as it was sent, else the new one."""
        return "old" if self.new_width is None else "new"

    def width(self, side: Side) -> int:
        """The width of a tuple; 0 if it was not sent."""
        return (self.old_width if side == "old" else self.new_width) or 0

    @property
    def has_old_row(self) -> bool:
        """Whether the old tuple is the old row (unknown values are UNCHANGED), and not only its key."""
        return self.old_kind in OLD_ROWS and self.relation.seen

    @property
    def seen(self) -> tuple[int, ...]:
        """The columns of the old row that the server did not send: the input had shown them before."""
        columns = enumerate(self.relation.columns)
        return tuple([index for index, one in columns if not one.key]) if self.old_kind == SEEN else ()

    def in_old(self, index: int) -> bool:
        """Whether a NULL in the old tuple is a value, and not a column outside the replica identity."""
        if self.has_old_row:
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
        self.counts: dict[str, int] = {}
        """The executions of each Count in the open transaction."""
        self._plan_of = plan_of
        self._clock = clock
        self._one_by_one = one_by_one
        self._known: tuple[Transaction | None, int | None, Context | None, dict[object, Any]]
        self._known = (None, None, None, {})
        """PlanRow.known of the rows of a transaction with one context that follow the transaction with this end LSN."""
        self._plans: dict[tuple[int | str | None, ...], tuple[Relation, Program, Write]] = {}

    def forget_plans(self) -> None:
        """Ask for new plans: those of the output have changed."""
        self._plans.clear()

    def write(self, change: RowChange, before: bytes = b"") -> None:
        """Write a change, after the text `before`. Raises NoPlan before anything is written."""
        plan, write = self._plan(change)
        row = self._row(change.transaction, change)
        parts = [before, *self._parts(plan, row)]
        if self._one_by_one or not row.is_long:
            write(joined_parts(parts))
        else:
            write_parts(parts, write)

    def text(self, change: RowChange) -> bytes:
        """The text of a change. Raises NoPlan."""
        return joined_parts(self._parts(self._plan(change)[0], self._row(change.transaction, change)))

    def pieces(self, change: RowChange) -> Iterator[tuple[Piece, list[Part]]]:
        """The pieces of the plan of a change, each with the parts of its text. Raises NoPlan."""
        row = self._row(change.transaction, change)
        for piece in self._plan(change)[0].plan:
            yield piece, parts_of(piece)(row)

    def truncate(self, plan: Plan, change: TableTruncate | RowChange) -> bytes:
        """The text of a plan without tuples for a truncated table, or for a row that its own plan cannot express."""
        return joined_parts(self._parts(program(plan), self._row(change.transaction, change)))

    def message(self, plan: Plan, message: LogicalMessage) -> bytes:
        """The text of a plan without tuples for a logical message. Without a transaction, its fields are unknown."""
        return joined_parts(self._parts(program(plan), self._row(message.transaction or Transaction(None), message)))

    def boundary(self, plan: Plan, transaction: Transaction, *, lsn: int | None = None) -> bytes:
        """The text of a plan without tuples for a transaction: its start or its end."""
        return joined_parts(self._parts(program(plan), PlanRow(transaction, self._clock, self.last_end, lsn)))

    def _plan(self, change: RowChange) -> tuple[Program, Write]:
        """The compiled plan for a change, and its target. Raises NoPlan."""
        relation, op, old_kind = change.relation, change.op, change.old_kind
        old_width = None if change.old is None else len(change.old)
        new_width = None if change.new is None else len(change.new)
        key = (relation.version, op, old_kind, old_width, new_width)
        known = self._plans.get(key)
        if known is None or known[0] is not relation:
            shape = Shape(relation, op, old_kind, old_width, new_width)
            plan, write = self._plan_of(shape)
            known = self._plans[key] = (relation, Program(plan), write)
        return known[1:]

    def _row(self, transaction: Transaction, change: Change) -> PlanRow:
        of, last_end, context, known = self._known
        if of is not transaction or last_end != self.last_end or context is not transaction.context:
            known = {}
            self._known = (transaction, self.last_end, transaction.context, known)
        row = PlanRow(transaction, self._clock, self.last_end, change.lsn, aborted=change.aborted, known=known)
        if isinstance(change, RowChange):
            row.seq, row.old, row.new = change.seq, change.old or (), change.new or ()
        elif isinstance(change, TableTruncate):
            row.seq = change.seq
        return row

    def _parts(self, plan: Program, row: PlanRow) -> list[Part]:
        parts = plan.parts(row)
        for key in plan.counts:
            self.counts[key] = self.counts.get(key, 0) + 1
        return parts


def write_parts(parts: Sequence[Part], write: Write) -> None:
    """Write a text from its parts: at once, or one by one if it is long."""
    texts = cast(Sequence[bytes], parts)
    try:
        short = sum(map(len, texts)) < LARGE
    except TypeError:  # a value in pieces has no length
        short = False
    if short:
        write(b"".join(texts))
        return
    for part in parts:
        if isinstance(part, bytes):
            write(part)
        else:
            for piece in part:
                write(piece)
