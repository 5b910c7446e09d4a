"""Writes decoded changes by row plans (native/plan.py), which it keeps for each version of a table."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from pgtail.changes.events import Change, LogicalMessage, RowChange, TableTruncate, Transaction
from pgtail.changes.relations import Column, Relation
from pgtail.native.plan import LARGE, Encoding, Form, Piece, Plan, Side
from pgtail.outputs.cells import columns_of
from pgtail.outputs.executor import Clock, Part, Prepared, Run, prepared, text_of, whole
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
        self._plan_of = plan_of
        self._clock = clock
        self._one_by_one = one_by_one
        self._plans: dict[tuple[int | str | None, ...], tuple[Relation, tuple[Prepared, Write]]] = {}
        self.last_end: int | None = None
        """The value of Field.LAST_END."""
        self.counts: Counter[str] = Counter()
        """The executions of each Count."""

    def forget_plans(self) -> None:
        """Ask for new plans: those of the output have changed."""
        self._plans.clear()

    def write(self, change: RowChange, before: bytes = b"") -> None:
        """Write a change, after the text `before`. Raises NoPlan before anything is written."""
        plan, write = self._plan(change)
        run = Run(change, change.transaction, self._clock, self.last_end, self.counts)
        run.parts.append(before)
        run.execute(plan)
        if not run.long:
            write(b"".join(run.parts))  # type: ignore[arg-type]
        elif self._one_by_one:
            write(whole(run.parts))
        else:
            write_parts(run.parts, write)

    def text(self, change: RowChange) -> bytes:
        """The text of a change. Raises NoPlan."""
        run = Run(change, change.transaction, self._clock, self.last_end, self.counts)
        run.execute(self._plan(change)[0])
        return whole(run.parts)

    def truncate(self, plan: Plan, change: TableTruncate | RowChange) -> bytes:
        """The text of a plan without tuples for a truncated table, or for a row that its own plan cannot express."""
        return self._text(plan, change, change.transaction)

    def message(self, plan: Plan, message: LogicalMessage) -> bytes:
        """The text of a plan without tuples for a logical message. Without a transaction, its fields are unknown."""
        return self._text(plan, message, message.transaction or Transaction(None))

    def boundary(self, plan: Plan, transaction: Transaction, *, lsn: int | None = None) -> bytes:
        """The text of a plan without tuples for a transaction: its start or its end."""
        return self._text(plan, LogicalMessage(transaction, lsn, "", b"", True), transaction)

    def _text(self, plan: Plan, change: Change, transaction: Transaction) -> bytes:
        return text_of(plan, Run(change, transaction, self._clock, self.last_end, self.counts))

    def _plan(self, change: RowChange) -> tuple[Prepared, Write]:
        relation, old, new = change.relation, change.old, change.new
        old_width, new_width = None if old is None else len(old), None if new is None else len(new)
        key = (relation.version, change.op, change.old_kind, old_width, new_width)
        known = self._plans.get(key)
        if known is None or known[0] is not relation:
            plan, write = self._plan_of(Shape(relation, change.op, change.old_kind, old_width, new_width))
            known = self._plans[key] = (relation, (prepared(plan), write))
        return known[1]


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


def joined(pieces: list[Piece]) -> Plan:
    """A plan with neighbouring texts joined, without empty ones."""
    found: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, bytes) and found and isinstance(found[-1], bytes):
            found[-1] += piece
        elif piece != b"":
            found.append(piece)
    return tuple(found)
