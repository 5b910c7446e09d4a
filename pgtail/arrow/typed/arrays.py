"""Columns in which rows name other columns (maps of texts, lists of names), split by these names and joined again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgtail.arrow.typed.arrow_types import RESCUED, STRING, TEXTS

Flags: TypeAlias = npt.NDArray[np.bool_]


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """A column of a table as one array; copies only if there are several chunks."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def without(texts: pa.Array, rows: Flags | pa.Array) -> pa.Array:
    """The texts with NULL in these rows."""
    return pc.if_else(rows, pa.scalar(None, STRING), texts) if pc.any(rows).as_py() else texts


def texts_by_name(maps: pa.MapArray, names: Sequence[str]) -> list[pa.Array]:
    """For each name its text in each row's map."""
    rows, width = len(maps), len(names)
    offsets = maps.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    if first == last:
        return [pa.nulls(rows, STRING)] * width
    keys, items = maps.keys.slice(first, last - first), maps.items.slice(first, last - first)
    if last - first == rows * width and _repeated(keys, names):
        return [items.take(pa.array(np.arange(place, last - first, width))) for place in range(width)]
    column = pc.index_in(keys, pa.array(names, STRING)).fill_null(width).to_numpy().astype(np.uint16)
    row = np.repeat(np.arange(rows), np.diff(offsets))
    order = np.argsort(column, kind="stable")
    ends = np.searchsorted(column[order], np.arange(width), side="right")
    columns = []
    for entries in np.split(order, ends)[:width]:
        entry_of = np.full(rows, -1)
        entry_of[row[entries]] = entries
        columns.append(items.take(pa.array(entry_of, mask=entry_of < 0)) if len(entries) else pa.nulls(rows, STRING))
    return columns


def _repeated(keys: pa.Array, names: Sequence[str]) -> bool:
    """Whether the keys are these names in each row: all rows were sent whole."""
    once = "".join(names).encode()
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    lengths = np.array([len(name.encode()) for name in names])
    if int(offsets[-1] - offsets[0]) != len(once) * (len(keys) // len(names)):
        return False
    if not (np.diff(offsets).reshape(-1, len(names)) == lengths).all():
        return False
    text = np.frombuffer(keys.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].reshape(-1, len(once))
    return bool((text == np.frombuffer(once, np.uint8)).all())


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
