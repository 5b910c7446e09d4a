"""What one version of a table contributes to its rows in `changes`, and its row in `relations`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

from pgtail._orjson import orjson
from pgtail.changes.relations import Relation, unnamed
from pgtail.outputs.sql.statements import table
from pgtail.pgoutput.cells import UNCHANGED, TupleData
from pgtail.spark.decoding.batches import Named, TableColumns
from pgtail.values import Codec, Undecoded

FINGERPRINT_LENGTH: Final = 16
_UTF8: Final[dict[type, Callable[[Any], str | None]]] = {bytes: bytes.decode, type(None): lambda cell: None}


def fingerprint(relation: Relation) -> str:
    """16 hexadecimal digits that identify a version of a table, the same wherever they are computed."""
    columns = [[c.name, c.type_oid, c.typmod, c.type_name, c.key] for c in relation.columns]
    parts = [relation.schema, relation.name, relation.identity, columns]
    if relation.partition is not None:
        parts.append(table(relation.to_alter))
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:FINGERPRINT_LENGTH]


def described(relation: Relation) -> dict[str, Any]:
    """The row of `relations`, without the place where it was seen."""
    return {
        "relation": fingerprint(relation),
        "relid": relation.oid,
        "schema": relation.schema,
        "table": relation.name,
        "identity": relation.identity,
        "columns": [
            {"name": c.name, "type": c.type_name, "type_oid": c.type_oid, "typmod": c.typmod, "key": c.key}
            for c in relation.columns
        ],
        "partition": None if relation.partition is None else table(relation.to_alter),
    }


class Table:
    """One version of a table: its columns' names and codecs, and what its rows have in common."""

    def __init__(self, relation: Relation, *, utf8: bool) -> None:
        self._relation = relation
        self._utf8 = utf8
        self._names = [column.name for column in relation.columns]
        self._codecs: list[Codec] = [column.codec for column in relation.columns]
        if relation.seen:
            names = (relation.schema, relation.name)
            print_ = fingerprint(relation)
            self.columns = TableColumns(*names, relation.identity, relation.key or None, print_, relation.oid)
            self.without_identity = TableColumns(*names, None, None, print_, relation.oid)
        else:
            self.columns = self.without_identity = TableColumns(relid=relation.oid)

    def texts(self, cells: TupleData, left_out: list[int], unchanged: list[str], undecoded: list[str]) -> Named:
        """Names and texts of what was sent of a row, without the columns at the places in `left_out`.

        Adds to `unchanged` and `undecoded` the names that belong there.
        """
        if self._utf8 and not left_out and len(cells) == len(self._names):
            try:
                return self._names, [_UTF8[cell.__class__](cell) for cell in cells]
            except (KeyError, UnicodeDecodeError):
                pass  # not all of it is text in UTF-8
        self._widen(len(cells))
        names: list[str] = []
        texts: list[str | None] = []
        for index, cell in enumerate(cells):
            name = self._names[index]
            if index in left_out:
                continue
            if cell is UNCHANGED:
                unchanged.append(name)
                continue
            names.append(name)
            texts.append(None if cell is None else self._text(index, cell, undecoded))
        return names, texts

    def _text(self, index: int, cell: bytes, undecoded: list[str]) -> str:
        codec = self._codecs[index]
        try:
            return codec.text(cell)
        except Undecoded as found:
            if self._names[index] not in undecoded:
                undecoded.append(self._names[index])
            return found.text

    def _widen(self, count: int) -> None:
        """Name the columns that the Relation does not have ?n, up to `count` of them."""
        for index in range(len(self._names), count):
            self._names.append(unnamed(index))
            self._codecs.append(self._relation.beyond)
