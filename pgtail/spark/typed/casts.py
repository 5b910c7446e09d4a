"""PostgreSQL's text -> typed Arrow columns, without loss; pure functions, no pyspark.

What a type has no value for (NaN in a decimal, infinity in a date, the years BC, an array of two dimensions) becomes
NULL, and its text is in the map `_rescued`. Nothing is rounded, cut or guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgtail._orjson import orjson
from pgtail.spark.typed.arrays import flags, maps_of, without
from pgtail.spark.typed.arrow_types import STRING
from pgtail.values import Types, Undecoded

_BACKSLASH_X: Final = "\\x"
# Arrow reads more than PostgreSQL writes: 0x10 is an integer to it, inf and +1 are floats, 1e999 is infinite.
_INTEGER: Final = "^-?[0-9]+$"
_FLOAT: Final = r"^(-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?|NaN|-?Infinity)$"
_DECIMAL: Final = r"^-?[0-9]+(\.[0-9]+)?$"

_TEXT_ARRAY: Final = 1009
_BOX_ARRAY: Final = 1020
_LISTS: Final = {",": Types().codec(_TEXT_ARRAY), ";": Types().codec(_BOX_ARRAY)}
"""How to read an array's text as strings, by the delimiter."""


class TableColumn(NamedTuple):
    """A column of a typed table; `delimiter` separates the elements in an array's text."""

    name: str
    """PostgreSQL's name."""
    stored: str
    """The name in the table."""
    kind: pa.DataType
    delimiter: str = ","


def typed(
    texts: Sequence[pa.Array], columns: Sequence[TableColumn], undecoded: pa.ListArray | None = None
) -> tuple[list[pa.Array], pa.MapArray]:
    """One typed array for each column's texts, and the map `_rescued` of each row.

    `undecoded` names the columns of each row whose text is not a value's: they are rescued whatever they look like.
    """
    arrays, lost = [], {}
    for column, own in zip(columns, texts, strict=True):
        decoded = own if undecoded is None else without(own, flags(undecoded, column.name))
        array = cast(decoded, column.kind, column.delimiter)
        arrays.append(array)
        if array.null_count > own.null_count:
            lost[column.name] = without(own, pc.is_valid(array))
    rows = len(texts[0]) if texts else 0 if undecoded is None else len(undecoded)
    return arrays, maps_of(lost, rows)


def cast(texts: pa.Array, kind: pa.DataType, delimiter: str = ",") -> pa.Array:
    """An array of PostgreSQL's texts as `kind`; NULL for a text that is no value of it."""
    if kind == STRING:
        return texts
    if pa.types.is_boolean(kind):
        return pc.if_else(pc.is_in(texts, pa.array(["t", "f"])), pc.equal(texts, "t"), pa.scalar(None, kind))
    if pa.types.is_binary(kind):
        return pa.array(map(_bytes, texts.to_pylist()), kind)
    if pa.types.is_list(kind):
        return _lists(texts, kind, delimiter)
    return _numbers_and_times(_plausible(texts, kind), kind)


def _numbers_and_times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """The strict cast of all of them; if it fails, of each half, down to the values that the type does not have."""
    try:
        return _finite(texts, pc.cast(texts, kind))
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
    half = len(texts) // 2
    parts = [_numbers_and_times(part, kind) for part in (texts[:half], texts[half:])]
    return pa.concat_arrays(parts)


def _plausible(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Without the texts that PostgreSQL never writes for such a value, though Arrow would make something of them."""
    if pa.types.is_integer(kind):
        pattern = _INTEGER
    elif pa.types.is_floating(kind):
        pattern = _FLOAT
    elif pa.types.is_decimal(kind):
        pattern = _DECIMAL
    else:
        return texts
    fits = pc.match_substring_regex(texts, pattern)
    return texts if pc.all(fits).as_py() in (True, None) else pc.if_else(fits, texts, pa.scalar(None, STRING))


def _finite(texts: pa.Array, numbers: pa.Array) -> pa.Array:
    """NULL for a float whose text overflowed or became zero."""
    if not pa.types.is_floating(numbers.type):
        return numbers
    suspect = pc.or_(pc.is_inf(numbers), pc.equal(numbers, 0))
    if not pc.any(suspect).as_py():
        return numbers
    exact_text = pc.match_substring_regex(texts, r"^(-?Infinity|-?0+(\.0+)?(e.*)?)$")
    return pc.if_else(pc.and_(suspect, pc.invert(exact_text)), pa.scalar(None, numbers.type), numbers)


def _bytes(text: str | None) -> bytes | None:
    """The bytes of a bytea in hex form."""
    if text is None or not text.startswith(_BACKSLASH_X) or not text.isascii() or " " in text:
        return None
    try:
        return bytes.fromhex(text[2:])
    except ValueError:
        return None


def _lists(texts: pa.Array, kind: pa.DataType, delimiter: str) -> pa.Array:
    """Arrays of one dimension. NULL if the type of the elements does not have all of them."""
    read = _LISTS[delimiter].json_text
    elements: list[str | None] = []
    offsets = [0]
    none: list[bool] = []
    for text in texts.to_pylist():
        found = None if text is None else _elements(read, text)
        none.append(found is None)
        elements += found or ()
        offsets.append(len(elements))
    strings = pa.array(elements, STRING)
    items = cast(strings, kind.value_type)
    if items.null_count > strings.null_count:
        lost = pc.indices_nonzero(pc.and_(pc.is_null(items), pc.is_valid(strings))).to_pylist()
        for index in np.searchsorted(offsets, lost, side="right") - 1:
            none[index] = True
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, mask=pa.array(none, pa.bool_())).cast(kind)


def _elements(read: Callable[[bytes], bytes], text: str) -> list[str | None] | None:
    """The elements of an array of one dimension; None for any other, or what is none."""
    try:
        found = orjson.loads(read(text.encode()))
    except Undecoded:
        return None
    if isinstance(found, list) and not any(isinstance(element, list) for element in found):
        return found
    return None
