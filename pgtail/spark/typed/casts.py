"""PostgreSQL's text -> typed Arrow columns, without loss; pure functions, no pyspark.

What a type has no value for (NaN in a decimal, infinity in a date, the years BC, an array of two dimensions) becomes
NULL and stands with its text in the map `_rescued`. Nothing is rounded, cut or guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pgtail._orjson import orjson
from pgtail.spark.typed.arrow_types import STRING, Declared, arrow_type, delimiter, widest
from pgtail.values import Types, Undecoded

RESCUED: Final = pa.map_(STRING, STRING)
"""Column -> PostgreSQL's text of a value that has no place in its type; NULL for a row without such values."""

_BACKSLASH_X: Final = "\\x"
# Arrow reads more than PostgreSQL writes: 0x10 is an integer to it, inf and +1 are floats, 1e999 is infinite.
_INTEGER: Final = "^-?[0-9]+$"
_FLOAT: Final = r"^(-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?|NaN|-?Infinity)$"
_DECIMAL: Final = r"^-?[0-9]+(\.[0-9]+)?$"

_DAY: Final = 86_400_000_000
_FIRST_DAY_WITHOUT, _FIRST_DAY_AGAIN = -141437, -141427
"""5 and 15 October 1582, in days since 1970: what lies between is not in ORC's calendar."""
_LAST_SECOND: Final = -1_000_000

_TEXT_ARRAY: Final = 1009
_BOX_ARRAY: Final = 1020
_LISTS: Final = {",": Types().codec(_TEXT_ARRAY), ";": Types().codec(_BOX_ARRAY)}
"""How to read an array's text as strings, by the delimiter."""


class ColumnType(NamedTuple):
    """A column of the typed result; `delimiter` stands between the elements in an array's text.

    `orc`: ORC is to hold it, which has no place for some values.
    """

    name: str
    kind: pa.DataType
    delimiter: str = ","
    orc: bool = False

    @classmethod
    def holding(cls, name: str, versions: Iterable[Declared]) -> ColumnType:
        """The column of this name, wide enough for every version of it."""
        known = list(versions)
        delimiters = {delimiter(one) for one in known}
        if len(delimiters) > 1:
            return cls(name, STRING)
        return cls(name, widest(map(arrow_type, known)), delimiters.pop())


def typed(
    values: pa.MapArray, columns: Iterable[ColumnType], undecoded: pa.ListArray | None = None
) -> tuple[list[pa.Array], pa.MapArray]:
    """One typed array for each column of a batch of rows (column -> text), and what had to be rescued of each row.

    A column that a row's map does not have is NULL. `undecoded` names the columns of each row whose text is not a
    value's: they are rescued whatever they look like.
    """
    arrays = []
    rescued: dict[int, list[tuple[str, str]]] = {}
    broken = _undecoded(undecoded)
    for column in columns:
        texts = pc.map_lookup(values, pa.scalar(column.name), "last")
        readable = _without(texts, broken.get(column.name, ()))
        array = cast(readable, column.kind, column.delimiter, orc=column.orc)
        arrays.append(array)
        if array.null_count > texts.null_count:
            lost = pc.and_(pc.is_null(array), pc.is_valid(texts))
            for index in pc.indices_nonzero(lost).to_pylist():
                rescued.setdefault(index, []).append((column.name, texts[index].as_py()))
    return arrays, pa.array([rescued.get(index) for index in range(len(values))], RESCUED)


def cast(texts: pa.Array, kind: pa.DataType, delimiter: str = ",", *, orc: bool = False) -> pa.Array:
    """An array of PostgreSQL's texts as `kind`; NULL where a text is no value of it (or `orc` would change it)."""
    if kind == STRING:
        return texts
    if pa.types.is_boolean(kind):
        return pc.if_else(pc.is_in(texts, pa.array(["t", "f"])), pc.equal(texts, "t"), pa.scalar(None, kind))
    if pa.types.is_binary(kind):
        return pa.array(map(_bytes, texts.to_pylist()), kind)
    if pa.types.is_list(kind):
        return _lists(texts, kind, delimiter, orc=orc)
    found = _numbers_and_times(_plausible(texts, kind), kind)
    return _as_orc_keeps_them(found) if orc else found


def _numbers_and_times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """The strict cast of all of them; where it fails, of each half, down to the values that have no place."""
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
    """NULL where a float overflowed, or became zero, by being read."""
    if not pa.types.is_floating(numbers.type):
        return numbers
    suspect = pc.or_(pc.is_inf(numbers), pc.equal(numbers, 0))
    if not pc.any(suspect).as_py():
        return numbers
    honest = pc.match_substring_regex(texts, r"^(-?Infinity|-?0+(\.0+)?(e.*)?)$")
    return pc.if_else(pc.and_(suspect, pc.invert(honest)), pa.scalar(None, numbers.type), numbers)


def _as_orc_keeps_them(values: pa.Array) -> pa.Array:
    """NULL for the days that ORC's calendar leaves out; it takes the last second before 1970 for the one behind it."""
    if pa.types.is_date(values.type):
        days = values.cast(pa.int32())
        lost = pc.and_(pc.greater_equal(days, _FIRST_DAY_WITHOUT), pc.less(days, _FIRST_DAY_AGAIN))
    elif pa.types.is_timestamp(values.type) and values.type.tz is not None:
        micros = values.cast(pa.int64())
        skipped = pc.greater_equal(micros, _FIRST_DAY_WITHOUT * _DAY), pc.less(micros, _FIRST_DAY_AGAIN * _DAY)
        lost = pc.or_(pc.and_(*skipped), pc.and_(pc.greater(micros, _LAST_SECOND), pc.less(micros, 0)))
    else:
        return values
    return pc.if_else(lost, pa.scalar(None, values.type), values)


def _bytes(text: str | None) -> bytes | None:
    """Of bytea in hex form."""
    if text is None or not text.startswith(_BACKSLASH_X) or not text.isascii() or " " in text:
        return None
    try:
        return bytes.fromhex(text[2:])
    except ValueError:
        return None


def _lists(texts: pa.Array, kind: pa.DataType, delimiter: str, *, orc: bool) -> pa.Array:
    """Arrays of one dimension. One whose elements have not all a place is NULL as a whole."""
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
    items = cast(strings, kind.value_type, orc=orc)
    if items.null_count > strings.null_count:
        lost = pc.indices_nonzero(pc.and_(pc.is_null(items), pc.is_valid(strings))).to_pylist()
        for index in _lists_of(lost, offsets):
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


def _lists_of(elements: list[int], offsets: list[int]) -> Iterable[int]:
    """The indices of the lists that hold these elements, both in order."""
    index = 0
    for element in elements:
        while offsets[index + 1] <= element:
            index += 1
        yield index


def _undecoded(names: pa.ListArray | None) -> Mapping[str, list[int]]:
    """The rows in which each column could not be decoded."""
    found: dict[str, list[int]] = {}
    if names is not None and len(names.flatten()):
        for index, row in enumerate(names.to_pylist()):
            for name in row or ():
                found.setdefault(name, []).append(index)
    return found


def _without(texts: pa.Array, rows: Iterable[int]) -> pa.Array:
    """NULL in these rows."""
    gone = set(rows)
    if not gone:
        return texts
    return pa.array([None if index in gone else text for index, text in enumerate(texts.to_pylist())], STRING)
