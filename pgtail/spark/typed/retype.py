"""Rows of a typed table as rows of other types: as if their columns had had these from the beginning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from pgtail.spark.typed.arrow_types import arrow_type, delimiter
from pgtail.spark.typed.casts import RESCUED, TableColumn, cast, sparse
from pgtail.spark.typed.columns import TRUE_NAME
from pgtail.spark.typed.texts import narrow, widen
from pgtail.spark.typed.versions import Version


def renamed(rows: pa.Table, columns: Sequence[TableColumn]) -> pa.Table:
    """A table as it is stored, with PostgreSQL's names of these columns."""
    names = {column.stored: column.name for column in columns}
    return rows.rename_columns([names.get(name, name) for name in rows.column_names])


def retyped(rows: pa.Table, version: Version, target: Sequence[TableColumn]) -> pa.Table:
    """Rows of a version (with the stored names of `target`) as the types of `target` have them."""
    declared = {column.name: column.declared for column in version.columns}
    own = [column for column in target if column.name in declared and column.stored in rows.column_names]
    undecoded = rows["_undecoded"].to_pylist()
    found = rows
    for rescued, struct in (("_rescued", None), ("_old_rescued", "_old")):
        if rescued not in rows.column_names:
            continue
        lost: list[dict[str, str]] = [dict(one or ()) for one in rows[rescued].to_pylist()]
        if struct is None:
            values = {column.stored: one_chunk(rows[column.stored]) for column in own}
        else:
            whole = one_chunk(rows[struct])
            values = {column.stored: whole.field(column.stored) for column in own}
        for column in own:
            one = declared[column.name]
            array = narrow(values[column.stored], arrow_type(one), delimiter(one))
            array = widen(array, column.kind, delimiter(one))
            values[column.stored] = _found_again(array, column, lost, undecoded)
        if struct is None:
            for name, array in values.items():
                field = pa.field(name, array.type, metadata={TRUE_NAME: _true(own, name)})
                found = found.set_column(found.column_names.index(name), field, array)
        else:
            fields = [pa.field(name, array.type) for name, array in values.items()]
            mask = whole.is_null()
            array = pa.StructArray.from_arrays(list(values.values()), fields=fields, mask=mask)
            found = found.set_column(found.column_names.index(struct), struct, array)
        left = {number: list(one.items()) for number, one in enumerate(lost) if one}
        place = found.column_names.index(rescued)
        found = found.set_column(place, rescued, sparse(left, len(rows), RESCUED))
    return found


def _true(columns: Sequence[TableColumn], stored: str) -> str:
    return next(column.name for column in columns if column.stored == stored)


def _found_again(
    array: pa.Array, column: TableColumn, lost: Sequence[dict[str, str]], undecoded: Sequence[Sequence[str] | None]
) -> pa.Array:
    """With the values that had no place in the type before, and have one in this."""
    again: dict[int, Any] = {}
    for number, one in enumerate(lost):
        if column.name in one and column.name not in (undecoded[number] or ()):
            value = cast(pa.array([one[column.name]]), column.kind, column.delimiter)
            if value.null_count == 0:
                again[number] = value
                del one[column.name]
    return replaced(array, again)


def replaced(array: pa.Array, values: Mapping[int, pa.Array]) -> pa.Array:
    """An array with a few other elements."""
    if not values:
        return array
    pool = pa.concat_arrays([array, *values.values()])
    places = list(range(len(array)))
    for behind, number in enumerate(values):
        places[number] = len(array) + behind
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
