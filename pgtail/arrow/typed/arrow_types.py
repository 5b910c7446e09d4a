"""Finds the Arrow type that holds a PostgreSQL type's values exactly.

Values for which Spark has no type stay PostgreSQL's own text: a string.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa

from pgtail.values.format_type import builtin_oids, numeric_modifier
from pgtail.values.oids import BUILTIN

MOST_DIGITS: Final = 38
"""The most digits that Spark's decimal has."""

STRING: Final = pa.string()
TEXTS: Final = pa.list_(STRING)
RESCUED: Final = pa.map_(STRING, STRING)
"""Column -> PostgreSQL's text of a value that its type cannot represent; NULL for a row without such values."""

_SIMPLE: Final = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    # Unsigned, 32 bits.
    "oid": pa.int64(),
    "xid": pa.int64(),
    "cid": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "bytea": pa.binary(),
}
_DIGITS: Final = {pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_FLOATS: Final = (pa.float32(), pa.float64())


class Declared(NamedTuple):
    """A column's type as a Relation message declares it, with the name that format_type() gives it."""

    oid: int
    typmod: int
    name: str


def arrow_type(declared: Declared) -> pa.DataType:
    """The type of a column. A domain has that of its base type, which is in its name."""
    oid = declared.oid if declared.oid in BUILTIN else builtin_oids().get(declared.name)
    if oid is None:
        return pa.list_(STRING) if declared.name.endswith("[]") else STRING
    element = BUILTIN[oid].element
    if element:
        return pa.list_(_scalar(element, declared.typmod))
    return _scalar(oid, declared.typmod)


def delimiter(declared: Declared) -> str:
    """The separator of an array's elements: `;` for box[], else `,`."""
    builtin = BUILTIN.get(declared.oid)
    return BUILTIN[builtin.element].delimiter if builtin is not None and builtin.element else ","


def widest(types: Iterable[pa.DataType]) -> pa.DataType:
    """The narrowest type that holds the values of all of them exactly; string if no other does.

    A number keeps its digits: float8 holds float4 and int4, for their text comes back from it, but not int8.
    """
    return functools.reduce(_wider, types)


def _scalar(oid: int, typmod: int) -> pa.DataType:
    name = BUILTIN[oid].name
    return _numeric(typmod) if name == "numeric" else _SIMPLE.get(name, STRING)


def _numeric(typmod: int) -> pa.DataType:
    """decimal for numeric(p,s), if Spark's has enough digits."""
    modifier = numeric_modifier(typmod)
    if modifier is None:
        return STRING
    precision, scale = modifier
    # numeric(2,-3) ends with three zeros, numeric(2,5) begins with three after the point.
    return _decimal(precision - scale, scale) if scale > 0 else _decimal(precision - scale, 0)


def _decimal(before_point: int, scale: int) -> pa.DataType:
    """The decimal with these digits before and after the point, or string."""
    precision = max(before_point, 0) + scale
    return pa.decimal128(precision, scale) if precision <= MOST_DIGITS else STRING


def _wider(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if left == right:
        return left
    if pa.types.is_list(left) and pa.types.is_list(right):
        return pa.list_(_wider(left.value_type, right.value_type))
    if left in _FLOATS or right in _FLOATS:
        fits = all(kind in _FLOATS or _DIGITS.get(kind, MOST_DIGITS) <= _DIGITS[pa.int32()] for kind in (left, right))
        return pa.float64() if fits else STRING
    if left in _DIGITS and right in _DIGITS:
        return max(left, right, key=lambda kind: _DIGITS[kind])
    digits = [_digits_and_scale(kind) for kind in (left, right)]
    known = [pair for pair in digits if pair is not None]
    if len(known) < 2:
        return STRING
    return _decimal(max(digits for digits, _ in known), max(scale for _, scale in known))


def _digits_and_scale(kind: pa.DataType) -> tuple[int, int] | None:
    """The digits before and after the point of an exact number."""
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    return None
