"""Tsvector and tsquery, whose binary forms contain the lexemes as text.

Sources: src/backend/utils/adt/tsvector.c, tsquery.c.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from pgtail.values.codec import BinaryText, Context, Loader, ValueKind
from pgtail.values.nested import joined
from pgtail.values.render import strings

QI_VAL: Final = 1
QI_OPR: Final = 2
OP_NOT: Final = 1
OP_PHRASE: Final = 4
MAX_ITEMS: Final = 2**20
"""The operands of a tsquery take up at most a megabyte, at least two bytes each (tsquery.c, MAXSTRPOS)."""

_OPERATORS = {OP_NOT: "!", 2: " & ", 3: " | ", OP_PHRASE: " <{}> "}
_PRIORITIES = {OP_NOT: 4, 2: 2, 3: 1, OP_PHRASE: 3}
_POSITION_WEIGHTS = ("", "C", "B", "A")
_QUERY_WEIGHTS = ((8, "A"), (4, "B"), (2, "C"), (1, "D"))

_count = struct.Struct(">i").unpack_from
_short = struct.Struct(">H").unpack_from


def tsvector(context: Context) -> BinaryText:
    """The number of lexemes; for each its text and a NUL, the number of positions, the positions."""
    return lambda cell: joined(_lexemes(cell, context.decode), " ", len(cell))


def _lexemes(cell: bytes, decode: Callable[[bytes], str]) -> Iterator[str]:
    (count,) = _count(cell)
    position = 4
    # The shortest lexeme takes three bytes.
    if not 0 <= count <= len(cell) // 3:
        raise ValueError("number of lexemes")
    for _ in range(count):
        end = cell.index(0, position)
        lexeme = _quoted(decode(cell[position:end]))
        (places,) = _short(cell, end + 1)
        position = end + 3 + 2 * places
        yield lexeme + _places(struct.unpack_from(f">{places}H", cell, end + 3))
    if position != len(cell):
        raise ValueError("bytes after a tsvector")


def _places(places: tuple[int, ...]) -> str:
    if not places:
        return ""
    return ":" + ",".join([f"{place & 0x3FFF}{_POSITION_WEIGHTS[place >> 14]}" for place in places])


def _quoted(lexeme: str) -> str:
    return "'{}'".format(lexeme.replace("\\", "\\\\").replace("'", "''"))


class _Item(Struct):
    """An operand (with its text) or an operator (with its sign) of a tsquery."""

    text: str
    operator: int = 0
    left: int = 0
    """Index of the left operand; the right one follows its operator."""


def tsquery(context: Context) -> BinaryText:
    """The number of items, then the items, an operator before its operands and the right operand first."""
    decode = context.decode

    def text(cell: bytes) -> str:
        (count,) = _count(cell)
        if not 0 <= count <= min(MAX_ITEMS, len(cell) // 2):
            raise ValueError("number of items of a tsquery")
        items: list[_Item] = []
        position = 4
        for _ in range(count):
            item, position = _item(cell, position, decode)
            items.append(item)
        if position != len(cell):
            raise ValueError("bytes after a tsquery")
        return _infix(items) if items else ""

    return text


def _item(cell: bytes, position: int, decode: Callable[[bytes], str]) -> tuple[_Item, int]:
    """The item at `position`, and the position after it."""
    kind, value = cell[position], cell[position + 1]
    if kind == QI_VAL:
        prefix = {0: "", 1: "*"}[cell[position + 2]]
        if value > 15:
            raise ValueError("weights of a tsquery's operand")
        weights = prefix + "".join([letter for bit, letter in _QUERY_WEIGHTS if value & bit])
        end = cell.index(0, position + 3)
        operand = _quoted(decode(cell[position + 3 : end]))
        return _Item(f"{operand}:{weights}" if weights else operand), end + 1
    if kind != QI_OPR:
        raise ValueError("neither operand nor operator")
    sign = _OPERATORS[value]
    if value != OP_PHRASE:
        return _Item(sign, value), position + 2
    (distance,) = _short(cell, position + 2)
    return _Item(sign.format("-" if distance == 1 else distance), value), position + 4


def _link(items: list[_Item]) -> None:
    """Find each left operand. Raises ValueError if the items are not exactly one query."""
    operands: list[int] = []
    for index in range(len(items) - 1, -1, -1):
        item = items[index]
        if item.operator:
            if not operands:
                raise ValueError("an operator without an operand")
            operands.pop()
        if item.operator not in (0, OP_NOT):
            item.left = operands.pop()
        operands.append(index)
    if len(operands) != 1:
        raise ValueError("operands without an operator")


def _infix(items: list[_Item]) -> str:
    """The query in infix notation, with the same parentheses as infix() in tsquery.c."""
    _link(items)
    out: list[str] = []
    # The items still to be written, last first: text, or (index, outer priority, right operand of a phrase).
    waiting: list[str | tuple[int, int, bool]] = [(0, -1, False)]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            out.append(part)
            continue
        index, around, right_of_phrase = part
        item = items[index]
        if not item.operator:
            out.append(item.text)
            continue
        priority = _PRIORITIES[item.operator]
        is_phrase = item.operator == OP_PHRASE
        if priority < around or (is_phrase and right_of_phrase):
            out.append("( ")
            waiting.append(" )")
        waiting.append((index + 1, priority, is_phrase))
        waiting.append(item.text)
        if item.operator != OP_NOT:
            waiting.append((item.left, priority, False))
    return "".join(out)


TYPES: Final = {
    "tsvector": Loader(ValueKind.TEXT, strings, tsvector),
    "tsquery": Loader(ValueKind.TEXT, strings, tsquery),
}
