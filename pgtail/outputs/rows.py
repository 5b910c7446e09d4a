"""Executes row plans (native/plan.py) for decoded changes, in plain Python."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from pgtail.changes.events import Change, LogicalMessage, RowChange, TableTruncate, Transaction
from pgtail.changes.relations import Column, Relation
from pgtail.native.plan import (
    LARGE,
    Cell,
    Cells,
    Count,
    Dollars,
    Empty,
    Encoding,
    Field,
    IfChanged,
    Names,
    NoPlan,
    Odd,
    Piece,
    Plan,
    Side,
    Text,
    Undecodable,
    Value,
)
from pgtail.outputs.cells import columns_of, timestamp
from pgtail.pgoutput.cells import UNCHANGED, Binary, TupleData
from pgtail.pgoutput.cells import Cell as SentCell
from pgtail.pgoutput.scalars import lsn_text, time_text, unix_micros
from pgtail.values import Undecoded

Part: TypeAlias = bytes | Iterator[bytes]
"""A part of a row's text: bytes, or a long value in pieces."""

Clock: TypeAlias = Callable[[], int]
"""The current time in nanoseconds since 1970-01-01 UTC."""


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
    form: Any = None,
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


class _Run:
    """The execution of one plan: the properties of its change, and what its cells turned out to be."""

    __slots__ = ("aborted", "lists", "lsn", "new", "odd", "old", "parts", "rows", "seq", "transaction")

    def __init__(self, change: Change, transaction: Transaction, rows: Rows) -> None:
        self.transaction = transaction
        self.rows = rows
        self.lsn = change.lsn
        self.aborted = change.aborted
        self.seq = None if isinstance(change, LogicalMessage) else change.seq
        self.old, self.new = (change.old, change.new) if isinstance(change, RowChange) else (None, None)
        self.parts: list[Part] = []
        self.lists: dict[Side, tuple[list[int], list[int], list[int]]] = {}
        """By tuple: the indexes of its unchanged cells, of those of them that were filled, and of NULLs outside the
        replica identity."""
        self.odd: list[Odd] = []

    def execute(self, plan: Plan) -> None:
        later: list[tuple[int, Names | Undecodable]] = []
        parts = self.parts
        for piece in plan:
            if piece.__class__ is bytes:
                parts.append(piece)
            elif piece.__class__ is Value:
                parts.append(self._value(piece))
            elif piece.__class__ is Cells:
                self._cells(piece)
            elif isinstance(piece, Text):
                parts.append(piece.of(self.transaction))
            elif isinstance(piece, Names | Undecodable):
                later.append((len(parts), piece))
                parts.append(b"")
            elif isinstance(piece, IfChanged):
                self.execute(piece.then if _differ(self.old or (), self.new or (), piece.indexes) else piece.otherwise)
            elif isinstance(piece, Dollars):
                self._dollars(piece)
            elif isinstance(piece, Count):
                self.rows.counts[piece.key] += 1
        for place, piece in later:
            parts[place] = self._names(piece) if isinstance(piece, Names) else piece.of(self.odd) if self.odd else b""

    def _value(self, piece: Value) -> bytes:
        found = _FIELDS[piece.field](self)
        if found is not None:
            return piece.before + found + piece.after
        if isinstance(piece.missing, bytes):
            return piece.missing
        found = _FIELDS[piece.missing](self)
        assert found is not None
        return found

    def _cells(self, piece: Cells) -> None:
        row, other = self._tuples(piece)
        unchanged, filled, absent = self.lists[piece.side] = ([], [], [])
        parts, separator = self.parts, b""
        start = len(parts)
        for plan in piece.cells:
            index = plan.index
            cell = row[index] if index < len(row) else None
            if plan.skip_same and index < len(other) and _same(piece.side, cell, other[index]):
                continue
            if cell is UNCHANGED:
                unchanged.append(index)
                if piece.fill and index < len(other) and other[index] is not None:
                    cell = other[index]
                    filled.append(index)
            if cell is None or cell is UNCHANGED:
                if plan.required:
                    raise NoPlan("a column of the replica identity was not sent")
                if cell is None and plan.null_absent:
                    absent.append(index)
                text = plan.null if cell is None else plan.unchanged
                if text is None:
                    continue
                parts.append(separator + plan.before + text + plan.after)
            elif plan.encoding is None:
                parts.append(separator + plan.before + plan.after)
            else:
                found = self._cell(piece.side, plan, plan.encoding, cell)
                if found.__class__ is bytes:
                    parts.append(separator + plan.before + found + plan.after)
                else:
                    parts += (separator + plan.before, found, plan.after)
            separator = piece.separator
        if piece.not_empty and len(parts) == start:
            raise Empty("no value was sent")

    def _tuples(self, piece: Cells) -> tuple[TupleData, TupleData]:
        """The tuple of these cells, and the other one."""
        row, other = (self.new, self.old) if piece.side == "new" else (self.old, self.new)
        assert row is not None
        if piece.whole and UNCHANGED in row:
            raise NoPlan("a value was not sent")
        return row, other or ()

    def _cell(self, side: Side, plan: Cell, encoding: Encoding, cell: bytes) -> Part:
        try:
            if cell.__class__ is Binary:
                if len(cell) > LARGE and encoding.long_binary is not None:
                    return encoding.long_binary(cell)
                return encoding.binary(cell)
            if len(cell) > LARGE and encoding.long_text is not None:
                return encoding.long_text(cell)
            return encoding.text(cell)
        except Undecoded as undecoded:
            self.odd.append(Odd(side, plan.index, undecoded.text))
            return encoding.undecoded(undecoded)

    def _names(self, piece: Names) -> bytes:
        found: list[int] = []
        for side in piece.sides:
            unchanged, filled, absent = self.lists.get(side, ((), (), ()))
            listed = unchanged if piece.filled else [index for index in unchanged if index not in filled]
            found += sorted([*listed, *absent]) if piece.absent else listed
        return piece.of(found) if found else b""

    def _dollars(self, piece: Dollars) -> None:
        start = len(self.parts)
        self.execute(piece.pieces)
        text = _whole(self.parts[start:])
        self.parts[start:] = [dollar_quoted(text)]


def dollar_quoted(text: bytes) -> bytes:
    """Dollar-quoted text, which must not end with a dollar sign."""
    tags = itertools.chain((b"$$",), (b"$_%d$" % number for number in itertools.count(1)))
    tag = next(tag for tag in tags if tag not in text)
    return tag + text + tag


def _same(side: Side, cell: SentCell, other: SentCell) -> bool:
    return cell == other or (side == "old" and other is UNCHANGED)


def _differ(old: TupleData, new: TupleData, indexes: tuple[int, ...]) -> bool:
    known = [index for index in indexes if index < min(len(old), len(new)) and new[index] is not UNCHANGED]
    return any(old[index] != new[index] for index in known)


def _number(value: int | None) -> bytes | None:
    return None if value is None else b"%d" % value


def _lsn(value: int | None) -> bytes | None:
    return None if value is None else lsn_text(value).encode()


def _unix(transaction: Transaction, numerator: int, denominator: int) -> bytes | None:
    when = transaction.time
    return None if when is None else b"%d" % (unix_micros(when) * numerator // denominator)


def _of_time(text: Callable[[int], str]) -> Callable[[_Run], bytes | None]:
    def field(run: _Run) -> bytes | None:
        when = run.transaction.commit_ts
        return None if when is None else text(when).encode()

    return field


def _state(run: _Run) -> bytes | None:
    state = "aborted" if run.aborted else run.transaction.state
    return None if state is None else state.encode()


def _position(run: _Run) -> int | None:
    return run.transaction.lsn if run.lsn is None else run.lsn


_FIELDS: Final[dict[Field, Callable[[_Run], bytes | None]]] = {
    Field.XID: lambda run: _number(run.transaction.xid),
    Field.COMMIT_LSN: lambda run: _lsn(run.transaction.commit_lsn),
    Field.COMMIT_TS: _of_time(time_text),
    Field.TIMESTAMP: _of_time(timestamp),
    Field.UNIX_MS: lambda run: _unix(run.transaction, 1, 1000),
    Field.UNIX_US: lambda run: _unix(run.transaction, 1, 1),
    Field.UNIX_NS: lambda run: _unix(run.transaction, 1000, 1),
    Field.END_LSN: lambda run: _lsn(run.transaction.end_lsn),
    Field.CHANGES: lambda run: _number(run.transaction.changes if run.transaction.begun else None),
    Field.LAST_END: lambda run: _number(run.rows.last_end),
    Field.SEQ: lambda run: _number(run.seq),
    Field.LSN: lambda run: _lsn(run.lsn),
    Field.LSN_NUMBER: lambda run: _number(run.lsn),
    Field.POSITION_NUMBER: lambda run: _number(_position(run)),
    Field.ABORTED: lambda run: b"true" if run.aborted else None,
    Field.NOW_MS: lambda run: b"%d" % (run.rows.clock() // 1_000_000),
    Field.NOW_US: lambda run: b"%d" % (run.rows.clock() // 1000),
    Field.NOW_NS: lambda run: b"%d" % run.rows.clock(),
    Field.COMMIT_TIME: _of_time(lambda time: time_text(time).replace("T", " ")),
    Field.STATE: _state,
}


class Rows:
    """Writes row changes by the plans of `plan_of`, which it keeps for each version of a table.

    `one_by_one`: even a long row is written at once.
    """

    def __init__(self, plan_of: PlanOf, clock: Clock = time.time_ns, *, one_by_one: bool = False) -> None:
        self._plan_of = plan_of
        self.clock: Clock = clock
        self._one_by_one = one_by_one
        self._plans: dict[tuple[int | str | None, ...], tuple[Relation, tuple[Plan, Write]]] = {}
        self.last_end: int | None = None
        """The value of Field.LAST_END."""
        self.counts: Counter[str] = Counter()
        """The executions of each Count."""

    def write(self, change: RowChange, before: bytes = b"") -> None:
        """Write a change, after the text `before`. Raises NoPlan before anything is written."""
        plan, write = self._plan(change)
        parts = [before, *self._parts(plan, change, change.transaction)]
        if self._one_by_one:
            write(_whole(parts))
        else:
            write_parts(parts, write)

    def text(self, change: RowChange) -> bytes:
        """The text of a change. Raises NoPlan."""
        return self._text(self._plan(change)[0], change, change.transaction)

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
        return _whole(self._parts(plan, change, transaction))

    def _parts(self, plan: Plan, change: Change, transaction: Transaction) -> list[Part]:
        run = _Run(change, transaction, self)
        run.execute(plan)
        return run.parts

    def _plan(self, change: RowChange) -> tuple[Plan, Write]:
        relation = change.relation
        widths = [None if row is None else len(row) for row in (change.old, change.new)]
        key = (relation.version, change.op, change.old_kind, *widths)
        known = self._plans.get(key)
        if known is None or known[0] is not relation:
            found = self._plan_of(Shape(relation, change.op, change.old_kind, *widths))
            known = self._plans[key] = (relation, found)
        return known[1]


def _whole(parts: Sequence[Part]) -> bytes:
    return b"".join([part if isinstance(part, bytes) else b"".join(part) for part in parts])


def write_parts(parts: Sequence[Part], write: Write) -> None:
    """Write a text from its parts: at once, or one by one if it is long."""
    whole = [part for part in parts if isinstance(part, bytes)]
    if len(whole) == len(parts) and sum(map(len, whole)) < LARGE:
        write(b"".join(whole))
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
