"""Composite types, whose binary form includes the OID of each field's type (src/backend/utils/adt/rowtypes.c)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

from pgtail.values.codec import BinaryText, Context, Loader, ValueKind
from pgtail.values.nested import joined, one_level_deeper, value_at
from pgtail.values.render import strings

_count = struct.Struct(">i").unpack_from
_oid = struct.Struct(">I").unpack_from
_needs_quotes = re.compile(r'["\\(), \t\n\r\v\f]').search


def record(context: Context) -> BinaryText:
    """The number of fields; for each the OID of its type, a length and the value.

    Also tried for user types of unknown form: this form is strict enough to be recognized. A composite without fields
    is not, so it is rejected.
    """

    def text(cell: bytes) -> str:
        return "(" + joined(_fields(cell, context), ",", len(cell)) + ")"

    return one_level_deeper(context, text)


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
