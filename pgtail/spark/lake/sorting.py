"""Collects record batches into row groups; those of `changes` are sorted, each by itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PIECE: Final = 64 << 20
"""Bytes of Arrow that become a row group. A worker has them in memory twice for a moment."""
_TABLE: Final = ("commit_date", "schema", "table")
_PLACE: Final = ("position", "ordinal", "seq")


class Pieces:
    """Joins record batches to pieces; `joined` makes a table of several batches."""

    def __init__(
        self, joined: Callable[[list[pa.RecordBatch]], pa.Table] = pa.Table.from_batches, piece: int = PIECE
    ) -> None:
        self._joined = joined
        self._piece = piece
        self._gathered: list[pa.RecordBatch] = []
        self._size = 0

    def add_batch(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Add rows; yields a piece when there are enough."""
        if batch.num_rows:
            self._gathered.append(batch)
            self._size += batch.nbytes
        if self._size >= self._piece:
            yield from self.rest()

    def rest(self) -> Iterator[pa.Table]:
        if self._gathered:
            piece = self._joined(self._gathered)
            # They are released while the rest is written.
            self._gathered, self._size = [], 0
            yield piece


def sorted_changes(batches: list[pa.RecordBatch]) -> pa.Table:
    """Rows of `changes` by day and table, NULL first, and then in the order of the stream."""
    table = pa.Table.from_batches(batches)
    ranks = _ranks([table.column(name).combine_chunks() for name in _TABLE])
    keys = {"rank": ranks}
    if not _follow(batches):
        keys |= {name: pc.fill_null(table.column(name), 0) for name in _PLACE}
    elif pc.all(pc.less_equal(ranks[:-1], ranks[1:])).as_py() is not False:
        return table
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    # Most of the rare columns are NULL in every row, in any order.
    columns = [column if column.null_count == len(column) else column.take(order) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _ranks(columns: list[pa.Array]) -> pa.Array:
    """A number for each row: in the order of these columns, NULL first."""
    ranks = pa.array(np.zeros(len(columns[0]), np.int64))
    for column in columns:
        encoded = column.dictionary_encode()
        own = pc.rank(encoded.dictionary).cast(pa.int64()).take(encoded.indices)
        ranks = pc.add(pc.multiply(ranks, len(encoded.dictionary) + 1), pc.fill_null(own, 0))
    return ranks


def _follow(batches: list[pa.RecordBatch]) -> bool:
    """Whether each batch continues after the one before: within a batch the rows are in order."""
    ends = [[[batch[name][row].as_py() or 0 for name in _PLACE] for row in (0, -1)] for batch in batches]
    return all(before[1] <= after[0] for before, after in itertools.pairwise(ends))
