"""Floor 4, a cell as PostgreSQL's text, for the outputs that others read; knows no format."""

from __future__ import annotations

from pgtail.relations import Column, Relation
from pgtail.values import Codec
from pgtail.wire.cells import Binary


def cell_text(codec: Codec, cell: bytes) -> str:
    """The text that the type's output function gives. Raises Undecoded."""
    return codec.text_binary(cell) if isinstance(cell, Binary) else codec.text_text(cell)


def columns_of(relation: Relation, count: int) -> tuple[Column, ...]:
    """At least `count` columns: those of a table, and ?n for cells that it has no column for."""
    known = len(relation.columns)
    if known >= count:
        return relation.columns
    more = [Column(f"?{n}", 0, -1, False, "", relation.beyond) for n in range(known + 1, count + 1)]
    return (*relation.columns, *more)
