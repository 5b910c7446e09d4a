"""The keys of rows as bytes: a number for the table and the columns of its key, and their cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtail.changes.redaction import Redaction
from pgtail.changes.relations import Column, Relation
from pgtail.pgoutput.cells import UNCHANGED, Cell, TupleData, packed, unpacked

_PREFIX: Final = 4
"""Bytes of a key that say of which table it is."""


class RowKey:
    """The key of the rows of one version of a table: the columns at `places`, none if its rows have no key."""

    __slots__ = ("places", "prefix", "width")

    def __init__(self, places: tuple[int, ...], prefix: bytes, width: int) -> None:
        self.places, self.prefix, self.width = places, prefix, width

    def of(self, cells: TupleData | None) -> bytes | None:
        """The key of a row; None if a part of it was not sent, or the row does not fit the table."""
        if not self.places or cells is None or len(cells) != self.width:
            return None
        found: list[Cell] = [cells[index] for index in self.places]
        return None if None in found or UNCHANGED in found else self.prefix + packed(found)


class KeyTables:
    """The tables whose keys were seen. `redaction` masks their values where they are shown."""

    def __init__(self, redaction: Redaction | None) -> None:
        self._redaction = redaction
        self._tables: list[Relation] = []
        """Each with the columns of its key alone, and the codecs that show them."""
        self._prefixes: dict[tuple[object, ...], bytes] = {}
        """The first bytes of the keys of a table, which all its versions with the same key share."""

    def row_key(self, relation: Relation) -> RowKey:
        """The key of the rows of a version of a table."""
        key, width = set(relation.key), len(relation.columns)
        places = tuple([index for index, column in enumerate(relation.columns) if column.name in key])
        if not places:
            return RowKey((), b"", width)
        hidden = frozenset[int]() if self._redaction is None else self._redaction.columns(relation)
        masked = tuple([number for number, place in enumerate(places) if place in hidden])
        columns = [relation.columns[place] for place in places]
        return RowKey(places, self._prefix(relation, columns, masked), width)

    def split(self, key: bytes) -> tuple[Relation, TupleData]:
        """The columns of a key, and their cells."""
        return self._tables[int.from_bytes(key[:_PREFIX], "big")], unpacked(key[_PREFIX:])

    def _prefix(self, relation: Relation, columns: Sequence[Column], masked: tuple[int, ...]) -> bytes:
        plain = tuple([(one.name, one.type_oid, one.typmod, one.key, one.type_name) for one in columns])
        table = relation.oid, relation.schema, relation.name, relation.identity
        prefix = self._prefixes.get((*table, plain, masked))
        if prefix is None:
            number = len(self._tables)
            shown = Relation(*table, tuple(columns), version=number, beyond=relation.beyond)
            if self._redaction is not None:
                shown = self._redaction.hiding(shown, masked)
            prefix = self._prefixes[*table, plain, masked] = number.to_bytes(_PREFIX, "big")
            self._tables.append(shown)
        return prefix
