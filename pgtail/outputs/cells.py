"""Cells, rows and times as PostgreSQL's text, shared by the outputs."""

from __future__ import annotations

from pgtail.changes.events import RowChange
from pgtail.changes.relations import Column, Relation, unnamed
from pgtail.pgoutput.cells import UNCHANGED, TupleData
from pgtail.pgoutput.scalars import time_text


def columns_of(relation: Relation, count: int) -> tuple[Column, ...]:
    """At least `count` columns: those of the table, and columns named ?n for cells beyond them."""
    known = len(relation.columns)
    if known >= count:
        return relation.columns
    more = [Column(unnamed(index), 0, -1, False, "", relation.beyond) for index in range(known, count)]
    return (*relation.columns, *more)


def filled(change: RowChange) -> TupleData:
    """The new row, with unchanged TOASTed values filled in from the old row if it has them."""
    old, new = change.old or (), change.new or ()
    if not old or UNCHANGED not in new:
        return new
    return tuple(
        [old[i] if cell is UNCHANGED and i < len(old) and old[i] is not None else cell for i, cell in enumerate(new)]
    )


def timestamp(time: int) -> str:
    """A commit time in UTC as PostgreSQL prints it (timestamptz_to_str)."""
    text = time_text(time)
    before_christ = " BC" if text.endswith(" BC") else ""
    date, _, clock = text.removesuffix(" BC").removesuffix("Z").partition("T")
    return f"{date} {clock.rstrip('0').rstrip('.')}+00{before_christ}"
