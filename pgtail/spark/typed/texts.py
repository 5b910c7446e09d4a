"""Typed Arrow columns -> PostgreSQL's text of their values, and from one type to another; pure functions, no pyspark.

The inverse of casts.cast(): the text of a value is what PostgreSQL sent, so that a column whose type has to become
another one is what it would be had it had that type from the beginning.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pgtail.pgoutput.scalars import UNIX_EPOCH_OFFSET
from pgtail.spark.typed.arrow_types import STRING
from pgtail.spark.typed.casts import cast
from pgtail.values import datetime, floats
from pgtail.values.codec import hex_text

_DAYS: Final = UNIX_EPOCH_OFFSET // 86_400_000_000
"""From 1970-01-01 to PostgreSQL's first day, 2000-01-01."""
_QUOTED: Final = re.compile(r'["\\]')


def texts_of(values: pa.Array, delimiter: str = ",") -> pa.Array:
    """PostgreSQL's text of each value; the `delimiter` is that of an array's elements."""
    kind = values.type
    if kind == STRING:
        return values
    if pa.types.is_boolean(kind):
        return pc.if_else(values, "t", "f")
    if pa.types.is_integer(kind):
        return pc.cast(values, STRING)
    if pa.types.is_list(kind):
        return _arrays(values, delimiter)
    if pa.types.is_decimal(kind):
        return pa.array([None if one is None else f"{one:f}" for one in values.to_pylist()], STRING)
    text, numbers = _text_of(kind), values
    if pa.types.is_temporal(kind):
        numbers = values.cast(pa.int32() if pa.types.is_date(kind) else pa.int64())
    return pa.array([None if one is None else text(one) for one in numbers.to_pylist()], STRING)


def _text_of(kind: pa.DataType) -> Callable[[Any], str]:
    if pa.types.is_binary(kind):
        return hex_text
    if kind == pa.float32():
        return lambda value: floats.float4_text(struct.pack(">f", value))
    if kind == pa.float64():
        return floats.float8
    if pa.types.is_date(kind):
        return lambda value: datetime.date_text(struct.pack(">i", value - _DAYS))
    text = datetime.timestamp_text if kind.tz is None else datetime.timestamptz_text
    return lambda value: text(struct.pack(">q", value - UNIX_EPOCH_OFFSET))


def _arrays(values: pa.ListArray, delimiter: str) -> pa.Array:
    special = re.compile(rf'["\\{{}} \t\n\r\v\f{delimiter}]|\A(?:(?i:null))?\Z').search

    def element(text: str | None) -> str:
        if text is None:
            return "NULL"
        return '"' + _QUOTED.sub(r"\\\g<0>", text) + '"' if special(text) else text

    elements = texts_of(values.flatten(), delimiter).to_pylist()
    found: list[str | None] = []
    start = 0
    for count in pc.list_value_length(values).to_pylist():
        if count is None:
            found.append(None)
            continue
        found.append("{" + delimiter.join(map(element, elements[start : start + count])) + "}")
        start += count
    return pa.array(found, STRING)


def retyped(values: pa.Array, kind: pa.DataType, delimiters: tuple[str, str] = (",", ",")) -> pa.Array:
    """Values as another type, as if their text had been of that type; NULL for a value that it does not have.

    `delimiters` separate the elements of an array in the text before and now.
    """
    if values.type == kind:
        return values
    if all(pa.types.is_integer(one) or pa.types.is_decimal(one) for one in (values.type, kind)):
        return pc.cast(values, kind)
    if pa.types.is_list(kind) and pa.types.is_list(values.type) and values.type.value_type != STRING:
        elements = retyped(values.values, kind.value_type)
        return pa.ListArray.from_arrays(values.offsets, elements, mask=values.is_null()).cast(kind)
    return cast(texts_of(values, delimiters[0]), kind, delimiters[1])
