"""Executes row plans (native/plan.py) for decoded rows, and for events without rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from pgtail.native.plan import (
    LARGE,
    Cell,
    Cells,
    Changed,
    Count,
    Dollars,
    Empty,
    Names,
    NoPlan,
    Padded,
    Plan,
    Side,
    Skip,
    Text,
    Undecodable,
    UndecodedValue,
    Value,
)
from pgtail.outputs.fields import PlanRow, text_of_transaction, text_of_value
from pgtail.pgoutput.cells import UNCHANGED, Binary
from pgtail.pgoutput.cells import Cell as SentCell
from pgtail.values import Undecoded

Part: TypeAlias = bytes | Iterator[bytes]
"""A part of a row's text: bytes, or a long value in pieces."""

_OTHER: Final[dict[Side, Side]] = {"old": "new", "new": "old"}


class Execution:
    """Executes plans for one row. Then `counts` has the keys of each Count."""

    def __init__(self, row: PlanRow) -> None:
        self.counts: list[str] = []
        self._row = row
        self._undecoded: list[UndecodedValue] = []
        self._not_sent: dict[Side, tuple[list[int], list[int], list[int]]] = {}
        """By tuple: the indexes of its unchanged cells, of those of them that were filled, and of NULLs outside the
        replica identity."""

    def parts(self, plan: Plan) -> list[Part]:
        """The text of a plan. Raises NoPlan."""
        parts: list[Part] = []
        later: list[tuple[int, Names | Undecodable]] = []
        self._add(plan, parts, later)
        for place, piece in later:
            if isinstance(piece, Names):
                parts[place] = self._names(piece)
            elif self._undecoded:
                parts[place] = piece.render(self._undecoded)
        return parts

    def _add(self, plan: Plan, parts: list[Part], later: list[tuple[int, Names | Undecodable]]) -> None:
        """Add the parts of a plan; the pieces that depend on all others are added to `later`, by their place."""
        for piece in plan:
            if isinstance(piece, bytes):
                parts.append(piece)
            elif isinstance(piece, Value):
                parts.append(text_of_value(piece, self._row))
            elif isinstance(piece, Cells):
                self._cells(piece, parts)
            elif isinstance(piece, (Names, Undecodable)):
                later.append((len(parts), piece))
                parts.append(b"")
            elif isinstance(piece, Text):
                parts.append(text_of_transaction(piece, self._row))
            elif isinstance(piece, Changed):
                parts.append(piece.render(*_changed(piece, self._row.old, self._row.new)))
            elif isinstance(piece, (Dollars, Padded)):
                change = dollar_quoted if isinstance(piece, Dollars) else piece.pad
                parts.append(change(joined_parts(self.parts(piece.pieces))))
            else:
                assert isinstance(piece, Count)
                self.counts.append(piece.key)

    def _cells(self, piece: Cells, parts: list[Part]) -> None:
        is_new = piece.side == "new"
        row, other = (self._row.new, self._row.old) if is_new else (self._row.old, self._row.new)
        if piece.complete and UNCHANGED in row:
            raise NoPlan("a value was not sent")
        unchanged, filled, _ = self._not_sent[piece.side] = ([], [], [])
        separator, empty = b"", True
        width, other_width = len(row), len(other)
        for plan in piece.cells:
            index = plan.index
            cell = row[index] if index < width else None
            alone = index >= other_width
            before = UNCHANGED if alone else other[index]
            if plan.skip and _skipped(plan.skip, cell, before, is_new=is_new, alone=alone):
                if plan.skipped is not None:
                    parts += (separator, plan.before, plan.skipped, plan.after)
                    separator, empty = piece.separator, False
                continue
            if cell is UNCHANGED:
                unchanged.append(index)
                if piece.fill and not alone and before is not None:
                    cell = before
                    filled.append(index)
            if cell is None or cell is UNCHANGED:
                part = self._replacement(piece.side, plan, cell)
            else:
                part = self._value(piece.side, plan, cell)
            if part is None:
                continue
            parts += (separator, plan.before if plan.uncompared is None or before is not UNCHANGED else plan.uncompared)
            if plan.previous is not None and before is not UNCHANGED and cell is not UNCHANGED and before != cell:
                value: Part
                if plan.previous.pair is not None and before is not None and cell is not None:
                    value, part = plan.previous.pair(before, cell)
                else:
                    value = (plan.null or b"") if before is None else self._value(_OTHER[piece.side], plan, before)
                parts += (plan.previous.before, value, plan.previous.after)
            parts += (part, plan.after)
            separator, empty = piece.separator, False
        if piece.not_empty and empty:
            raise Empty("no value was sent")

    def _replacement(self, side: Side, plan: Cell, cell: SentCell) -> Part | None:
        """The replacement of a NULL or unchanged value; None leaves the column out."""
        if plan.required:
            raise NoPlan("a column of the replica identity was not sent")
        if cell is None:
            if plan.null_absent:
                self._not_sent[side][2].append(plan.index)
            return plan.null
        if plan.unchanged_undecoded and plan.unchanged is not None:
            self._undecoded.append(UndecodedValue(side, plan.index, plan.unchanged_undecoded))
        return plan.unchanged

    def _value(self, side: Side, plan: Cell, cell: bytes) -> Part:
        """A value, in pieces if it is long. One that cannot be decoded is UndecodedValue."""
        encoding = plan.encoding
        if encoding is None:
            return b""
        try:
            is_binary = cell.__class__ is Binary
            if len(cell) > LARGE:
                in_pieces = encoding.long_binary if is_binary else encoding.long_text
                if in_pieces is not None:
                    return in_pieces(cell)
            return encoding.binary(cell) if is_binary else encoding.text(cell)
        except Undecoded as undecoded:
            self._undecoded.append(UndecodedValue(side, plan.index, undecoded.text))
            return encoding.undecoded(undecoded)

    def _names(self, piece: Names) -> bytes:
        indexes: list[int] = []
        for side in piece.sides:
            unchanged, filled, absent = self._not_sent.get(side, ((), (), ()))
            listed = unchanged if piece.filled else [index for index in unchanged if index not in filled]
            indexes += sorted([*listed, *absent]) if piece.absent else listed
        return piece.render(indexes) if indexes else b""


def dollar_quoted(text: bytes) -> bytes:
    """Dollar-quoted text, which must not end with a dollar sign."""
    tags = itertools.chain((b"$$",), (b"$_%d$" % number for number in itertools.count(1)))
    tag = next(tag for tag in tags if tag not in text)
    return tag + text + tag


def joined_parts(parts: Sequence[Part]) -> bytes:
    """The parts as one text."""
    return b"".join([part if isinstance(part, bytes) else b"".join(part) for part in parts])


def _skipped(skip: Skip, cell: SentCell, other: SentCell, *, is_new: bool, alone: bool) -> bool:
    """Whether `skip` applies to a cell; `alone`: there is no cell in the other tuple."""
    if skip is Skip.DIFFERENT:
        return cell is not UNCHANGED and (alone or cell != other)
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
