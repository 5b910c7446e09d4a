"""Rows of `changes` gathered and made into an Arrow record batch; knows no message and no relation.

What all rows of a table or of a transaction have in common is kept once, and spread over the rows by Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from pgtail.pgoutput.scalars import lsn_text
from pgtail.spark.schemas import CHANGES

MOST_ROWS: Final = 64 * 1024
MOST_BYTES: Final = 16 << 20


class TransactionColumns(NamedTuple):
    """What a transaction's rows have in common."""

    xid: int | None = None
    position: int | None = None
    commit_lsn: str | None = None
    commit_ts: int | None = None
    prepare_lsn: str | None = None
    prepare_ts: int | None = None
    origin: str | None = None
    gid: str | None = None
    state: str | None = None
    commit_date: int | None = None


class TableColumns(NamedTuple):
    """What the rows of one version of a table have in common, for inserts and truncates without identity and key."""

    schema: str | None = None
    table: str | None = None
    identity: str | None = None
    key: list[str] | None = None
    relation: str | None = None
    relid: int | None = None


class RowColumns(NamedTuple):
    """What each row has of its own."""

    op: str
    seq: int | None
    lsn_number: int | None
    bytes: int
    ordinal: int


class RareColumns(NamedTuple):
    """What few rows have."""

    unchanged: list[str] | None = None
    undecoded: list[str] | None = None
    cascade: bool | None = None
    restart_identity: bool | None = None
    prefix: str | None = None
    content: bytes | None = None
    transactional: bool | None = None


class Maps:
    """A column of maps: names and values of all rows, and the offset of each row's first one (None: no map)."""

    def __init__(self) -> None:
        self.offsets: list[int | None] = []
        self.names: list[str] = []
        self.values: list[str | None] = []

    def add(self, names: Sequence[str], values: Sequence[str | None]) -> None:
        """The next row's map."""
        self.offsets.append(len(self.names))
        self.names += names
        self.values += values

    def array(self) -> pa.MapArray:
        offsets = pa.array([*self.offsets, len(self.names)], pa.int32())
        return pa.MapArray.from_arrays(offsets, pa.array(self.names, pa.string()), pa.array(self.values, pa.string()))


class Common:
    """Columns that rows share: each distinct value once, and for each row which."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        self._values: list[Any] = []
        self._last: object = None
        self._indices: list[int] = []

    def add(self, value: object) -> None:
        """The next row's; rows that follow each other often have the very same object."""
        if value is not self._last:
            self._last = value
            self._values.append(value)
        self._indices.append(len(self._values) - 1)

    def arrays(self) -> dict[str, pa.Array]:
        indices = pa.array(self._indices, pa.int32())
        return {
            name: pa.array(column, CHANGES.field(name).type).take(indices)
            for name, column in _columns(self._kind, self._values).items()
        }


class Batch:
    """Rows gathered so far, about `size` bytes of the stream; each is added with add()."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.size = 0
        self.own: list[RowColumns] = []
        self.old, self.new = Maps(), Maps()
        self._transactions, self._tables = Common(TransactionColumns), Common(TableColumns)
        self._rare: dict[int, RareColumns] = {}

    @property
    def full(self) -> bool:
        """Whether it is time to take it."""
        return len(self.own) >= MOST_ROWS or self.size >= MOST_BYTES

    def add(
        self, own: RowColumns, transaction: TransactionColumns, table: TableColumns, rare: RareColumns | None = None
    ) -> None:
        """A row; its maps are added to `old` and `new` by the caller, or None to their offsets."""
        if rare is not None:
            self._rare[len(self.own)] = rare
        self.own.append(own)
        self._transactions.add(transaction)
        self._tables.add(table)
        self.size += own.bytes

    def take(self) -> pa.RecordBatch:
        """The rows as a record batch; none are left."""
        rows = len(self.own)
        found = {"old": self.old.array(), "new": self.new.array()}
        found |= self._transactions.arrays() | self._tables.arrays()
        for name, column in _columns(RowColumns, self.own).items():
            found[name] = pa.array(column, CHANGES.field(name).type)
        numbers = found["lsn_number"].to_pylist()
        found["lsn"] = pa.array([None if lsn is None else lsn_text(lsn) for lsn in numbers], pa.string())
        rare = [self._rare.get(row, _NOTHING) for row in range(rows)] if self._rare else []
        for name, column in _columns(RareColumns, rare).items():
            kind = CHANGES.field(name).type
            found[name] = pa.array(column, kind) if rare else pa.nulls(rows, kind)
        self._clear()
        return pa.RecordBatch.from_arrays([found[name] for name in CHANGES.names], schema=CHANGES)


_NOTHING: Final = RareColumns()


def _columns(kind: type[Any], rows: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """The columns of rows that are NamedTuples of one kind."""
    names = kind._fields
    return dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))
