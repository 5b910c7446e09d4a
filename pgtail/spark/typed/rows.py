"""Rows of `changes` of one version of a table -> its typed rows, a column for each of the table's; no pyspark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgtail.spark.typed.arrays import one_chunk
from pgtail.spark.typed.arrow_types import STRING
from pgtail.spark.typed.casts import TableColumn, typed
from pgtail.spark.typed.columns import META, schema_of


def typed_rows(rows: pa.Table, columns: Sequence[TableColumn]) -> pa.Table:
    """Inserts, updates, deletes and truncates as rows of a table with these columns.

    The columns have the new row, of a delete what was sent of the old one; `_old` what was sent of the old row. A
    column that was not sent is NULL. `_rescued` and `_old_rescued` have the text of values that their type does
    not have, by the columns' names in PostgreSQL.
    """
    rows = rows.combine_chunks()
    names = [column.name for column in columns]
    before = texts_by_name(one_chunk(rows["old"]), names)
    after = texts_by_name(one_chunk(rows["new"]), names)
    undecoded = one_chunk(rows["undecoded"])
    deleted = pc.equal(one_chunk(rows["op"]), "delete")
    if pc.any(deleted).as_py():
        after = [pc.if_else(deleted, old, new) for old, new in zip(before, after, strict=True)]
    arrays, rescued = typed(after, columns, undecoded)
    if not columns:
        rescued = pa.nulls(len(rows), rescued.type)
    found = [*arrays, *[one_chunk(rows[field.name[1:]]) for field in META[:-1]], rescued]
    if columns:
        sent, lost = typed(before, columns, undecoded)
        fields = [pa.field(c.stored, c.kind) for c in columns]
        found += [pa.StructArray.from_arrays(sent, fields=fields, mask=one_chunk(rows["old"]).is_null()), lost]
    return pa.Table.from_arrays(found, names=schema_of(columns, META, old=True).names)


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
    column = pc.index_in(keys, pa.array(names, STRING)).fill_null(width).to_numpy()
    row = np.repeat(np.arange(rows), np.diff(offsets))
    entries = np.full(rows * (width + 1), -1)
    entries[row * (width + 1) + column] = np.arange(last - first)
    grid = entries.reshape(rows, width + 1)
    return [items.take(pa.array(grid[:, place], mask=grid[:, place] < 0)) for place in range(width)]


def _repeated(keys: pa.Array, names: Sequence[str]) -> bool:
    """Whether the keys are these names, again and again: those of rows that were sent whole."""
    once = "".join(names).encode()
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    lengths = np.array([len(name.encode()) for name in names])
    if int(offsets[-1] - offsets[0]) != len(once) * (len(keys) // len(names)):
        return False
    if not (np.diff(offsets).reshape(-1, len(names)) == lengths).all():
        return False
    text = np.frombuffer(keys.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].reshape(-1, len(once))
    return bool((text == np.frombuffer(once, np.uint8)).all())
