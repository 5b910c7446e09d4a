"""Casts PostgreSQL's text to typed Arrow columns without loss, the inverse, and one type to another.

A value that a type cannot represent (NaN in a decimal, infinity in a date, the years BC, an array of two dimensions)
becomes NULL, and its text is in the map `_rescued`. Nothing is rounded, cut or guessed.

The text of a value is exactly as PostgreSQL sent it: a column that changes its type is as if it had had the new type
from the beginning.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgtail._orjson import orjson
from pgtail.arrow.typed.arrays import flags, maps_of, without
from pgtail.arrow.typed.arrow_types import STRING
from pgtail.pgoutput.scalars import UNIX_EPOCH_OFFSET
from pgtail.values import Types, Undecoded, datetime, floats
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
    texts: list[str | None] = []
    start = 0
    for count in pc.list_value_length(values).to_pylist():
        if count is None:
            texts.append(None)
            continue
        texts.append("{" + delimiter.join(map(element, elements[start : start + count])) + "}")
        start += count
    return pa.array(texts, STRING)


def retyped(values: pa.Array, kind: pa.DataType, delimiters: tuple[str, str] = (",", ",")) -> pa.Array:
    """Values as another type, as if their text had been of that type; NULL for a value that it cannot represent.

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


_BACKSLASH_X: Final = "\\x"
# Arrow reads more than PostgreSQL writes: 0x10 is an integer to it, inf and +1 are floats, 1e999 is infinite.
_INTEGER: Final = "^-?[0-9]+$"
_DIGITS: Final = np.isin(np.arange(256), list(b"-0123456789"))
_FLOAT: Final = r"^(-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?|NaN|-?Infinity)$"
_DECIMAL: Final = r"^-?[0-9]+(\.[0-9]+)?$"

_TEXT_ARRAY: Final = 1009
_BOX_ARRAY: Final = 1020
_LISTS: Final = {",": Types().codec(_TEXT_ARRAY), ";": Types().codec(_BOX_ARRAY)}
"""Codecs that read an array's text as strings, by the delimiter."""


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
    none_undecoded = undecoded is None or undecoded.null_count == len(undecoded)
    for column, own in zip(columns, texts, strict=True):
        decoded = own if none_undecoded else without(own, flags(undecoded, column.name))
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
    """The strict cast of all of them; if it fails, of each half, down to the values that the type cannot represent."""
    try:
        return _finite(texts, pc.cast(texts, kind))
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
    half = len(texts) // 2
    parts = [_numbers_and_times(part, kind) for part in (texts[:half], texts[half:])]
    return pa.concat_arrays(parts)


def _plausible(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """NULL for texts that PostgreSQL never writes for such a value, though Arrow would accept them."""
    if pa.types.is_integer(kind):
        if _all_in(texts, _DIGITS):
            return texts
        pattern = _INTEGER
    elif pa.types.is_floating(kind):
        pattern = _FLOAT
    elif pa.types.is_decimal(kind):
        pattern = _DECIMAL
    else:
        return texts
    fits = pc.match_substring_regex(texts, pattern)
    return texts if pc.all(fits).as_py() in (True, None) else pc.if_else(fits, texts, pa.scalar(None, STRING))


def _all_in(texts: pa.Array, allowed: npt.NDArray[np.bool_]) -> bool:
    """Whether the texts have only these bytes; their order is left to Arrow."""
    data = texts.buffers()[2]
    if not len(texts) or data is None:
        return True
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    first, end = offsets[texts.offset], offsets[texts.offset + len(texts)]
    return bool(allowed[np.frombuffer(data, np.uint8)[first:end]].all())


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
    """The bytes of a bytea in hex form; None for another text."""
    if text is None or not text.startswith(_BACKSLASH_X) or not text.isascii() or " " in text:
        return None
    try:
        return bytes.fromhex(text[2:])
    except ValueError:
        return None


def _lists(texts: pa.Array, kind: pa.DataType, delimiter: str) -> pa.Array:
    """Arrays of one dimension, equal texts read once. NULL if the elements' type cannot represent all of them."""
    distinct = texts.dictionary_encode()
    return _distinct_lists(distinct.dictionary, kind, delimiter).take(distinct.indices)


def _distinct_lists(texts: pa.Array, kind: pa.DataType, delimiter: str) -> pa.Array:
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
    """The elements of an array of one dimension; None for any other text."""
    try:
        elements = orjson.loads(read(text.encode()))
    except Undecoded:
        return None
    if isinstance(elements, list) and not any(isinstance(element, list) for element in elements):
        return elements
    return None
