"""Floor 4, columns and values as wal2json writes them, for both versions of its format; knows no line.

Source: wal2json.c (pg_decode_write_value, pg_decode_write_tuple, tuple_to_stringinfo).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pgtail.outputs.celltext import cell_text, columns_of, filled
from pgtail.outputs.ndjson import not_in_identity
from pgtail.relations import Column, Relation
from pgtail.transaction import RowChange
from pgtail.unhurried import orjson
from pgtail.values import Undecoded
from pgtail.wire.cells import UNCHANGED, TupleData

BOOLOID: Final = 16
BYTEAOID: Final = 17
_NUMBERS: Final = frozenset((20, 21, 23, 26, 700, 701, 1700))
"""int8, int2, int4, oid, float4, float8, numeric; by OID, so that a domain over one of them is a string, as there."""

_is_number = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?").fullmatch
_SPECIAL: Final = ("NaN", "Infinity", "-Infinity")


class Field(NamedTuple):
    """One column of a tuple: the type's name and the value are JSON."""

    name: bytes
    type: bytes
    type_oid: int
    value: bytes
    null: bool = False
    undecoded: bool = False


class Values:
    """Makes fields of cells; `as_string` is numeric-data-types-as-string."""

    def __init__(self, *, as_string: bool, fill: bool) -> None:
        self._as_string = as_string
        self._fill = fill
        self._known: dict[int, tuple[Relation, list[tuple[Column, bytes, bytes]]]] = {}

    def new(self, change: RowChange) -> Iterator[Field]:
        """The new row, without what was not sent of it."""
        assert change.new is not None
        return self._fields(change.relation, filled(change) if self._fill else change.new)

    def identity(self, change: RowChange) -> Iterator[Field] | None:
        """What identifies the old row: of the old tuple, or, where that did not change, of the new one; None for
        nothing."""
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
        """A value as JSON, and whether it could not be read as its type."""
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
    """wal2json takes a name in double quotes for a JSON string as it stands; an array's brackets stand outside."""
    if type_name.startswith('"') and type_name.endswith('"') and '"."' not in type_name:
        return type_name[1:-1].replace('""', '"')
    return type_name
