"""Executes one row plan (native/plan.py) for one decoded change, in plain Python."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from pgtail.changes.events import Change, RowChange, Transaction
from pgtail.native.plan import (
    LARGE,
    TRANSACTION_FIELDS,
    Cell,
    Cells,
    Changed,
    Count,
    Dollars,
    Empty,
    Encoding,
    Fitted,
    IfChanged,
    Names,
    NoPlan,
    Odd,
    Plan,
    Side,
    Skip,
    Text,
    Undecodable,
    Value,
)
from pgtail.outputs.fields import FIELDS
from pgtail.pgoutput.cells import UNCHANGED, Binary, TupleData
from pgtail.pgoutput.cells import Cell as SentCell
from pgtail.values import Undecoded

Part: TypeAlias = bytes | Iterator[bytes]
"""A part of a row's text: bytes, or a long value in pieces."""

Clock: TypeAlias = Callable[[], int]
"""The current time in nanoseconds since 1970-01-01 UTC."""

Prepared: TypeAlias = Sequence[Any]
"""A plan with groups, known values and ordinary cells in place of their pieces."""


def prepared(plan: Plan) -> Prepared:
    """A plan as Run.execute() takes it."""
    found: list[Any] = []
    group: list[bytes | Value | Text] = []
    ends = 0
    for piece in (*plan, None):
        of_transaction = (isinstance(piece, Value) and piece.field in TRANSACTION_FIELDS) or (
            isinstance(piece, Text) and not piece.of_row
        )
        if of_transaction:
            group.append(piece)  # type: ignore[arg-type]
            ends = len(group)
            continue
        if isinstance(piece, bytes) and group:
            group.append(piece)
            continue
        if group:
            found += [_Group(group[:ends]), *group[ends:]]
            group = []
        if isinstance(piece, Cells) and _Ordinary.fits(piece):
            found.append(_Ordinary(piece))
        elif isinstance(piece, Value):
            found.append(_known(piece))
        elif isinstance(piece, Dollars | Fitted):
            found.append(replace(piece, pieces=tuple(prepared(piece.pieces))))
        elif isinstance(piece, IfChanged):
            then, otherwise = prepared(piece.then), prepared(piece.otherwise)
            found.append(IfChanged(piece.indexes, tuple(then), tuple(otherwise)))
        elif piece is not None:
            found.append(piece)
    return found


class _Group:
    """Pieces that depend on the transaction only, with their text for one transaction."""

    __slots__ = ("pieces", "text", "transaction")

    def __init__(self, pieces: list[bytes | Value | Text]) -> None:
        self.pieces = pieces
        self.transaction: Transaction | None = None
        self.text = b""

    def write(self, run: Run) -> bytes:
        """The text for the transaction of a run, which is kept."""
        self.transaction = run.transaction
        self.text = text_of(self.pieces, run)
        return self.text


class _Known(NamedTuple):
    """A Value with the function that reads its field."""

    read: Callable[[Run], bytes | None]
    before: bytes
    after: bytes
    missing: Callable[[Run], bytes]


def _known(value: Value) -> _Known:
    missing = value.missing
    if isinstance(missing, bytes):
        return _Known(FIELDS[value.field], value.before, value.after, lambda run: missing)
    return _Known(FIELDS[value.field], value.before, value.after, lambda run: FIELDS[missing](run) or b"")


def text_of(pieces: Sequence[Any], run: Run) -> bytes:
    """The text of pieces without tuples."""
    return b"".join([piece if isinstance(piece, bytes) else _text(piece, run) for piece in pieces])


def _text(piece: Value | Text | Count, run: Run) -> bytes:
    if isinstance(piece, Text):
        return piece.of(run.transaction)
    if isinstance(piece, Count):
        run.counts[piece.key] += 1
        return b""
    value = _known(piece)
    found = value.read(run)
    return value.missing(run) if found is None else value.before + found + value.after


class _Ordinary:
    """Cells of a whole tuple that are usually text or NULL."""

    __slots__ = ("_columns", "_separator", "cells", "new")

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self.new = cells.side == "new"
        self._separator = cells.separator
        self._columns = [
            (cell.before, cell.encoding.text, cell.null and cell.before + cell.null)
            for cell in cells.cells
            if cell.encoding is not None
        ]

    @staticmethod
    def fits(cells: Cells) -> bool:
        """Whether the cells are those of a whole tuple, without any condition."""
        plain = [
            cell.index == index
            and cell.encoding is not None
            and not (cell.after or cell.null_absent or cell.required or cell.skip or cell.was)
            for index, cell in enumerate(cells.cells)
        ]
        return bool(plain) and all(plain) and not (cells.not_empty or cells.whole)

    def text(self, row: TupleData) -> bytes | None:
        """The text of a tuple; None if it has a cell that is not short text or NULL, or that cannot be decoded."""
        try:
            return self._separator.join(
                [
                    before + encode(cell) if cell.__class__ is bytes and len(cell) < LARGE else _null(cell, null)
                    for cell, (before, encode, null) in zip(row, self._columns, strict=True)
                ]
            )
        except (Undecoded, ValueError):
            return None


def _null(cell: SentCell, null: bytes | None) -> bytes:
    if cell is None and null is not None:
        return null
    raise ValueError("not an ordinary cell")


class Run:
    """The execution of one plan: the properties of its change, and what its cells turned out to be."""

    __slots__ = (
        "_clock",
        "_now",
        "aborted",
        "counts",
        "last_end",
        "lists",
        "long",
        "lsn",
        "new",
        "odd",
        "old",
        "parts",
        "seq",
        "transaction",
    )

    def __init__(
        self, change: Change, transaction: Transaction, clock: Clock, last_end: int | None, counts: Counter[str]
    ) -> None:
        self.transaction = transaction
        self.lsn = change.lsn
        self.aborted = change.aborted
        if change.__class__ is RowChange:
            self.seq, self.old, self.new = change.seq, change.old, change.new
        else:
            self.seq, self.old, self.new = getattr(change, "seq", None), None, None
        self._clock = clock
        self.counts = counts
        self._now = 0
        self.last_end = last_end
        self.parts: list[Part] = []
        self.lists: dict[Side, tuple[list[int], list[int], list[int]]] = {}
        """By tuple: the indexes of its unchanged cells, of those of them that were filled, and of NULLs outside the
        replica identity. A tuple without such cells may be missing."""
        self.odd: list[Odd] = []
        self.long = False
        """Whether there is a long value, in pieces or as a whole."""

    def now(self) -> int:
        """The time of the clock when it was first asked for."""
        self._now = self._now or self._clock()
        return self._now

    def execute(self, plan: Prepared) -> None:
        later: list[tuple[int, Names | Undecodable]] = []
        parts = self.parts
        for piece in plan:
            kind = piece.__class__
            if kind is bytes:
                parts.append(piece)
            elif kind is _Group:
                parts.append(piece.text if piece.transaction is self.transaction else piece.write(self))
            elif kind is _Known:
                found = piece.read(self)
                parts.append(piece.missing(self) if found is None else piece.before + found + piece.after)
            elif kind is _Ordinary:
                row = self.new if piece.new else self.old
                text = piece.text(row)
                if text is None:
                    self._cells(piece.cells)
                else:
                    parts.append(text)
            elif kind is Names or kind is Undecodable:
                later.append((len(parts), piece))
                parts.append(b"")
            else:
                self._execute_rarer(piece)
        if self.lists or self.odd:
            for place, piece in later:
                parts[place] = self._names(piece) if isinstance(piece, Names) else self._undecodable(piece)

    def _execute_rarer(self, piece: Any) -> None:
        if isinstance(piece, Cells):
            self._cells(piece)
        elif isinstance(piece, Text):
            self.parts.append(piece.of(self.transaction))
        elif isinstance(piece, IfChanged):
            self.execute(piece.then if _differ(self.old or (), self.new or (), piece.indexes) else piece.otherwise)
        elif isinstance(piece, Dollars):
            self._replace(piece.pieces, dollar_quoted)
        elif isinstance(piece, Fitted):
            self._replace(piece.pieces, piece.fit)
        elif isinstance(piece, Changed):
            self.parts.append(piece.of(_changed(piece, self.old or (), self.new or ())))
        elif isinstance(piece, Count):
            self.counts[piece.key] += 1

    def _undecodable(self, piece: Undecodable) -> bytes:
        return piece.of(self.odd) if self.odd else b""

    def _cells(self, piece: Cells) -> None:
        row, other = self._tuples(piece)
        unchanged, filled, _ = self.lists[piece.side] = ([], [], [])
        parts, separator = self.parts, b""
        start = len(parts)
        for plan in piece.cells:
            index = plan.index
            cell = row[index] if index < len(row) else None
            before = other[index] if index < len(other) else UNCHANGED
            if plan.skip and _skipped(plan.skip, cell, before, is_new=piece.side == "new", alone=index >= len(other)):
                if plan.skipped is not None:
                    parts.append(separator + plan.before + plan.skipped + plan.after)
                    separator = piece.separator
                continue
            if cell is UNCHANGED:
                unchanged.append(index)
                if piece.fill and index < len(other) and before is not None:
                    cell = before
                    filled.append(index)
            found: Part = b""
            if cell is None or cell is UNCHANGED:
                missing = self._missing(piece.side, plan, cell)
                if missing is None:
                    continue
                found = missing
            first = separator + plan.before
            if plan.was is not None and before is not UNCHANGED and cell is not UNCHANGED and before != cell:
                parts += (first + plan.was.before, self._was(piece.side, plan, before))
                first = plan.was.after
            if plan.encoding is not None and cell is not None and cell is not UNCHANGED:
                found = self._cell(piece.side, plan, plan.encoding, cell)
            if found.__class__ is bytes:
                parts.append(first + found + plan.after)
            else:
                parts += (first, found, plan.after)
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

    def _missing(self, side: Side, plan: Cell, cell: object) -> bytes | None:
        """What replaces a NULL or unchanged value; None leaves the column out."""
        if plan.required:
            raise NoPlan("a column of the replica identity was not sent")
        if cell is not None:
            if plan.unchanged_odd:
                self.odd.append(Odd(side, plan.index, plan.unchanged_odd))
            return plan.unchanged
        if plan.null_absent:
            self.lists[side][2].append(plan.index)
        return plan.null

    def _was(self, side: Side, plan: Cell, cell: SentCell) -> Part:
        """The value in the other tuple."""
        if cell is None or plan.encoding is None:
            return plan.null or b""
        assert isinstance(cell, bytes)
        return self._cell("old" if side == "new" else "new", plan, plan.encoding, cell)

    def _cell(self, side: Side, plan: Cell, encoding: Encoding, cell: bytes) -> Part:
        self.long = self.long or len(cell) >= LARGE
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

    def _replace(self, pieces: Prepared, convert: Callable[[bytes], bytes]) -> None:
        """Write the text of pieces converted."""
        start = len(self.parts)
        self.execute(pieces)
        self.parts[start:] = [convert(whole(self.parts[start:]))]


def dollar_quoted(text: bytes) -> bytes:
    """Dollar-quoted text, which must not end with a dollar sign."""
    tags = itertools.chain((b"$$",), (b"$_%d$" % number for number in itertools.count(1)))
    tag = next(tag for tag in tags if tag not in text)
    return tag + text + tag


def _skipped(skip: Skip, cell: SentCell, other: SentCell, *, is_new: bool, alone: bool) -> bool:
    """Whether `skip` applies to a cell; `alone`: there is no cell in the other tuple."""
    now = cell if is_new else other
    if now is UNCHANGED:
        return is_new or not alone
    return skip is Skip.SAME and not alone and cell == other


def _changed(piece: Changed, old: TupleData, new: TupleData) -> list[int]:
    differ = [index for index in piece.compared if index < len(new) and (index >= len(old) or old[index] != new[index])]
    return sorted([index for index in (*differ, *piece.unknown) if index < len(new) and new[index] is not UNCHANGED])


def _differ(old: TupleData, new: TupleData, indexes: tuple[int, ...]) -> bool:
    known = [index for index in indexes if index < min(len(old), len(new)) and new[index] is not UNCHANGED]
    return any(old[index] != new[index] for index in known)


def whole(parts: Sequence[Part]) -> bytes:
    """The parts as one text."""
    return b"".join([part if isinstance(part, bytes) else b"".join(part) for part in parts])
