"""Executes row plans (native/plan.py) for decoded rows, and for events without rows.

A plan is compiled once into a list of texts, and functions that return those which depend on the row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias, cast

from pgtail.native.plan import (
    LARGE,
    Cell,
    Cells,
    Changed,
    Count,
    Dollars,
    Empty,
    Encoding,
    Names,
    NoPlan,
    Padded,
    Piece,
    Plan,
    Side,
    Skip,
    Text,
    Undecodable,
    UndecodedValue,
    Value,
    grouped,
)
from pgtail.outputs.fields import PlanRow, function_of_value, once
from pgtail.pgoutput.cells import UNCHANGED, Binary
from pgtail.pgoutput.cells import Cell as SentCell
from pgtail.values import Undecoded

Part: TypeAlias = bytes | Iterator[bytes]
"""A part of a row's text: bytes, or a long text in pieces."""
Step: TypeAlias = Callable[[PlanRow], Part]

_OTHER: Final[dict[Side, Side]] = {"old": "new", "new": "old"}
_KEPT: Final = 256
"""Compiled plans of events without rows, and of single pieces."""


class Program:
    """A compiled plan; `counts` are the keys of its Counts."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.counts = [piece.key for piece in plan if isinstance(piece, Count)]
        self._texts: list[Part] = []
        self._steps: list[tuple[int, Step]] = []
        """By the places of their texts, in the order of execution."""
        last: list[tuple[int, Step]] = []
        for piece in grouped(plan):
            if not isinstance(piece, bytes):
                later = isinstance(piece, Names | Undecodable)  # they depend on all others
                (last if later else self._steps).append((len(self._texts), _compiled(piece)))
            self._texts.append(piece if isinstance(piece, bytes) else b"")
        self._steps += last

    def parts(self, row: PlanRow) -> list[Part]:
        """The text of the plan for a row. Raises NoPlan."""
        parts = self._texts.copy()
        for place, step in self._steps:
            parts[place] = step(row)
        return parts


program = lru_cache(_KEPT)(Program)


@lru_cache(_KEPT)
def parts_of(piece: Piece) -> Callable[[PlanRow], list[Part]]:
    """What returns the parts of a piece's text; those of a cell are its texts and values."""
    return _cell_parts(piece) if isinstance(piece, Cells) else Program((piece,)).parts


def joined_parts(parts: Sequence[Part]) -> bytes:
    """The parts as one text."""
    return b"".join([part if isinstance(part, bytes) else b"".join(part) for part in parts])


def _in_pieces(parts: Sequence[Part]) -> Iterator[bytes]:
    for part in parts:
        yield from (part,) if isinstance(part, bytes) else part


@lru_cache(_KEPT)
def _compiled(piece: Piece | Plan) -> Step:
    """What returns the text of a piece or of a group, which plans share."""
    return _COMPILERS[type(piece)](piece)


def _group(pieces: Plan) -> Step:
    """Pieces that are the same for all rows of a transaction, unless a row's field replaces a missing one."""
    steps = [_compiled(piece) for piece in pieces]
    replaces = any(isinstance(piece, Value) and not isinstance(piece.missing, bytes) for piece in pieces)

    def text_of(row: PlanRow) -> bytes:
        return joined_parts([step(row) for step in steps])

    return text_of if replaces else once(text_of)


def _nested(change: Callable[[bytes], bytes], pieces: Plan) -> Step:
    nested = Program(pieces)
    return lambda row: change(joined_parts(nested.parts(row)))


def dollar_quoted(text: bytes) -> bytes:
    """Dollar-quoted text, which must not end with a dollar sign."""
    tags = itertools.chain((b"$$",), (b"$_%d$" % number for number in itertools.count(1)))
    tag = next(tag for tag in tags if tag not in text)
    return tag + text + tag


# -- cells ---------------------------------------------------------------------------------------------------------


def _cells(piece: Cells) -> Step:
    parts_of = _cell_parts(piece)

    def step(row: PlanRow) -> Part:
        parts = parts_of(row)
        return _in_pieces(parts) if row.is_long else b"".join(cast(list[bytes], parts))

    return step


def _cell_parts(piece: Cells) -> Callable[[PlanRow], list[Part]]:
    """What returns the texts and values of the cells of a tuple, and sets `is_long` if they are not to be joined."""
    is_new = piece.side == "new"
    compiled = [(cell.index, cell.before, piece.separator + cell.before, _usual(cell), cell) for cell in piece.cells]
    least = max([cell.index + 1 for cell in piece.cells], default=0)
    special = partial(_special, piece)

    def parts_of(row: PlanRow) -> list[Part]:
        cells, other = (row.new, row.old) if is_new else (row.old, row.new)
        if piece.complete and UNCHANGED in cells:
            raise NoPlan("a value was not sent")
        if len(cells) < least:
            cells = (*cells, *[None] * (least - len(cells)))
        parts: list[Part] = []
        left = LARGE
        for index, before, between, encoding, plan in compiled:
            cell = cells[index]
            if encoding is not None and isinstance(cell, bytes) and (left := left - len(cell)) >= 0:
                value: Part
                try:
                    value = encoding.binary(cell) if cell.__class__ is Binary else encoding.text(cell)
                except Undecoded as undecoded:
                    value = _undecoded(row, piece.side, plan, encoding, undecoded)
                parts += (between if parts else before, value, plan.after)
                continue
            texts = special(row, plan, cell, other)
            if texts is not None:
                head, rest = texts
                parts += (piece.separator + head if parts else head, *rest)
        if piece.not_empty and not parts:
            raise Empty("no value was sent")
        row.is_long = row.is_long or left < 0
        return parts

    return parts_of


def _usual(cell: Cell) -> Encoding | None:
    """The encoding of a cell of which nothing but the value is written."""
    return None if cell.skip or cell.previous or cell.uncompared is not None else cell.encoding


def _special(
    piece: Cells, row: PlanRow, plan: Cell, cell: SentCell, others: Sequence[SentCell]
) -> tuple[bytes, list[Part]] | None:
    """The text before any cell, and its values with the texts after them; None leaves the column out."""
    alone = plan.index >= len(others)
    other = UNCHANGED if alone else others[plan.index]
    if plan.skip and _skipped(plan.skip, cell, other, is_new=piece.side == "new", alone=alone):
        return None if plan.skipped is None else (plan.before, [plan.skipped, plan.after])
    value: Part | None
    if cell is UNCHANGED:
        fills = piece.fill and not alone and other is not None
        row.not_sent += ((piece.side, plan.index, "filled" if fills else "unchanged"),)
        cell = other if fills else cell
    if cell is None or cell is UNCHANGED:
        value = _replacement(row, piece, plan, cell)
    else:
        value = _value(row, piece.side, plan, cell)
    if value is None:
        return None
    previous: list[Part] = []
    if plan.previous is not None and other is not UNCHANGED and cell is not UNCHANGED and other != cell:
        before: Part
        if plan.previous.pair is not None and other is not None and cell is not None:
            before, value = plan.previous.pair(other, cell)
        else:
            before = (plan.null or b"") if other is None else _value(row, _OTHER[piece.side], plan, other)
        previous = [plan.previous.before, before, plan.previous.after]
    head = plan.before if plan.uncompared is None or other is not UNCHANGED else plan.uncompared
    return head, [*previous, value, plan.after]


def _skipped(skip: Skip, cell: SentCell, other: SentCell, *, is_new: bool, alone: bool) -> bool:
    """Whether `skip` applies to a cell; `alone`: there is no cell in the other tuple."""
    if skip is Skip.DIFFERENT:
        return cell is not UNCHANGED and (alone or cell != other)
    now = cell if is_new else other
    if now is UNCHANGED:
        return is_new or not alone
    return skip is Skip.SAME and not alone and cell == other


def _replacement(row: PlanRow, piece: Cells, plan: Cell, cell: SentCell) -> bytes | None:
    """The replacement of a NULL or unchanged value; None leaves the column out."""
    if plan.required:
        raise NoPlan("a column of the replica identity was not sent")
    if cell is None:
        if plan.null_absent:
            row.not_sent += ((piece.side, plan.index, "absent"),)
        return plan.null
    if plan.unchanged_undecoded and plan.unchanged is not None:
        row.undecoded += (UndecodedValue(piece.side, plan.index, plan.unchanged_undecoded),)
    return plan.unchanged


def _value(row: PlanRow, side: Side, plan: Cell, cell: bytes) -> Part:
    """A value, in pieces if it is long. One that cannot be decoded is UndecodedValue."""
    encoding = plan.encoding
    if encoding is None:
        return b""
    is_binary = cell.__class__ is Binary
    try:
        if len(cell) > LARGE:
            in_pieces = encoding.long_binary if is_binary else encoding.long_text
            if in_pieces is not None:
                row.is_long = True
                return in_pieces(cell)
        return encoding.binary(cell) if is_binary else encoding.text(cell)
    except Undecoded as undecoded:
        return _undecoded(row, side, plan, encoding, undecoded)


def _undecoded(row: PlanRow, side: Side, plan: Cell, encoding: Encoding, undecoded: Undecoded) -> Part:
    row.undecoded += (UndecodedValue(side, plan.index, undecoded.text),)
    text = encoding.undecoded(undecoded)
    row.is_long = row.is_long or not isinstance(text, bytes)
    return text


# -- what depends on the cells -------------------------------------------------------------------------------------


def _names(piece: Names) -> Step:
    listed = {"unchanged", "filled" if piece.filled else "", "absent" if piece.absent else ""}

    def step(row: PlanRow) -> bytes:
        indexes: list[int] = []
        for side in piece.sides if row.not_sent else ():
            indexes += [index for of, index, why in row.not_sent if of == side and why in listed]
        return piece.render(indexes) if indexes else b""

    return step


def _undecodable(piece: Undecodable) -> Step:
    return lambda row: piece.render(row.undecoded) if row.undecoded else b""


def _changed(piece: Changed) -> Step:
    """The columns that changed, and those that may have."""

    def step(row: PlanRow) -> bytes:
        sent, before = _sent(row.new), _sent(row.old)
        known = [index for index in piece.compared if index in sent and index in before]
        maybe = sorted(sent.intersection(piece.compared).difference(before).union(sent.intersection(piece.unknown)))
        return piece.render([index for index in known if row.old[index] != row.new[index]], maybe)

    return step


def _sent(cells: Sequence[SentCell]) -> set[int]:
    """The indexes of the cells that are not unchanged TOAST."""
    return {index for index, cell in enumerate(cells) if cell is not UNCHANGED}


_COMPILERS: Final[dict[type, Callable[[Any], Step]]] = {
    tuple: _group,
    bytes: lambda piece: lambda row: piece,
    Count: lambda piece: lambda row: b"",
    Value: function_of_value,
    Text: lambda piece: once(lambda row: piece.render(row.transaction)),
    Cells: _cells,
    Names: _names,
    Undecodable: _undecodable,
    Changed: _changed,
    Dollars: lambda piece: _nested(dollar_quoted, piece.pieces),
    Padded: lambda piece: _nested(piece.pad, piece.pieces),
}
