"""Collects record batches into row groups, each sorted by itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PIECE: Final = 64 << 20
"""Bytes of Arrow that are sorted and become a row group. A worker has them in memory twice for a moment."""


class Layout(NamedTuple):
    """How rows are sorted: by these columns, then in the order of the stream."""

    names: tuple[str, ...]
    order: tuple[str, ...]


CHANGES_LAYOUT: Final = Layout(("commit_date", "schema", "table"), ("position", "ordinal", "seq"))
TRANSACTIONS_LAYOUT: Final = Layout(("commit_date",), ("position",))


class Sorting:
    """Takes rows in the order of the stream, and returns them sorted, in pieces; without a layout as they come."""

    def __init__(self, layout: Layout | None, piece: int = PIECE) -> None:
        self._layout = layout
        self._piece = piece
        self._gathered: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Add rows; yields a piece when there are enough."""
        if batch.num_rows:
            self._gathered.append(batch)
            self._size += batch.nbytes
        if self._size >= self._piece:
            yield from self.rest()

    def rest(self) -> Iterator[pa.Table]:
        """The rest."""
        if self._gathered:
            batches, layout = self._gathered, self._layout
            found = pa.Table.from_batches(batches) if layout is None else _sorted(batches, layout)
            # They are released while the rest is written.
            self._gathered, self._size = [], 0
            yield found


def _sorted(batches: list[pa.RecordBatch], layout: Layout) -> pa.Table:
    """The rows as the layout says, NULL first."""
    table = pa.Table.from_batches(batches)
    ranks = _ranks([table.column(name).combine_chunks() for name in layout.names])
    keys = {"rank": ranks}
    if not _follow(batches, layout.order):
        keys |= {name: pc.fill_null(table.column(name), 0) for name in layout.order}
    elif pc.all(pc.less_equal(ranks[:-1], ranks[1:])).as_py() is not False:
        return table
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    # Most of the rare columns are NULL in every row, in any order.
    columns = [column if column.null_count == len(column) else column.take(order) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _ranks(columns: list[pa.Array]) -> pa.Array:
    """A number for each row: in the order of these columns, NULL first."""
    found = pa.array(np.zeros(len(columns[0]), np.int64))
    for column in columns:
        encoded = column.dictionary_encode()
        own = pc.rank(encoded.dictionary).cast(pa.int64()).take(encoded.indices)
        found = pc.add(pc.multiply(found, len(encoded.dictionary) + 1), pc.fill_null(own, 0))
    return found


def _follow(batches: list[pa.RecordBatch], order: tuple[str, ...]) -> bool:
    """Whether each batch continues after the one before: within a batch the rows are in order."""
    places = [[_place(batch, row, order) for row in (0, batch.num_rows - 1)] for batch in batches]
    return all(before[1] <= after[0] for before, after in itertools.pairwise(places))


def _place(batch: pa.RecordBatch, row: int, order: tuple[str, ...]) -> list[int]:
    return [batch.column(name)[row].as_py() or 0 for name in order]
