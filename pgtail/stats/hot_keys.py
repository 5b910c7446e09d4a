"""Find the most frequent keys of rows in bounded memory, with a known error.

A Misra-Gries summary (Misra and Gries, Finding repeated elements, 1982) that reduces its counts in batches, as in
Agarwal et al., Mergeable summaries, 2012: every count is too low by at most `error`, and exact while `error` is 0.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from itertools import islice
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


MAX_KEYS: Final = 32_768
"""Keys counted at a time."""
MAX_BYTES: Final = 16 << 20
"""Their total size in bytes."""
_AT_ONCE: Final = 1024
"""Keys to count at once, if no count can be lowered between them."""


class HotKeys:
    """Counts keys. `total` is the number of counted keys, `error` how much too low a count may be."""

    def __init__(self, max_keys: int = MAX_KEYS, max_bytes: int = MAX_BYTES) -> None:
        self.max_keys = max_keys
        self.max_bytes = max_bytes
        self.counts = Counter[bytes]()
        self.size = 0
        self.total = 0
        self.error = 0

    def add(self, key: bytes) -> None:
        """Count a key once more."""
        counts = self.counts
        self.total += 1
        known = counts.get(key)
        if known is not None:
            counts[key] = known + 1
            return
        counts[key] = 1
        self.size += len(key)
        if len(counts) > self.max_keys or self.size > self.max_bytes:
            self.reduce_counts()

    def add_all(self, keys: Sequence[bytes]) -> None:
        """Count keys, in this order."""
        for start in range(0, len(keys), _AT_ONCE):
            some, before = keys[start : start + _AT_ONCE], len(self.counts)
            if before + len(some) > self.max_keys or self.size + sum(map(len, some)) > self.max_bytes:
                for key in some:
                    self.add(key)
            else:
                self.total += len(some)
                self.counts.update(some)
                self.size += sum(map(len, islice(reversed(self.counts), len(self.counts) - before)))

    def reduce_counts(self) -> None:
        """Lower all counts by their median, which leaves at most half of the keys."""
        cut = sorted(self.counts.values())[len(self.counts) // 2]
        self.counts = Counter({key: count - cut for key, count in self.counts.items() if count > cut})
        self.size = sum(map(len, self.counts))
        self.error += cut

    def top(self, limit: int) -> list[tuple[bytes, int]]:
        """The `limit` keys with the highest counts, as (key, count), without those counted once.

        Each was counted `count` to `count + error` times.
        """
        found = heapq.nlargest(limit, self.counts.items(), key=lambda item: item[1])
        return [(key, count) for key, count in found if count > 1]
