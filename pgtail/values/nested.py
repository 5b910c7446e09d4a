"""Values inside values: what arrays, composites, ranges and hstore share, and composite types themselves.

Values from a server fit in memory, but bytes from other sources may not. So counts are checked, nesting is limited,
and the text must not be much longer than its bytes.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from pgtail.values.codec import BinaryText, Context, Loader, ValueKind
from pgtail.values.render import strings

MAX_DEPTH: Final = 12
"""The nesting depth of arrays and composites in binary form; each level holds a copy of its content."""

_SPARE: Final = 16 * 1024 * 1024
_GROWTH: Final = 8
_AT_ONCE: Final = 256
_length = struct.Struct(">i").unpack_from


def value_at(cell: bytes, position: int) -> tuple[bytes | None, int]:
    """The value after its int32 length (-1: NULL), and the position after it. Raises ValueError or struct.error."""
    (length,) = _length(cell, position)
    start = position + 4
    if length == -1:
        return None, start
    if not 0 <= length <= len(cell) - start:
        raise ValueError("length of a value")
    return cell[start : start + length], start + length


def joined(items: Iterable[str], separator: str, size: int) -> str:
    """Join the texts of a value of `size` bytes. Raises ValueError if the result is far larger than the value.

    Quotation marks double with every level of nesting, and ten bytes can stand for a numeric of 131072 digits.
    """
    source: Iterator[str] = iter(items)
    parts: list[str] = []
    room = _SPARE + _GROWTH * size
    while batch := list(itertools.islice(source, _AT_ONCE)):
        parts.append(separator.join(batch))
        room -= len(parts[-1])
        if room < 0:
            raise ValueError("text far larger than its bytes")
    return separator.join(parts)


def one_level_deeper(context: Context, read: Callable[[bytes], str]) -> BinaryText:
    """`read`, with an error if the value is nested too deep."""

    def text(cell: bytes) -> str:
        if context.depth >= MAX_DEPTH:
            raise ValueError("nested too deep")
        context.depth += 1
        try:
            return read(cell)
        finally:
            context.depth -= 1

    return text


# -- composite types (src/backend/utils/adt/rowtypes.c) --------------------------------------------------------------

_count = struct.Struct(">i").unpack_from
_oid = struct.Struct(">I").unpack_from
_needs_quotes = re.compile(r'["\\(), \t\n\r\v\f]').search


def record(context: Context) -> BinaryText:
    """The number of fields; for each the OID of its type, a length and the value.

    Also tried for user types of unknown form: this form is strict enough to be recognized. A composite without fields
    is not, so it is rejected.
    """
    return one_level_deeper(context, lambda cell: f"({joined(_fields(cell, context), ',', len(cell))})")


def _fields(cell: bytes, context: Context) -> Iterator[str]:
    (count,) = _count(cell)
    if not 0 < count <= len(cell) // 8:
        raise ValueError("number of fields")
    position = 4
    for _ in range(count):
        (oid,) = _oid(cell, position)
        value, position = value_at(cell, position + 4)
        yield "" if value is None else _field(context.binary(oid)(value))
    if position != len(cell):
        raise ValueError("bytes after a composite")


def _field(text: str) -> str:
    if text and not _needs_quotes(text):
        return text
    return '"{}"'.format(text.replace("\\", "\\\\").replace('"', '""'))


COMPOSITE: Final = Loader(ValueKind.TEXT, strings, record)
