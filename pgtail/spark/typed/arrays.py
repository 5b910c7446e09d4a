"""Small helpers for Arrow's arrays and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def replaced(array: pa.Array, values: Mapping[int, pa.Array]) -> pa.Array:
    """An array with a few other elements."""
    if not values:
        return array
    pool = pa.concat_arrays([array, *values.values()])
    places = list(range(len(array)))
    for index, number in enumerate(values):
        places[number] = len(array) + index
    return pool.take(pa.array(places))


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """A column of a table as one array."""
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else pa.nulls(0, column.type)
    )


def maps_in(table: pa.Table, name: str) -> dict[int, dict[str, str]]:
    """Of a column of maps, most of which are NULL, the others."""
    return {place: dict(pairs) for place, pairs in _valid_in(table, name) if pairs}


def lists_in(table: pa.Table, name: str) -> dict[int, list[str]]:
    """Of a column of lists, most of which are NULL or empty, the others."""
    return {place: names for place, names in _valid_in(table, name) if names}


def _valid_in(table: pa.Table, name: str) -> Iterator[tuple[int, Any]]:
    column = one_chunk(table[name])
    if column.null_count < len(column):
        places = pc.indices_nonzero(pc.is_valid(column))
        yield from zip(places.to_pylist(), column.take(places).to_pylist(), strict=True)
