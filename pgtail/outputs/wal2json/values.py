"""Columns and values as both versions of wal2json's format write them.

Source: wal2json.c (pg_decode_write_value, pg_decode_write_tuple, tuple_to_stringinfo).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from pgtail.changes.relations import Column
from pgtail.native.plan import Encoding, Field, Form, Side, Value
from pgtail.outputs.ndjson import dumps
from pgtail.outputs.rows import Shape, encoding_of_text
from pgtail.values import Undecoded
from pgtail.values.jsonsyntax import NUMBER

BOOLOID: Final = 16
BYTEAOID: Final = 17
_NUMBERS: Final = frozenset((20, 21, 23, 26, 700, 701, 1700))
"""int8, int2, int4, oid, float4, float8, numeric; by OID, so that a domain is a string, as in wal2json."""

_is_number = re.compile(NUMBER).fullmatch
_SPECIAL: Final = ("NaN", "Infinity", "-Infinity")


def member(name: bytes, field: Field, *, quote: bytes = b'"', before: bytes = b"", after: bytes = b"") -> Value:
    """A member of a JSON object, with the texts `before` and `after` it; null if the field is unknown."""
    start = before + b'"%b":' % name
    return Value(field, start + quote, quote + after, missing=start + b"null" + after)


def identity_of(shape: Shape) -> tuple[Side, list[int]] | None:
    """The columns that identify the old row: of the old tuple or, if none was sent, of the new one.

    None if there are none.
    """
    if shape.old_width is not None:
        return "old", [*range(shape.old_width)]
    if shape.op == "update" and shape.relation.key:
        return "new", [i for i, column in enumerate(shape.relation.columns[: shape.new_width]) if column.key]
    return None


def type_json(column: Column) -> bytes:
    """The name of a column's type; one in double quotes without them (arrays keep them), as wal2json writes it."""
    name = column.type_name
    if name.startswith('"') and name.endswith('"') and '"."' not in name:
        name = name[1:-1].replace('""', '"')
    return dumps(name)


def encoding_of(column: Column, *, as_string: bool, mark: bytes = b"") -> Encoding:
    """How the values of a column are written; `as_string` is numeric-data-types-as-string.

    A value that cannot be decoded is a string with `mark` after it.
    """
    encode, form = _ENCODERS.get(column.type_oid, (dumps, Form("string")))
    if as_string and column.type_oid in _NUMBERS:
        encode, form = _number_string, Form("number", parameter=True)

    def undecoded(found: Undecoded) -> bytes:
        return dumps(found.text) + mark

    return encoding_of_text(column, encode, form=form, undecoded=undecoded)


def _number(text: str) -> bytes:
    _check_number(text)
    return b"null" if text in _SPECIAL else text.encode()


def _number_string(text: str) -> bytes:
    _check_number(text)
    return dumps(text)


def _check_number(text: str) -> None:
    if text not in _SPECIAL and not _is_number(text):
        raise Undecoded(text)


def _boolean(text: str) -> bytes:
    if text not in ("t", "f"):
        raise Undecoded(text)
    return b"true" if text == "t" else b"false"


def _bytea(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise Undecoded(text)
    return dumps(text[2:])


_ENCODERS: Final[dict[int, tuple[Callable[[str], bytes], Form]]] = {
    **dict.fromkeys(_NUMBERS, (_number, Form("wal2json_number"))),
    BOOLOID: (_boolean, Form("boolean")),
    BYTEAOID: (_bytea, Form("wal2json_bytea")),
}
