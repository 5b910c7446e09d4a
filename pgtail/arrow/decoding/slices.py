"""Rows of `changes` from slices of batches: compiled code writes them to the buffers of Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pgtail.arrow.decoding.batches import Table, TableColumns, TransactionColumns, with_all_columns
from pgtail.arrow.schemas import CHANGES, WITH_CONTEXT
from pgtail.changes.relations import Relation
from pgtail.native.batch import Slice
from pgtail.native.plan import ROW_OPS

_OPS: Final = pa.array(ROW_OPS)
_NUMBERS: Final = ("xid", "seq", "position", "commit_ts", "bytes", "ordinal")
"""Columns that the builder writes as numbers, as wide as those of Arrow."""
_ORDINARY: Final = TransactionColumns()


class ColumnBuilder(Protocol):
    """Writes Arrow buffers (native/rows/columns.pyx)."""

    rows: int
    """How many rows are in the buffers."""
    full: bool
    """Whether the buffers are large enough for take_buffers()."""
    relations: list[Relation]
    """The versions of tables of these rows, by the numbers in the buffer "table"."""
    ordinal: int
    size: int
    """The number of the last row in this segment's part of its transaction, and the bytes of its message."""

    def enter(self, rows: Slice, transaction: Any, special: int, ordinal: int) -> None:
        """add_rows() adds the rows of this slice next. `transaction` is the one that continues, after the row with this
        ordinal; `special` is for its rows in the buffer of this name, which is 0 for those of others."""

    def add_rows(self) -> int | None:
        """Add the rest of the slice. Stops at a row that is not ordinary and returns its place: the caller adds it and
        calls again. None at the end."""

    def take_buffers(self) -> dict[str, bytes]:
        """The buffers by name; removes all rows."""


class SliceRows:
    """The rows in the buffers of a builder, which are at most a batch.

    `table_of` returns the columns of a version of a table. The columns in `left_out` are NULL.
    """

    def __init__(self, builder: ColumnBuilder, table_of: Callable[[Relation], Table], left_out: Sequence[str]) -> None:
        self.builder = builder
        self._table_of = table_of
        self._numbers = [name for name in _NUMBERS if name not in left_out]
        self._of_tables = [name for name in TableColumns._fields if name not in left_out]
        self._special = [_ORDINARY]

    def __len__(self) -> int:
        return self.builder.rows

    def number_of(self, common: TransactionColumns) -> int:
        """The number of a transaction for the builder: 0 if its rows have no columns but those of any transaction."""
        if not self:
            self._special = [_ORDINARY]
        if common.xid is not None and set(common[4:]) == {None}:
            return 0
        if self._special[-1] is not common:
            self._special.append(common)
        return len(self._special) - 1

    def take_rows(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows as a record batch of this schema, CHANGES or WITH_CONTEXT; removes them."""
        rows, relations = len(self), self.builder.relations
        buffers = {name: pa.py_buffer(data) for name, data in self.builder.take_buffers().items()}
        columns = {name: _numbers(buffers, name, CHANGES.field(name).type, rows) for name in self._numbers}
        columns |= {name: _strings(buffers, name) for name in ("lsn", "commit_lsn")}
        columns |= {name: _lists(buffers, name, rows) for name in ("old", "new", "unchanged")}
        columns["op"] = _OPS.take(_numbers(buffers, "op", pa.uint8(), rows))
        columns["lsn_number"] = pa.Array.from_buffers(pa.int64(), rows, [buffers["lsn_valid"], buffers["lsn_number"]])
        # Each table twice: for updates and deletes, and without identity for inserts.
        pairs = [one for table in map(self._table_of, relations) for one in (table.columns, table.without_identity)]
        columns |= _taken(pairs, self._of_tables, _numbers(buffers, "table", pa.int32(), rows))
        if len(self._special) > 1:
            numbers = _numbers(buffers, "special", pa.int32(), rows)
            is_special = pc.greater(numbers, 0)
            for name, values in _taken(self._special, _ORDINARY._fields, numbers).items():
                columns[name] = pc.if_else(is_special, values, columns[name]) if name in columns else values
        return with_all_columns(columns, schema)


def _taken(values: Sequence[Any], names: Sequence[str], places: pa.Array) -> dict[str, pa.Array]:
    """The columns with these names of the values at these places."""
    return {
        name: pa.array([getattr(value, name) for value in values], WITH_CONTEXT.field(name).type).take(places)
        for name in names
    }


def _numbers(buffers: dict[str, pa.Buffer], name: str, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, buffers[name]])


def _strings(buffers: dict[str, pa.Buffer], name: str) -> pa.Array:
    ends = buffers[f"{name}_ends"]
    return pa.Array.from_buffers(
        pa.string(), ends.size // 4 - 1, [buffers.get(f"{name}_valid"), ends, buffers[f"{name}_text"]]
    )


def _lists(buffers: dict[str, pa.Buffer], name: str, rows: int) -> pa.Array:
    """Lists of strings, or maps."""
    kind, items = CHANGES.field(name).type, _strings(buffers, f"{name}_name")
    if pa.types.is_map(kind):
        values = _strings(buffers, f"{name}_value")
        items = pa.StructArray.from_arrays([items, values], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, rows, [buffers[f"{name}_valid"], buffers[f"{name}_ends"]], children=[items])
