"""Gathers rows of `changes` into Arrow record batches, with the columns that a version of a table contributes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pgtail._orjson import orjson
from pgtail.arrow.schemas import CHANGES, WITH_CONTEXT
from pgtail.changes.relations import Relation, unnamed
from pgtail.outputs.sql.statements import table
from pgtail.pgoutput.cells import UNCHANGED, TupleData
from pgtail.values import Codec, Undecoded

FINGERPRINT_LENGTH: Final = 16
_UTF8: Final[dict[type, Callable[[Any], str | None]]] = {bytes: bytes.decode, type(None): lambda cell: None}


def fingerprint(relation: Relation) -> str:
    """16 hexadecimal digits that identify a version of a table, the same wherever they are computed."""
    columns = [[c.name, c.type_oid, c.typmod, c.type_name, c.key] for c in relation.columns]
    parts = [relation.schema, relation.name, relation.identity, columns]
    if relation.partition is not None:
        parts.append(table(relation.to_alter))
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:FINGERPRINT_LENGTH]


def described(relation: Relation) -> dict[str, Any]:
    """The row of `relations`, without the place where it was seen."""
    return {
        "relation": fingerprint(relation),
        "relid": relation.oid,
        "schema": relation.schema,
        "table": relation.name,
        "identity": relation.identity,
        "columns": [
            {"name": c.name, "type": c.type_name, "type_oid": c.type_oid, "typmod": c.typmod, "key": c.key}
            for c in relation.columns
        ],
        "partition": None if relation.partition is None else table(relation.to_alter),
    }


class Table:
    """One version of a table: its columns' names and codecs, and the values that its rows have in common."""

    def __init__(self, relation: Relation, *, utf8: bool) -> None:
        self._relation = relation
        self._utf8 = utf8
        self._names = [column.name for column in relation.columns]
        self._codecs: list[Codec] = [column.codec for column in relation.columns]
        if relation.seen:
            names = (relation.schema, relation.name)
            print_ = fingerprint(relation)
            self.columns = TableColumns(*names, relation.identity, relation.key or None, print_, relation.oid)
            self.without_identity = TableColumns(*names, None, None, print_, relation.oid)
        else:
            self.columns = self.without_identity = TableColumns(relid=relation.oid)

    def texts(self, cells: TupleData, left_out: list[int], unchanged: list[str], undecoded: list[str]) -> Named:
        """Names and texts of the columns of a row that were sent, without those at the places in `left_out`.

        Adds the names of unchanged and undecoded columns to these lists.
        """
        if self._utf8 and not left_out and len(cells) == len(self._names):
            try:
                return self._names, [_UTF8[cell.__class__](cell) for cell in cells]
            except (KeyError, UnicodeDecodeError):
                pass  # not all of it is text in UTF-8
        self._widen(len(cells))
        names: list[str] = []
        texts: list[str | None] = []
        for index, cell in enumerate(cells):
            name = self._names[index]
            if index in left_out:
                continue
            if cell is UNCHANGED:
                unchanged.append(name)
                continue
            names.append(name)
            texts.append(None if cell is None else self._text(index, cell, undecoded))
        return names, texts

    def _text(self, index: int, cell: bytes, undecoded: list[str]) -> str:
        codec = self._codecs[index]
        try:
            return codec.text(cell)
        except Undecoded as found:
            if self._names[index] not in undecoded:
                undecoded.append(self._names[index])
            return found.text

    def _widen(self, count: int) -> None:
        """Name the columns beyond those of the Relation ?n, up to `count` columns."""
        for index in range(len(self._names), count):
            self._names.append(unnamed(index))
            self._codecs.append(self._relation.beyond)


MOST_ROWS: Final = 64 * 1024
MOST_BYTES: Final = 16 << 20

Named: TypeAlias = tuple[Sequence[str], Sequence[str | None]]
"""Names of columns and their values."""


class TransactionColumns(NamedTuple):
    """The columns that a transaction's rows have in common."""

    xid: int | None = None
    position: int | None = None
    commit_lsn: str | None = None
    commit_ts: int | None = None
    prepare_lsn: str | None = None
    prepare_ts: int | None = None
    origin: str | None = None
    gid: str | None = None
    state: str | None = None
    context: str | None = None


class TableColumns(NamedTuple):
    """The columns that rows of a version of a table have in common; identity and key only for updates and deletes."""

    schema: str | None = None
    table: str | None = None
    identity: str | None = None
    key: list[str] | None = None
    relation: str | None = None
    relid: int | None = None


class RareColumns(NamedTuple):
    """The columns that few rows have."""

    unchanged: list[str] | None = None
    undecoded: list[str] | None = None
    cascade: bool | None = None
    restart_identity: bool | None = None
    prefix: str | None = None
    content: bytes | None = None
    transactional: bool | None = None


NO_TABLE: Final = TableColumns()
NOTHING_RARE: Final = RareColumns()
_NAMES: Final = [
    *("op", "seq", "lsn", "lsn_number", "bytes", "ordinal"),
    *(name for kind in (TransactionColumns, TableColumns, RareColumns) for name in kind._fields),
]
"""The columns of a row's values, in their order."""


class _Maps:
    """A column of maps: names and values of all rows, and the offset of each row's first one (None: no map)."""

    def __init__(self) -> None:
        self._offsets: list[int | None] = []
        self._names: list[str] = []
        self._values: list[str | None] = []

    def add_map(self, named: Named | None) -> None:
        self._offsets.append(None if named is None else len(self._names))
        if named is not None:
            self._names += named[0]
            self._values += named[1]

    def array(self) -> pa.MapArray:
        offsets = pa.array([*self._offsets, len(self._names)], pa.int32())
        return pa.MapArray.from_arrays(offsets, pa.array(self._names, pa.string()), pa.array(self._values, pa.string()))


class Batch:
    """Rows gathered so far, about `size` bytes of the stream."""

    def __init__(self) -> None:
        self.size = 0
        self._rows: list[tuple[object, ...]] = []
        self._old, self._new = _Maps(), _Maps()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def full(self) -> bool:
        return len(self._rows) >= MOST_ROWS or self.size >= MOST_BYTES

    def add_row(self, values: tuple[object, ...], size: int, old: Named | None, new: Named | None) -> None:
        """Add a row of `size` bytes: first its own values, then those of its transaction and table, then rare ones."""
        self._rows.append(values)
        self._old.add_map(old)
        self._new.add_map(new)
        self.size += size

    def rows(self, schema: pa.Schema, left_out: Sequence[str]) -> pa.RecordBatch:
        """The rows as a record batch of this schema: CHANGES, or WITH_CONTEXT. The columns in `left_out` are NULL."""
        columns = dict(zip(_NAMES, zip(*self._rows, strict=True), strict=True))
        arrays = {"old": self._old.array(), "new": self._new.array()}
        arrays |= {
            name: pa.array(column, WITH_CONTEXT.field(name).type)
            for name, column in columns.items()
            if name not in left_out
        }
        return with_all_columns(arrays, schema)


def with_all_columns(columns: dict[str, pa.Array], schema: pa.Schema = CHANGES) -> pa.RecordBatch:
    """Rows of `changes` with these columns, of this schema; `commit_date` is computed, others are NULL."""
    time = pc.coalesce(columns["commit_ts"], columns.get("prepare_ts", columns["commit_ts"]))
    # Without its zone, which would be looked up.
    columns["commit_date"] = time.cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.date32())
    arrays = [columns[field.name] if field.name in columns else pa.nulls(len(time), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
