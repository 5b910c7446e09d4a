"""Columns in which rows name other columns (maps of texts, lists of names), split by these names and joined again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgtail.arrow.typed.arrow_types import RESCUED, STRING, TEXTS
from pgtail.native import compiled

Flags: TypeAlias = npt.NDArray[np.bool_]


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """A column of a table as one array; copies only if there are several chunks."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the columns of a schema; NULL where they lack one."""
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    return rows.select(schema.names).cast(schema)


def without(texts: pa.Array, rows: Flags | pa.Array) -> pa.Array:
    """The texts with NULL in these rows."""
    return pc.if_else(rows, pa.scalar(None, STRING), texts) if pc.any(rows).as_py() else texts


def ends_of(strings: pa.Array) -> npt.NDArray[np.int32]:
    """Where the strings start in their buffer, and where the last one ends."""
    data = np.frombuffer(strings.buffers()[1] or bytes(4), np.int32)
    return data[strings.offset : strings.offset + len(strings) + 1]


def texts_by_name(maps: pa.MapArray, names: Sequence[str]) -> list[pa.Array]:
    """For each name its text in each row's map."""
    rows, offsets, fast = len(maps), maps.offsets.to_numpy(), compiled()
    if offsets[0] == offsets[-1]:
        return [pa.nulls(rows, STRING)] * len(names)
    if fast is None:
        texts = [dict(row or ()) for row in maps.to_pylist()]
        return [pa.array([row.get(name) for row in texts], STRING) for name in names]
    keys, items = maps.keys, maps.items
    valid = items.is_valid().to_numpy(zero_copy_only=False) if items.null_count else None
    strings = (ends_of(keys), keys.buffers()[2], ends_of(items), items.buffers()[2])
    columns = fast.split_maps([*names], rows, offsets, *strings, valid)
    return [pa.Array.from_buffers(STRING, rows, [*map(pa.py_buffer, column)]) for column in columns]


def maps_of(texts: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """The inverse of texts_by_name(), for few texts: a map of each row's texts, NULL for a row without any."""
    entries: dict[int, list[tuple[str, str]]] = {}
    for name, column in texts.items():
        if column.null_count < len(column):
            places = pc.indices_nonzero(pc.is_valid(column))
            for place, text in zip(places.to_pylist(), column.take(places).to_pylist(), strict=True):
                entries.setdefault(place, []).append((name, text))
    return _sparse(entries, rows, RESCUED)


def flags(lists: pa.ListArray, name: str) -> Flags:
    """A flag for each list: whether it has a name."""
    flagged = np.zeros(len(lists), bool)
    flagged[pc.list_parent_indices(lists).filter(pc.equal(pc.list_flatten(lists), name)).to_numpy()] = True
    return flagged


def lists_of(flagged: Mapping[str, Flags], rows: int) -> pa.Array:
    """The inverse of flags(): the list of each row's names, NULL for a row without any."""
    names: dict[int, list[str]] = {}
    for name, those in flagged.items():
        for place in np.flatnonzero(those).tolist():
            names.setdefault(place, []).append(name)
    return _sparse(names, rows, TEXTS)


def _sparse(values: Mapping[int, Any], rows: int, kind: pa.DataType) -> pa.Array:
    # The children of pa.nulls() have long buffers, which every slice of it takes along when it is packed.
    return pa.array([values.get(row) for row in range(rows)] if values else [None] * rows, kind)
