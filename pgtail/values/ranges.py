"""Ranges and multiranges (src/backend/utils/adt/rangetypes.c, multirangetypes.c) of a known type.

The binary form does not contain the subtype, so user-defined ranges cannot be decoded.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

from pgtail.values.codec import BinaryText, Context, Loader, ValueKind
from pgtail.values.nested import joined, value_at
from pgtail.values.render import strings

RANGE_EMPTY: Final = 0x01
RANGE_LB_INC: Final = 0x02
RANGE_UB_INC: Final = 0x04
RANGE_LB_INF: Final = 0x08
RANGE_UB_INF: Final = 0x10

_count = struct.Struct(">i").unpack_from
_needs_quotes = re.compile(r'["\\()\[\], \t\n\r\v\f]').search


def range_of(subtype: int) -> Loader:
    """The range type over the type with this OID."""

    def binary(context: Context) -> BinaryText:
        bound = context.binary(subtype)
        return lambda cell: _range_text(cell, bound)

    return Loader(ValueKind.TEXT, strings, binary)


def multirange_of(subtype: int) -> Loader:
    """The multirange type over the type with this OID."""

    def binary(context: Context) -> BinaryText:
        bound = context.binary(subtype)
        return lambda cell: "{" + joined(_ranges(cell, bound), ",", len(cell)) + "}"

    return Loader(ValueKind.TEXT, strings, binary)


def _range_text(cell: bytes, bound: BinaryText) -> str:
    """Flags, then the lower and the upper bound, if present, each after its length."""
    flags = cell[0]
    if flags == RANGE_EMPTY and len(cell) == 1:
        return "empty"
    lower, position = _bound(cell, 1, bound, inclusive=flags & RANGE_LB_INC, infinite=flags & RANGE_LB_INF)
    upper, position = _bound(cell, position, bound, inclusive=flags & RANGE_UB_INC, infinite=flags & RANGE_UB_INF)
    known = RANGE_LB_INC | RANGE_UB_INC | RANGE_LB_INF | RANGE_UB_INF
    if flags & ~known or position != len(cell):
        raise ValueError("not a range")
    return f"{'[' if flags & RANGE_LB_INC else '('}{lower},{upper}{']' if flags & RANGE_UB_INC else ')'}"


def _bound(cell: bytes, position: int, bound: BinaryText, *, inclusive: int, infinite: int) -> tuple[str, int]:
    if infinite:
        if inclusive:
            raise ValueError("a bound that is infinite and inclusive")
        return "", position
    value, position = value_at(cell, position)
    if value is None:
        raise ValueError("a bound that is NULL")
    text = bound(value)
    if not text or _needs_quotes(text):
        text = '"{}"'.format(text.replace("\\", "\\\\").replace('"', '""'))
    return text, position


def _ranges(cell: bytes, bound: BinaryText) -> Iterator[str]:
    """The number of ranges, then each range after its length."""
    (count,) = _count(cell)
    position = 4
    for _ in range(count):
        value, position = value_at(cell, position)
        if value is None:
            raise ValueError("a range that is NULL")
        yield _range_text(value, bound)
    if count < 0 or position != len(cell):
        raise ValueError("not a multirange")
