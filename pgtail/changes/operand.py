"""Finds the value of an operand of --where, for one kind of change to one version of a table; json's -> and ->>."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from msgspec import Struct

from pgtail.changes.comparison import NUMBER, TEXT, TIMESTAMPTZ, Comparison, comparison_of
from pgtail.changes.condition import CONTEXT, Operand
from pgtail.changes.events import OLD_ROWS, Change, RowChange
from pgtail.changes.relations import Column, Relation
from pgtail.native.plan import INSERT_OPS, NotTested
from pgtail.pgoutput.cells import UNCHANGED, Cell
from pgtail.values import Undecoded, ValueKind
from pgtail.values.codec import DAMAGED
from pgtail.values.datetime import timestamptz_text

_BLANKS: Final = " \t\n\r"
_skip_blanks = re.compile(r"[ \t\n\r]*").match


def _reject(text: str) -> str:
    raise ValueError(f"{text} is no JSON")


# Numbers and strings become their texts.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_reject)
_TEXTS: Final = {True: "true", False: "false"}


def member(document: str, path: Sequence[str | int]) -> str | None:
    """The text that `->` for every key or index of the path and ->> for the last give; None for NULL.

    Raises Undecoded if the document is not JSON.
    """
    try:
        found = _DECODER.decode(document)
        for step in path:
            found = _child(found, step)
        return _as_written(document, path) if isinstance(found, dict | list) else _TEXTS.get(found, found)
    except (ValueError, RecursionError):
        raise Undecoded(document) from None


def _child(value: Any, step: str | int) -> Any:
    """The value of a key of an object, or of an index of an array; None if there is none."""
    if isinstance(step, str):
        return value.get(step) if isinstance(value, dict) else None
    return value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None


def _as_written(document: str, path: Sequence[str | int]) -> str:
    """An object or an array in a valid document, with its blanks; of equal keys the last."""
    found = document.strip(_BLANKS)
    for step in path:
        inside = [*children(found)]
        found = dict(inside)[step] if isinstance(step, str) else inside[step][1]
    return found


def children(value: str) -> Iterator[tuple[str, str]]:
    """The keys (empty in an array) and values of a valid object or array."""
    place = _after(value, 1)
    while value[place] not in "}]":
        key = ""
        if value[0] == "{":
            key, place = _DECODER.raw_decode(value, place)
            place = _after(value, _after(value, place) + 1)
        _, end = _DECODER.raw_decode(value, place)
        yield key, value[place:end]
        place = _after(value, end)
        if value[place] == ",":
            place = _after(value, place + 1)


def _after(value: str, place: int) -> int:
    found = _skip_blanks(value, place)
    assert found is not None
    return found.end()


class OperandSource(Struct, frozen=True):
    """A cell of a row, a property of the transaction, or a constant text (None: NULL).

    `key`: the column belongs to the replica identity. `same_row`: an update without an old row did not change it.
    """

    name: str
    place: Literal["new", "old", "xid", "commit_ts", "context", "constant"]
    index: int = -1
    column: Column | None = None
    key: bool = False
    same_row: bool = False
    path: tuple[str | int, ...] = ()
    constant: str | None = None

    @property
    def how(self) -> Comparison:
        """How its values compare."""
        if self.place == "xid":
            return NUMBER
        if self.place == "commit_ts":
            return TIMESTAMPTZ
        return TEXT if self.column is None or self.path else comparison_of(self.column)

    def cell(self, change: Change) -> Cell:
        """Its cell, or its text as one. Raises NotTested if it was not sent."""
        if self.place == "constant":
            return None if self.constant is None else self.constant.encode()
        if self.index < 0:
            transaction = change.transaction
            if self.place == "context":
                return None if transaction is None or transaction.context is None else transaction.context.content
            return None if transaction is None else self.of_transaction(transaction.xid, transaction.commit_ts)
        assert isinstance(change, RowChange)
        cells, missing = (change.new, None) if self.place == "new" else (change.old, "K")
        if cells is None and self.same_row:
            cells = change.new
        cell = cells[self.index] if cells is not None and self.index < len(cells) else UNCHANGED
        if cell is UNCHANGED and self.place == "new" and change.old_kind in OLD_ROWS and change.old is not None:
            cell = change.old[self.index] if self.index < len(change.old) else UNCHANGED
        if cell is UNCHANGED or (cell is None and change.old_kind == missing and not self.key):
            raise NotTested
        return cell

    def of_transaction(self, xid: int | None, commit_ts: int | None) -> bytes | None:
        """The text of the property of a transaction. Raises NotTested if it has none."""
        if self.place == "xid":
            return None if xid is None else b"%d" % xid
        try:
            return None if commit_ts is None else timestamptz_text(struct.pack(">q", commit_ts)).encode()
        except DAMAGED:
            raise NotTested from None

    def text(self, cell: Cell) -> str | None:
        """The value's text; None for NULL. Raises NotTested if it cannot be decoded."""
        if cell is None:
            return None
        assert cell is not UNCHANGED
        try:
            text = cell.decode() if self.column is None else self.column.codec.text(cell)
            return member(text, self.path) if self.path else text
        except (Undecoded, UnicodeDecodeError):
            raise NotTested from None


NULL: Final = OperandSource("", "constant")


def source_of(operand: Operand, relation: Relation | None, op: str) -> OperandSource | None:
    """Where the operand's value is in changes `op` of a table; None if there is no such column."""
    if operand.is_property:
        return _property(operand, relation, op)
    names = [column.name for column in relation.columns] if relation is not None else []
    if relation is None or op == "truncate" or operand.name not in names:
        return None
    place: Literal["new", "old"] = operand.row or ("old" if op == "delete" else "new")
    if (place == "old" and op in INSERT_OPS) or (place == "new" and op == "delete"):
        return NULL
    index = names.index(operand.name)
    column = relation.columns[index]
    same = place == "old" and op == "update" and column.key and relation.identity != "full"
    return OperandSource(f"{relation.qualified}.{operand.name}", place, index, column, column.key, same, operand.path)


def _property(operand: Operand, relation: Relation | None, op: str) -> OperandSource:
    name = operand.name
    if name == CONTEXT:
        return OperandSource(name, "context", path=operand.path)
    if name == "xid":
        return OperandSource(name, "xid")
    if name == "commit_ts":
        return OperandSource(name, "commit_ts")
    if name == "op":
        return OperandSource(name, "constant", constant=op)
    if relation is None or not relation.seen:
        return OperandSource(name, "constant")
    return OperandSource(name, "constant", constant=relation.schema if name == "schema" else relation.name)


def is_json(column: Column) -> bool:
    """Whether -> and ->> apply to a column."""
    return column.codec.kind is ValueKind.JSON
