"""Rows of `changes` of one version of a table -> its typed rows, a column for each of the table's; no pyspark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pgtail.spark.typed.arrays import one_chunk, texts_by_name
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
    found = [*arrays, *[one_chunk(rows[field.name[1:]]) for field in META[:-1]], rescued]
    if columns:
        sent, lost = typed(before, columns, undecoded)
        fields = [pa.field(c.stored, c.kind) for c in columns]
        found += [pa.StructArray.from_arrays(sent, fields=fields, mask=one_chunk(rows["old"]).is_null()), lost]
    return pa.Table.from_arrays(found, names=schema_of(columns, META, old=True).names)
