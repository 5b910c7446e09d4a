"""The short way of `changes`: runs of ordinary rows from bytes to Arrow buffers, by pgtail.native._rows.

What it does not take is taken by columns.py, row by row, and gives the same columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import pyarrow as pa

from pgtail.changes.assembler import Assembler
from pgtail.changes.events import Transaction
from pgtail.changes.relations import Relation
from pgtail.native import compiled
from pgtail.pgoutput.frames import COPY_DATA
from pgtail.spark.decoding.batches import TableColumns, TransactionColumns
from pgtail.spark.decoding.tables import Table, Tables
from pgtail.spark.schemas import CHANGES

_OPS: Final = pa.array(["insert", "update", "delete"])
_NUMBERS: Final = {
    "xid": pa.int64(),
    "seq": pa.int64(),
    "position": pa.int64(),
    "bytes": pa.int64(),
    "ordinal": pa.int64(),
}
_OF_TRANSACTION: Final = TransactionColumns._fields


class Buffers(Protocol):
    """pgtail.native._rows.Columns."""

    inside: bool
    began: bool
    seq: int
    ordinal: int
    rows: int
    full: bool

    @property
    def transaction(self) -> tuple[int, int, int]: ...
    def forget(self) -> None: ...
    def enter(self, xid: int, commit_lsn: int, commit_ts: int, seq: int, ordinal: int, alone: bool) -> None: ...
    def leave(self) -> None: ...
    def run(self, buf: bytes, pos: int, end: int, framing: int) -> int: ...
    def take(self) -> dict[str, bytes]: ...


class Runs:
    """Takes runs for one segment and keeps the assembler in step; `rows` are waiting to be taken."""

    def __init__(self, buffers: Buffers, tables: Tables) -> None:
        self._buffers = buffers
        self._tables = tables
        self._found: list[Table] = []
        self._version = -1
        self._special: TransactionColumns | None = None
        self.ordinal = 0

    @property
    def rows(self) -> int:
        """How many rows wait."""
        return self._buffers.rows

    @property
    def full(self) -> bool:
        """Whether it is time for batch()."""
        return self._buffers.full

    def described(self, relation: Relation, *, shown: bool) -> tuple[int, list[str], list[bool], bool]:
        """What the buffers need to know of a table."""
        self._found.append(self._tables.of(relation))
        return (
            len(self._found) - 1,
            [column.name for column in relation.columns],
            [column.key for column in relation.columns],
            shown,
        )

    def takes(self, common: TransactionColumns | None) -> bool:
        """Whether rows of this transaction may join those that wait: what it has besides is kept once for all."""
        special = common if common is not None and (common.origin or common.gid or common.state) else None
        if self._buffers.rows and special is not self._special:
            return False
        self._special = special
        return True

    def run(self, assembler: Assembler, buf: bytes, pos: int, ordinal: int) -> int:
        """Take messages from `pos` on; returns where the first one starts that is to be decoded."""
        buffers, transaction = self._buffers, assembler.whole
        if assembler.relations.changes != self._version:
            self._version = assembler.relations.changes
            buffers.forget()
        if transaction is None:
            buffers.leave()
        else:
            place, time = transaction.lsn or 0, transaction.time or 0
            alone = self._special is not None
            buffers.enter(transaction.xid or 0, place, time, transaction.changes, ordinal, alone)
        pos = buffers.run(buf, pos, len(buf), COPY_DATA)
        if buffers.inside and (buffers.began or transaction is None):
            xid, commit_lsn, commit_ts = buffers.transaction
            transaction = Transaction(xid, commit_lsn=commit_lsn, commit_ts=commit_ts)
        if buffers.inside and transaction is not None:
            transaction.changes = buffers.seq
        assembler.resume_inside(transaction if buffers.inside else None)
        self.ordinal = buffers.ordinal
        return pos

    def batch(self) -> pa.RecordBatch:
        """The rows that wait, as a record batch."""
        rows, found = self._buffers.rows, {name: pa.py_buffer(data) for name, data in self._buffers.take().items()}
        columns = self._of_tables(_numbers(found, "table", pa.int32(), rows))
        columns |= self._of_transactions(found, rows)
        columns |= {name: _numbers(found, name, kind, rows) for name, kind in _NUMBERS.items() if name not in columns}
        columns["op"] = _OPS.take(_numbers(found, "op", pa.uint8(), rows))
        columns["lsn_number"] = pa.Array.from_buffers(pa.int64(), rows, [found["lsn_valid"], found["lsn_number"]])
        columns["lsn"] = _strings(found, "lsn", rows, found["lsn_valid"])
        columns["old"], columns["new"] = _maps(found, "old", rows), _maps(found, "new", rows)
        columns["unchanged"] = _names(found, rows)
        for name in CHANGES.names:
            if name not in columns:
                columns[name] = pa.nulls(rows, CHANGES.field(name).type)
        return pa.RecordBatch.from_arrays([columns[name] for name in CHANGES.names], schema=CHANGES)

    def _of_tables(self, numbers: pa.Array) -> dict[str, pa.Array]:
        """Each table stands there twice: for its updates and deletes, and without identity for its inserts."""
        pairs = [columns for table in self._found for columns in (table.columns, table.without_identity)]
        return {
            name: pa.array([getattr(columns, name) for columns in pairs], CHANGES.field(name).type).take(numbers)
            for name in TableColumns._fields
        }

    def _of_transactions(self, found: dict[str, pa.Buffer], rows: int) -> dict[str, pa.Array]:
        special = self._special
        if special is not None:
            return {
                name: pa.repeat(pa.scalar(getattr(special, name), CHANGES.field(name).type), rows)
                for name in _OF_TRANSACTION
            }
        time = CHANGES.field("commit_ts").type
        return {
            "commit_lsn": _strings(found, "commit", rows, None),
            "commit_ts": _numbers(found, "time", time, rows),
            "commit_date": _numbers(found, "date", pa.date32(), rows),
        }


def runs(assembler: Assembler, tables: Tables, encoding: str, shows: Callable[[Relation], bool]) -> Runs | None:
    """The short way through one segment where there is one: compiled, for text in UTF-8."""
    fast = compiled()
    if fast is None or encoding != "utf-8":
        return None

    def find(oid: int) -> tuple[int, list[str], list[bool], bool] | None:
        relation = assembler.tables.get(oid)
        return found.described(relation, shown=shows(relation)) if relation is not None and relation.seen else None

    found = Runs(fast.Columns(find), tables)
    return found


def _numbers(found: dict[str, pa.Buffer], name: str, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, found[name]])


def _strings(found: dict[str, pa.Buffer], name: str, rows: int, valid: pa.Buffer | None) -> pa.Array:
    return pa.Array.from_buffers(pa.string(), rows, [valid, found[f"{name}_ends"], found[f"{name}_text"]])


def _maps(found: dict[str, pa.Buffer], name: str, rows: int) -> pa.Array:
    count = found[f"{name}_name_ends"].size // 4 - 1
    names = _strings(found, f"{name}_name", count, None)
    values = _strings(found, f"{name}_value", count, found[f"{name}_value_valid"])
    kind = CHANGES.field(name).type
    entries = pa.StructArray.from_arrays([names, values], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, rows, [found[f"{name}_valid"], found[f"{name}_ends"]], children=[entries])


def _names(found: dict[str, pa.Buffer], rows: int) -> pa.Array:
    count = found["unchanged_name_ends"].size // 4 - 1
    names = _strings(found, "unchanged_name", count, None)
    kind = CHANGES.field("unchanged").type
    return pa.Array.from_buffers(kind, rows, [found["unchanged_valid"], found["unchanged_ends"]], children=[names])
