"""The keys of rows as bytes: a number for the table and the columns of its key, and their cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from pgtail.changes.redaction import Redaction
from pgtail.changes.relations import Column, Relation
from pgtail.pgoutput.cells import UNCHANGED, Cell, TupleData, packed, unpacked
from pgtail.records import NamedTuple
from pgtail.values import Types

_PREFIX: Final = 4
"""Bytes of a key that say of which KeyTable it is."""

ColumnContent: TypeAlias = tuple[str, int, int, bool, str]
"""The fields of a Column without its codec."""


class KeyContent(NamedTuple):
    """A table and the columns of its key; those at `masked` are not shown."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[ColumnContent, ...]
    masked: tuple[int, ...]


class KeyTable:
    """A table's key. All versions of the table with the same key share one, so that its rows are counted as one.

    `relation` has the columns of the key alone, with the codecs that show them.
    """

    __slots__ = ("content", "prefix", "relation")

    def __init__(self, content: KeyContent, relation: Relation, prefix: bytes) -> None:
        self.content = content
        self.relation = relation
        self.prefix = prefix
        """The first bytes of its keys."""


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
        self._tables: list[KeyTable] = []
        self._by_content: dict[KeyContent, KeyTable] = {}

    def row_key(self, relation: Relation) -> RowKey:
        """The key of the rows of a version of a table."""
        key, width = set(relation.key), len(relation.columns)
        places = tuple([index for index, column in enumerate(relation.columns) if column.name in key])
        if not places:
            return RowKey((), b"", width)
        hidden = frozenset[int]() if self._redaction is None else self._redaction.columns(relation)
        masked = tuple([number for number, place in enumerate(places) if place in hidden])
        columns = [relation.columns[place] for place in places]
        return RowKey(places, self._table(relation, columns, masked).prefix, width)

    def adopt(self, content: KeyContent, types: Types) -> bytes:
        """The prefix of the keys of a table that another process has seen; `types` are those of the stream."""
        known = self._by_content.get(content)
        if known is not None:
            return known.prefix
        columns = [Column(*one, types.codec(one[1], one[2])) for one in content.columns]
        relation = Relation(content.oid, content.schema, content.name, content.identity, ())
        return self._table(relation, columns, content.masked).prefix

    def split(self, key: bytes) -> tuple[Relation, TupleData]:
        """The columns of a key, and their cells."""
        return self._of(key).relation, unpacked(key[_PREFIX:])

    def used_by(self, keys: Iterable[bytes]) -> dict[bytes, KeyContent]:
        """The tables of these keys, by prefix."""
        return {prefix: self._of(prefix).content for prefix in {key[:_PREFIX] for key in keys}}

    def _of(self, key: bytes) -> KeyTable:
        return self._tables[int.from_bytes(key[:_PREFIX], "big")]

    def _table(self, relation: Relation, columns: Sequence[Column], masked: tuple[int, ...]) -> KeyTable:
        plain = tuple([(one.name, one.type_oid, one.typmod, one.key, one.type_name) for one in columns])
        content = KeyContent(relation.oid, relation.schema, relation.name, relation.identity, plain, masked)
        found = self._by_content.get(content)
        if found is None:
            number = len(self._tables)
            shown = Relation(*content[:4], tuple(columns), version=number, beyond=relation.beyond)
            if self._redaction is not None:
                shown = self._redaction.hiding(shown, masked)
            found = self._by_content[content] = KeyTable(content, shown, number.to_bytes(_PREFIX, "big"))
            self._tables.append(found)
        return found


def with_prefix(key: bytes, prefixes: Mapping[bytes, bytes]) -> bytes:
    """The key with another prefix."""
    return prefixes[key[:_PREFIX]] + key[_PREFIX:]
