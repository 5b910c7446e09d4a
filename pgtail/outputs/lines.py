"""How a plan writes rows: a Line for all rows of which the same cells are values, NULL or unchanged.

The lines of a plan are made when they are first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import eq
from typing import Any, Final

from pgtail.native.plan import (
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
    Ordinal,
    Plan,
    Previous,
    Side,
    Skip,
    Text,
    Undecodable,
    UndecodedValue,
    Value,
    joined,
)
from pgtail.outputs.executor import CELLS, Line, Row, Slot, dollar_quoted, reader
from pgtail.pgoutput.cells import UNCHANGED, Binary
from pgtail.pgoutput.cells import Cell as SentCell

_MOST_LINES: Final = 1000
"""Remembered lines of a plan."""
_MANY_LINES: Final = 50
"""Lines of a plan beyond which NULL does not make another line if it has a text: sparse tables have many patterns."""
_NULL_AS_VALUE: Final = {type(None): bytes}


class Lines:
    """A plan for rows whose tuples have these widths (0 for none), and its lines."""

    __slots__ = ("_lines", "_new", "_nulls", "_plan", "compares")

    def __init__(self, plan: Plan, old_width: int) -> None:
        self._plan = plan
        self._new = CELLS + old_width
        self.compares = _compares(plan)
        """Whether the lines depend on which cells are equal in both tuples."""
        self._nulls = False
        """Whether NULLs do not make another line."""
        self._lines: dict[tuple[object, ...], Line | NoPlan] = {}

    def line(self, row: Row) -> Line:
        """How to write this row. Raises NoPlan."""
        kinds: tuple[object, ...] = tuple(map(type, row))
        if self.compares:
            kinds += tuple(map(eq, row[CELLS : self._new], row[self._new :]))
        if self._nulls:
            kinds = (*kinds[:CELLS], *[_NULL_AS_VALUE.get(kind, kind) for kind in kinds[CELLS:]])  # type: ignore[call-overload]
        found = self._lines.get(kinds)
        if found is None:
            if len(self._lines) == _MANY_LINES and not self._nulls and _shows_nulls(self._plan):
                self._nulls = True
                self._lines.clear()
                return self.line(row)
            found = self._make(row)
            if len(self._lines) >= _MOST_LINES:
                self._lines.clear()
            self._lines[kinds] = found
        if isinstance(found, NoPlan):
            raise found.with_traceback(None)
        return found

    def _make(self, row: Row) -> Line | NoPlan:
        try:
            return _Maker(row, self._new, nulls=self._nulls).line(self._plan)
        except NoPlan as reason:
            return reason


def _compares(plan: Plan) -> bool:
    """Whether a plan depends on which cells are equal in both tuples."""
    return any(
        isinstance(piece, IfChanged | Changed)
        or (isinstance(piece, Dollars | Fitted) and _compares(piece.pieces))
        or (isinstance(piece, Cells) and any(cell.skip or cell.previous for cell in piece.cells))
        for piece in plan
    )


def _shows_nulls(plan: Plan) -> bool:
    """Whether every NULL is written as a text in the place of the value."""
    return all(
        isinstance(piece, bytes | Value | Text | Names | Undecodable | Ordinal)
        or (
            isinstance(piece, Cells)
            and not (piece.fill or piece.not_empty)
            and all(
                cell.encoding is not None
                and cell.null is not None
                and not (cell.null_absent or cell.required or cell.skip or cell.previous)
                for cell in piece.cells
            )
        )
        for piece in plan
    )


class _Maker:
    """Makes the line of one plan for rows that are like one row."""

    def __init__(self, row: Row, new: int, *, nulls: bool) -> None:
        """`new` is where the new tuple begins; `nulls`: NULLs are slots, as values are."""
        self._nulls = nulls
        self._row = row
        self._old, self._new = row[CELLS:new], row[new:]
        self._not_sent: dict[Side, tuple[list[int], list[int], list[int]]] = {}
        """By tuple: the indexes of its unchanged cells, of those of them that were filled, and of NULLs outside the
        replica identity."""
        self._counts: list[str] = []
        self._ordinals: list[str] = []

    def line(self, plan: Plan) -> Line:
        """The line. Raises NoPlan."""
        return Line(self._pieces(plan), self._counts, self._ordinals)

    def _pieces(self, plan: Plan) -> tuple[bytes | Slot | UndecodedValue | Undecodable, ...]:
        flat = [*self._flat(plan)]
        return joined([self._names(piece) if isinstance(piece, Names) else piece for piece in flat])

    def _flat(self, plan: Plan) -> Iterator[Any]:
        """The pieces, with slots and texts in place of those that depend on the cells. Names are left for later."""
        for piece in plan:
            if isinstance(piece, Cells):
                yield from self._cells(piece)
            elif isinstance(piece, IfChanged):
                differs = _differ(self._old, self._new, piece.indexes)
                yield from self._flat(piece.then if differs else piece.otherwise)
            elif isinstance(piece, Dollars):
                yield self._nested(piece.pieces, dollar_quoted)
            elif isinstance(piece, Fitted):
                yield self._nested(piece.pieces, piece.fit)
            elif isinstance(piece, Changed):
                yield piece.render(*_changed(piece, self._old, self._new))
            elif isinstance(piece, Count):
                self._counts.append(piece.key)
            elif isinstance(piece, Ordinal):
                yield Slot(len(self._row) + len(self._ordinals), b"%d".__mod__)
                self._ordinals.append(piece.key)
            elif isinstance(piece, Value | Text):
                yield Slot(0, reader(piece))
            else:
                yield piece

    def _cells(self, piece: Cells) -> Iterator[bytes | Slot | UndecodedValue]:
        row, other = (self._new, self._old) if piece.side == "new" else (self._old, self._new)
        if piece.complete and UNCHANGED in row:
            raise NoPlan("a value was not sent")
        unchanged, filled, _ = self._not_sent[piece.side] = ([], [], [])
        separator, empty = b"", True
        for plan in piece.cells:
            index, side = plan.index, piece.side
            cell = row[index] if index < len(row) else None
            before = other[index] if index < len(other) else UNCHANGED
            if plan.skip and _skipped(plan.skip, cell, before, is_new=side == "new", alone=index >= len(other)):
                if plan.skipped is not None:
                    yield separator + plan.before + plan.skipped + plan.after
                    separator, empty = piece.separator, False
                continue
            if cell is UNCHANGED:
                unchanged.append(index)
                if piece.fill and index < len(other) and before is not None:
                    cell, side = before, "old"
                    filled.append(index)
            missing = cell is UNCHANGED or (cell is None and not (self._nulls and index < len(row)))
            text = self._missing(piece.side, plan, cell) if missing else b""
            if text is None:
                continue
            if cell is UNCHANGED and plan.unchanged_undecoded:
                yield UndecodedValue(piece.side, index, plan.unchanged_undecoded)
            yield separator + plan.before
            if plan.previous is not None and before is not UNCHANGED and cell is not UNCHANGED and before != cell:
                yield from self._previous(piece.side, plan, plan.previous, before)
            yield text if missing or plan.encoding is None else self._value(side, piece.side, plan, plan.encoding, cell)
            yield plan.after
            separator, empty = piece.separator, False
        if piece.not_empty and empty:
            raise Empty("no value was sent")

    def _missing(self, side: Side, plan: Cell, cell: SentCell) -> bytes | None:
        """What replaces a NULL or unchanged value; None leaves the column out."""
        if plan.required:
            raise NoPlan("a column of the replica identity was not sent")
        if cell is not None:
            return plan.unchanged
        if plan.null_absent:
            self._not_sent[side][2].append(plan.index)
        return plan.null

    def _previous(self, side: Side, plan: Cell, previous: Previous, cell: SentCell) -> Iterator[bytes | Slot]:
        """The value in the other tuple."""
        yield previous.before
        if cell is None or plan.encoding is None:
            yield plan.null or b""
        else:
            other: Side = "old" if side == "new" else "new"
            yield self._value(other, other, plan, plan.encoding, cell)
        yield previous.after

    def _value(self, source: Side, side: Side, plan: Cell, encoding: Encoding, cell: SentCell) -> Slot:
        """The slot of a value that is in the tuple `source` and shown in `side`."""
        place = CELLS + plan.index + (len(self._old) if source == "new" else 0)
        convert = encoding.binary if cell.__class__ is Binary else encoding.text
        if self._nulls and plan.null is not None:
            convert = _or_null(convert, plan.null)
        return Slot(place, convert, (side, plan.index, encoding))

    def _names(self, piece: Names) -> bytes:
        found: list[int] = []
        for side in piece.sides:
            unchanged, filled, absent = self._not_sent.get(side, ((), (), ()))
            listed = unchanged if piece.filled else [index for index in unchanged if index not in filled]
            found += sorted([*listed, *absent]) if piece.absent else listed
        return piece.render(found) if found else b""

    def _nested(self, plan: Plan, fit: Callable[[bytes], bytes]) -> Slot:
        nested = Line(self._pieces(plan))
        return Slot(slice(None), lambda row: fit(nested.text(row)), nested=nested, fit=fit)


def _or_null(convert: Callable[[bytes], bytes], null: bytes) -> Callable[[SentCell], bytes]:
    return lambda cell: null if cell is None else convert(cell)  # type: ignore[arg-type]


def _skipped(skip: Skip, cell: SentCell, other: SentCell, *, is_new: bool, alone: bool) -> bool:
    """Whether `skip` applies to a cell; `alone`: there is no cell in the other tuple."""
    now = cell if is_new else other
    if now is UNCHANGED:
        return is_new or not alone
    return skip is Skip.SAME and not alone and cell == other


def _changed(piece: Changed, old: Sequence[SentCell], new: Sequence[SentCell]) -> tuple[list[int], list[int]]:
    """The columns that changed, and those that may have."""
    sent, before = _sent(new), _sent(old)
    known = [index for index in piece.compared if index in sent and index in before]
    maybe = sorted(sent.intersection(piece.compared).difference(before).union(sent.intersection(piece.unknown)))
    return [index for index in known if old[index] != new[index]], maybe


def _sent(cells: Sequence[SentCell]) -> set[int]:
    """The indexes of the cells that are not unchanged TOAST."""
    return {index for index, cell in enumerate(cells) if cell is not UNCHANGED}


def _differ(old: Sequence[SentCell], new: Sequence[SentCell], indexes: tuple[int, ...]) -> bool:
    known = [index for index in indexes if index < min(len(old), len(new)) and new[index] is not UNCHANGED]
    return any(old[index] != new[index] for index in known)
