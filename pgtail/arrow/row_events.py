"""The rows of a table as events, in which outputs and filters take them: those of a snapshot at that moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from pgtail.arrow.table_at import TableAt
from pgtail.arrow.typed.arrays import flags, one_chunk, texts_by_name
from pgtail.arrow.typed.casts import TableColumn, retyped, texts_of
from pgtail.arrow.typed.columns import columns_of
from pgtail.changes.events import RowChange, Transaction
from pgtail.changes.filters import Filter
from pgtail.changes.relations import Column, Relation
from pgtail.pgoutput.cells import UNCHANGED
from pgtail.values import Types
from pgtail.values.oids import OIDS

VALIDITY: Final = {"_valid_from": "timestamptz", "_xid": "xid", "_valid_to": "timestamptz", "_valid_to_xid": "xid"}
"""The columns of a history that come before those of the table, and their types."""
_ROWS: Final = 4096
"""Rows that are converted at a time."""


def relation_of(table: TableAt) -> Relation:
    """The table with the columns that its rows have: its last version, for a history with those of all versions."""
    last = table.relations[-1]
    if "_valid_from" not in table.rows.column_names:
        return last
    types, named = Types(encoding=table.encoding), {c.name: c for one in table.relations for c in one.columns}
    own = [Column(name, OIDS[kind], -1, False, kind, types.codec(OIDS[kind])) for name, kind in VALIDITY.items()]
    return replace(last, columns=(*own, *(named[column.name] for column in table.columns)))


def snapshot_of(table: TableAt) -> Transaction:
    """The transaction of row_changes()."""
    return Transaction(None, table.lsn, table.time, snapshot=True, table=relation_of(table))


def row_changes(table: TableAt, transaction: Transaction) -> Iterator[RowChange]:
    """An event for each row; what is not known of it is UNCHANGED."""
    relation = transaction.table
    assert relation is not None
    own = [name for name in VALIDITY if name in table.rows.column_names]
    names = [column.name for column in table.columns]
    having = {
        name: pa.array([one.relation for one in table.versions if name in dict(one.columns)], pa.string())
        for name in names
    }
    types: dict[str, dict[str, TableColumn]] = {name: {} for name in names}
    for version in table.versions:
        for column in columns_of([version]):
            if column.name in types:
                types[column.name][version.relation] = column
    for start in range(0, len(table.rows), _ROWS):
        rows = table.rows.slice(start, _ROWS).combine_chunks()
        rescued = texts_by_name(one_chunk(rows["_rescued"]), names)
        columns = [texts_of(one_chunk(rows[name])).to_pylist() for name in own]
        for column, texts in zip(table.columns, rescued, strict=True):
            known = pc.coalesce(_texts(rows, column, types[column.name]), texts)
            unknown = pa.array(flags(one_chunk(rows["_unknown"]), column.name))
            # A row of a history has no value where its version has no such column.
            lacks = pc.invert(pc.is_in(rows["_relation"], having[column.name]))
            unknown = pc.or_(unknown, pc.and_(lacks, pc.is_null(known))).to_pylist()
            columns.append([UNCHANGED if lost else text for lost, text in zip(unknown, known.to_pylist(), strict=True)])
        for number, row in enumerate(zip(*columns, strict=True), start + 1):
            cells = [cell.encode(table.encoding) if isinstance(cell, str) else cell for cell in row]
            yield RowChange("snapshot", transaction, number, None, relation, "", None, tuple(cells))


def _texts(rows: pa.Table, column: TableColumn, versions: Mapping[str, TableColumn]) -> pa.Array:
    """The text of a column's values as each row's version has them: numeric(10,2) has two digits after the point."""
    values = one_chunk(rows[column.stored])
    texts = texts_of(values, column.delimiter)
    for relation, own in versions.items():
        if own.kind != values.type:
            of_version = pc.equal(one_chunk(rows["_relation"]), relation)
            some = pc.if_else(of_version, values, pa.scalar(None, values.type))
            some = retyped(some, own.kind, (column.delimiter, own.delimiter))
            texts = pc.coalesce(texts_of(some, own.delimiter), texts)
    return texts


def matching(table: TableAt, filter_: Filter) -> pa.Table:
    """The rows that pass a filter."""
    return table.rows.filter(
        pa.array([filter_.passes(row) for row in row_changes(table, snapshot_of(table))], pa.bool_())
    )
