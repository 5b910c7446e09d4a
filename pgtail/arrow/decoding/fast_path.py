"""The fast path of `changes`: runs of ordinary rows from bytes to Arrow buffers, by the scanner.

decode.py adds the rows that the scanner declines, one by one, with the same columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import pyarrow as pa

from pgtail.arrow.decoding.batches import Table, TableColumns, TransactionColumns, with_all_columns
from pgtail.arrow.schemas import CHANGES, SNAPSHOT, WITH_CONTEXT
from pgtail.changes.assembler import Assembler
from pgtail.changes.events import Transaction
from pgtail.changes.filters import Filter
from pgtail.changes.relations import Relation
from pgtail.native import Scanner, compiled
from pgtail.native.plan import ROW_OPS
from pgtail.pgoutput.frames import COPY_DATA

_OPS: Final = pa.array(ROW_OPS)
_NUMBERS: Final = ("xid", "seq", "position", "commit_ts", "bytes", "ordinal")
"""Columns that the scanner writes as numbers, as wide as those of Arrow."""


class ColumnScanner(Scanner, Protocol):
    """The scanner that writes Arrow buffers (native/_columns.pxi)."""

    ordinal: int
    """The number of the last row in this segment's part of its transaction."""
    buffered: int
    """How many rows are in the buffers."""
    full: bool
    """Whether the buffers are large enough for take_buffers()."""

    def enter_at(self, transaction: Transaction, ordinal: int, alone: bool) -> None:
        """The next run starts inside this transaction; if `alone`, it does not continue after the Commit."""

    def take_buffers(self) -> dict[str, bytes]:
        """The buffers by name; removes all rows."""


class ScannedRows:
    """The rows that a scanner wrote: `rows` of them are in the buffers.

    `scanner` is the class of scanners; `current` finds the version of a table now, or None, `table_of` its
    columns, and `shows` says whether it is wanted. The scanner also applies a filter, if there is one. The
    other columns of tables than `of_tables` are NULL.
    """

    def __init__(
        self,
        scanner: Callable[[Callable[[int], object], Filter | None], ColumnScanner],
        current: Callable[[int], Relation | None],
        table_of: Callable[[Relation], Table],
        shows: Callable[[Relation], bool],
        filter_: Filter | None = None,
        of_tables: Sequence[str] = TableColumns._fields,
    ) -> None:
        self.scanner = scanner(self._find, filter_)
        self._of = of_tables
        self._current = current
        self._table_of = table_of
        self._shows = shows
        self._known_tables: list[Table] = []
        self._special: TransactionColumns | None = None

    def _find(self, oid: int) -> tuple[Relation, int, bool] | None:
        """Find a table for the scanner: its Relation, its index in `_known_tables`, and whether it is wanted."""
        relation = self._current(oid)
        if relation is None or not relation.seen:
            return None
        self._known_tables.append(self._table_of(relation))
        return relation, len(self._known_tables) - 1, self._shows(relation)

    @property
    def rows(self) -> int:
        """How many rows are in the buffers."""
        return self.scanner.buffered

    @property
    def full(self) -> bool:
        """Whether it is time for batch()."""
        return self.scanner.full

    def batch(self, schema: pa.Schema = CHANGES) -> pa.RecordBatch:
        """The rows in the buffers, as a record batch of this schema: CHANGES, or WITH_CONTEXT."""
        rows, buffers = self.rows, {name: pa.py_buffer(data) for name, data in self.scanner.take_buffers().items()}
        columns = self._of_tables(_numbers(buffers, "table", pa.int32(), rows))
        columns |= {name: _numbers(buffers, name, CHANGES.field(name).type, rows) for name in _NUMBERS}
        columns |= {name: _strings(buffers, name) for name in ("lsn", "commit_lsn")}
        columns |= {name: _lists(buffers, name, rows) for name in ("old", "new", "unchanged")}
        if self._special is not None:
            for name, value in self._special._asdict().items():
                columns[name] = pa.repeat(pa.scalar(value, WITH_CONTEXT.field(name).type), rows)
        columns["op"] = _OPS.take(_numbers(buffers, "op", pa.uint8(), rows))
        if columns["op"][0].as_py() == SNAPSHOT:  # then all are
            columns["xid"] = pa.nulls(rows, pa.int64())
        columns["lsn_number"] = pa.Array.from_buffers(pa.int64(), rows, [buffers["lsn_valid"], buffers["lsn_number"]])
        return with_all_columns(columns, schema)

    def _of_tables(self, numbers: pa.Array) -> dict[str, pa.Array]:
        """The columns of the tables, each twice: for updates and deletes, and without identity for inserts."""
        pairs = [columns for table in self._known_tables for columns in (table.columns, table.without_identity)]
        return {
            name: pa.array([getattr(columns, name) for columns in pairs], CHANGES.field(name).type).take(numbers)
            for name in self._of
        }


class Runs(ScannedRows):
    """Scans runs of one segment and keeps the assembler in step."""

    def __init__(
        self,
        scanner: Callable[[Callable[[int], object], Filter | None], ColumnScanner],
        assembler: Assembler,
        table_of: Callable[[Relation], Table],
        shows: Callable[[Relation], bool],
    ) -> None:
        super().__init__(scanner, assembler.tables.get, table_of, shows)
        self._assembler = assembler
        self._version = -1

    @property
    def ordinal(self) -> int:
        """The number of the last row in its transaction."""
        return self.scanner.ordinal

    def takes(self, common: TransactionColumns | None) -> bool:
        """Whether rows of this transaction may join those in the buffers: its other columns are kept once for all."""
        special = common
        if common is not None and common.context is None and not (common.origin or common.gid or common.state):
            special = None
        if self.scanner.buffered and special is not self._special:
            return False
        self._special = special
        return True

    def scan(self, buf: bytes, pos: int, ordinal: int) -> int:
        """Scan messages from `pos` on. Returns the offset of the first one that must be decoded."""
        scanner, assembler = self.scanner, self._assembler
        transaction = assembler.started_transaction
        if assembler.relations.changes != self._version:
            self._version = assembler.relations.changes
            scanner.forget()
        if transaction is None:
            scanner.leave()
        else:
            scanner.enter_at(transaction, ordinal, self._special is not None)
        pos = scanner.scan(buf, pos, len(buf), COPY_DATA)
        assembler.resume_after(scanner)
        return pos


def runs(assembler: Assembler, table_of: Callable[[Relation], Table], shows: Callable[[Relation], bool]) -> Runs | None:
    """The fast path through one segment of text in UTF-8, if it is compiled."""
    fast = compiled()
    return None if fast is None else Runs(fast.ColumnScanner, assembler, table_of, shows)


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
