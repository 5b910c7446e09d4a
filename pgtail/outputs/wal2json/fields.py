"""Columns and values as both versions of wal2json's format write them.

Source: wal2json.c (pg_decode_write_value, pg_decode_write_tuple, tuple_to_stringinfo).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pgtail._orjson import orjson
from pgtail.changes.events import RowChange, not_in_identity
from pgtail.changes.relations import Column, Relation
from pgtail.outputs.cells import cell_text, columns_of, filled
from pgtail.pgoutput.cells import UNCHANGED, TupleData
from pgtail.values import Undecoded

BOOLOID: Final = 16
BYTEAOID: Final = 17
_NUMBERS: Final = frozenset((20, 21, 23, 26, 700, 701, 1700))
"""int8, int2, int4, oid, float4, float8, numeric; by OID, so that a domain is a string, as in wal2json."""

_is_number = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?").fullmatch
_SPECIAL: Final = ("NaN", "Infinity", "-Infinity")


class Field(NamedTuple):
    """One column of a tuple; its name, type and value are JSON."""

    name: bytes
    type: bytes
    type_oid: int
    value: bytes
    null: bool = False
    undecoded: bool = False


class Values:
    """Converts tuples to fields; `as_string` is numeric-data-types-as-string, `fill` is --fill-unchanged."""

    def __init__(self, *, as_string: bool, fill: bool) -> None:
        self._as_string = as_string
        self._fill = fill
        self._known: dict[int, tuple[Relation, list[tuple[Column, bytes, bytes]]]] = {}

    def new(self, change: RowChange) -> Iterator[Field]:
        """The new row, without unsent columns."""
        assert change.new is not None
        return self._fields(change.relation, filled(change) if self._fill else change.new)

    def identity(self, change: RowChange) -> Iterator[Field] | None:
        """The columns that identify the old row, from the old tuple or, if none was sent, from the new one.

        None if there are none.
        """
        if change.old is not None:
            return self._fields(change.relation, change.old, not_in_identity(change))
        if change.op == "update" and change.new is not None and change.relation.key:
            columns = change.relation.columns
            others = [i for i in range(len(change.new)) if i >= len(columns) or not columns[i].key]
            return self._fields(change.relation, change.new, others)
        return None

    def _fields(self, relation: Relation, cells: TupleData, skip: Iterable[int] = ()) -> Iterator[Field]:
        left_out = frozenset(skip)
        columns = self._columns(relation, len(cells))
        for index, (cell, (column, name, type_name)) in enumerate(zip(cells, columns)):  # noqa: B905 -- may be shorter
            if cell is UNCHANGED or index in left_out:
                continue
            if cell is None:
                yield Field(name, type_name, column.type_oid, b"null", null=True)
            else:
                value, undecoded = self._value(column, cell)
                yield Field(name, type_name, column.type_oid, value, undecoded=undecoded)

    def _columns(self, relation: Relation, count: int) -> list[tuple[Column, bytes, bytes]]:
        known = self._known.get(relation.version)
        if known is None or known[0] is not relation or len(known[1]) < count:
            made = [
                (column, orjson.dumps(column.name), orjson.dumps(_unquoted(column.type_name)))
                for column in columns_of(relation, count)
            ]
            known = self._known[relation.version] = (relation, made)
        return known[1]

    def _value(self, column: Column, cell: bytes) -> tuple[bytes, bool]:
        """A value as JSON, and whether it could not be decoded."""
        try:
            text = cell_text(column.codec, cell)
        except Undecoded as undecoded:
            return orjson.dumps(undecoded.text), True
        oid = column.type_oid
        if oid in _NUMBERS:
            return self._number(text)
        if oid == BOOLOID and text in ("t", "f"):
            return (b"true" if text == "t" else b"false"), False
        if oid == BYTEAOID and text.startswith("\\x"):
            return orjson.dumps(text[2:]), False
        return orjson.dumps(text), oid in (BOOLOID, BYTEAOID)

    def _number(self, text: str) -> tuple[bytes, bool]:
        special = text in _SPECIAL
        if not special and not _is_number(text):
            return orjson.dumps(text), True
        if self._as_string:
            return orjson.dumps(text), False
        return (b"null" if special else text.encode()), False


def _unquoted(type_name: str) -> str:
    """The type name without double quotes: wal2json writes a quoted name as the JSON string (arrays keep quotes)."""
    if type_name.startswith('"') and type_name.endswith('"') and '"."' not in type_name:
        return type_name[1:-1].replace('""', '"')
    return type_name
