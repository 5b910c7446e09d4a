"""Floor 4, a cell as PostgreSQL's text, for the outputs that others read; knows no format."""

from __future__ import annotations

from pgtail.relations import Column, Relation
from pgtail.transaction import RowChange
from pgtail.values import Codec
from pgtail.wire.cells import UNCHANGED, Binary, TupleData
from pgtail.wire.scalars import time_text


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


def filled(change: RowChange) -> TupleData:
    """The new row, with unchanged TOASTed values as far as they came with the old row."""
    old, new = change.old or (), change.new or ()
    if not old or UNCHANGED not in new:
        return new
    return tuple(
        [old[i] if cell is UNCHANGED and i < len(old) and old[i] is not None else cell for i, cell in enumerate(new)]
    )


def timestamp(time: int) -> str:
    """A commit time as timestamptz prints it in UTC (timestamptz_to_str)."""
    text = time_text(time)
    before_christ = " BC" if text.endswith(" BC") else ""
    date, _, clock = text.removesuffix(" BC").removesuffix("Z").partition("T")
    return f"{date} {clock.rstrip('0').rstrip('.')}+00{before_christ}"
