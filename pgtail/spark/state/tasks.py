"""What tasks do for a state: split files into buckets, then fold the rows and changes of some buckets."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pgtail.spark.lake.decoding import packed, unpacked
from pgtail.spark.lake.parquet import DataFile, rows_in, write_file
from pgtail.spark.segments.ranges import Place, Range
from pgtail.spark.state.fold import COME, GONE, HALF, WHOLE, Cells, Events, Folded, fold, identities
from pgtail.spark.typed.arrays import one_chunk
from pgtail.spark.typed.casts import TableColumn
from pgtail.spark.typed.columns import ROW, VALIDITY, columns_of, own_columns, schema_of
from pgtail.spark.typed.described import as_stored, as_version, described
from pgtail.spark.typed.texts import texts_of
from pgtail.spark.typed.versions import Version
from pgtail.storage import Location

PART: Final = "relid long, bucket int, link int, kind string, data binary"
"""A part of a table's rows or changes, of one bucket; `link` is another bucket that has to be folded with it."""
_NO_BUCKET: Final = -1
CLOSED: Final = "closed-"
"""How the files of a history begin whose rows are no more; those of others with the bucket."""
_MOST_ROWS: Final = 64 * 1024
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)

_ROW: Final = [field for field in ROW if field.name != "_relation"]

_NAMES: Final = {"_position": "_valid_from_position", "_seq": "_valid_from_seq", "_commit_ts": "_valid_from"}
"""What a history calls the columns that say since when a row is there."""

Buckets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TablePass:
    """One version of a table in a batch: how its rows are kept while they are of this version."""

    relid: int
    place: Location
    """The folder of the state's table."""
    version: Version
    stored: Sequence[TableColumn]
    """The columns of the state's table."""
    buckets: int
    history: bool
    codec: str
    files: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """The files of each bucket, if they are not split again."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows of a file are wanted: transactions by their positions, and prepared ones that were committed.

    `committed` is as in Outcomes. `run` are the places (position and seq) between which the table had the version.
    """

    ranges: Sequence[range]
    committed: Mapping[int, tuple[int, int]]
    run: Range | None = None

    def of(self, rows: pa.Table) -> pa.Table:
        """The rows that are wanted, committed ones at their places."""
        position = rows["_position"].combine_chunks()
        inside = np.zeros(len(rows), bool)
        for one in self.ranges:
            inside |= pc.and_(pc.greater_equal(position, one.start), pc.less(position, one.stop)).to_numpy(
                zero_copy_only=False
            )
        prepared = pc.is_valid(rows["_state"].combine_chunks()).to_numpy(zero_copy_only=False)
        there = inside & ~prepared
        if self.committed:
            there |= prepared & pc.is_in(position, pa.array(self.committed, pa.int64())).to_numpy(zero_copy_only=False)
        if not there.all():
            rows = rows.filter(pa.array(there))
        if self.committed and prepared.any():
            rows = self._at_commit(rows)
        return rows if self.run is None else rows.filter(_within(rows, self.run))

    def _at_commit(self, rows: pa.Table) -> pa.Table:
        old = pa.array(self.committed, pa.int64())
        index = pc.index_in(rows["_position"].combine_chunks(), old)
        for place, name in enumerate(("_position", "_commit_ts")):
            kind = rows.schema.field(name).type
            values = pa.array([pair[place] for pair in self.committed.values()], pa.int64()).cast(kind)
            number = rows.column_names.index(name)
            rows = rows.set_column(number, name, pc.coalesce(values.take(index), rows[name].combine_chunks()))
        return rows


def _within(rows: pa.Table, run: Range) -> pa.Array:
    return pc.and_(_at_least(rows, run.first), pc.invert(_at_least(rows, run.end)))


def _at_least(rows: pa.Table, place: Place) -> pa.Array:
    position, seq = rows["_position"], rows["_seq"]
    same = pc.and_(pc.equal(position, place.position), pc.greater_equal(seq, place.ordinal))
    return pc.or_(pc.greater(position, place.position), same)


@dataclass(frozen=True, slots=True)
class ChangesFile:
    """A file of `tables/*`, whose rows are all of one version of one table."""

    table: TablePass
    path: Location
    columns: Sequence[TableColumn]
    """Those of the table that the file belongs to."""
    wanted: Wanted

    def split(self) -> Iterator[pa.RecordBatch]:
        """Its changes by bucket."""
        rows = self.wanted.of(rows_in(self.path))
        table, version = self.table, self.table.version
        if not len(rows):
            return
        yield _part(table.relid, _NO_BUCKET, None, "count", pickle.dumps(len(rows)))
        rows = as_version(rows, version, self.columns)
        rows = rows.append_column(HALF, pa.array(np.full(len(rows), WHOLE)))
        if table.buckets == 1:
            yield from _parts(table.relid, 0, None, "changes", rows)
            return
        yield from self._spread(rows)

    def _spread(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        table, version = self.table, self.table.version
        columns = columns_of([version])
        events = Events(rows, version, columns)
        was, now = (_buckets_of(rows, side, version, columns, table.buckets) for side in (events.before, events.new))
        op = one_chunk(rows["_op"])
        deleted, updated, truncated = (
            pc.equal(op, name).to_numpy(zero_copy_only=False) for name in ("delete", "update", "truncate")
        )
        was[~(deleted | updated)] = now[~(deleted | updated)]
        now[deleted] = was[deleted]
        carries = np.zeros(len(rows), bool)
        for unsent in events.unsent.values():
            carries |= unsent
        apart = (was != now) & ~carries
        for bucket in range(table.buckets):
            gone, come = apart & (was == bucket), apart & (now == bucket)
            half = np.where(gone, GONE, np.where(come, COME, WHOLE))
            here = truncated | gone | come | (~apart & ~truncated & (now == bucket))
            links = np.unique(was[here & (was != now) & carries])
            if here.any():
                some = rows.set_column(rows.column_names.index(HALF), HALF, pa.array(half)).filter(pa.array(here))
                yield from _parts(table.relid, bucket, None, "changes", some)
            for link in links.tolist():
                yield _part(table.relid, bucket, link, "link", b"")


@dataclass(frozen=True, slots=True)
class RowsFile:
    """A file of a state whose rows have to be spread again: of another version, or for another number of buckets."""

    table: TablePass
    path: Location
    columns: Sequence[TableColumn]
    version: Version
    """What the rows are of."""

    def split(self) -> Iterator[pa.RecordBatch]:
        """Its rows by bucket."""
        table = self.table
        rows = _as_rows(rows_in(self.path), self.version, self.columns)
        if self.version != table.version:
            rows = described(rows, self.version, table.version)
        for bucket, some in _by_bucket(rows, table.version, table.buckets):
            yield from _parts(table.relid, bucket, None, "rows", some)


def split(items: Sequence[ChangesFile | RowsFile]) -> Iterator[pa.RecordBatch]:
    """Parts of items."""
    for item in items:
        yield from item.split()


class Written(NamedTuple):
    """A file of a state's table; the bucket is None for rows that are no more."""

    relid: int
    bucket: int | None
    file: DataFile


@dataclass(frozen=True, slots=True)
class Folding:
    """Folds the parts of each group of buckets, which come together: (group, relid, kind, data)."""

    tables: Mapping[int, TablePass]
    groups: Mapping[int, Sequence[int]]
    """The buckets of each group."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (group, relid), parts in _grouped(batches):
            table = self.tables[relid]
            buckets = self.groups[group]
            for written in self._folded(table, buckets, parts):
                yield pa.RecordBatch.from_pydict(
                    {"kind": ["file"], "data": pa.array([pickle.dumps(written)], pa.binary())}
                )

    def _folded(
        self, table: TablePass, buckets: Sequence[int], parts: Mapping[str, Sequence[bytes]]
    ) -> Iterator[Written]:
        columns = columns_of([table.version])
        rows = [unpacked(data) for data in parts.get("rows", ())]
        for bucket in buckets:
            paths = [table.place / path for path in table.files.get(bucket, ())]
            rows += [_as_rows(rows_in(path), table.version, table.stored) for path in paths]
        changes = [unpacked(data) for data in parts.get("changes", ())]
        before = pa.concat_tables(rows) if rows else schema_of(columns, _ROW).empty_table()
        if changes:
            found = fold(before, pa.concat_tables(changes), table.version, columns, history=table.history)
        else:
            found = Folded(before, before.slice(0, 0))
        spread = (
            _by_bucket(found.rows, table.version, table.buckets) if len(buckets) > 1 else [(buckets[0], found.rows)]
        )
        for bucket, some in spread:
            if len(some):
                yield Written(table.relid, bucket, _write(table, some, f"b{bucket:05d}-"))
        if len(found.closed):
            yield Written(table.relid, None, _write(table, found.closed, CLOSED))


def _write(table: TablePass, rows: pa.Table, prefix: str) -> DataFile:
    """A new file of a state or of a history; a row without an end is still there."""
    rows = as_stored(rows, table.version, table.stored)
    rows = rows.append_column("_relation", pa.repeat(pa.scalar(table.version.relation), len(rows)))
    rows = rows.rename_columns([_NAMES.get(name, name) if table.history else name for name in rows.column_names])
    schema = schema_of(own_columns(table.version, table.stored), VALIDITY if table.history else ROW)
    for name in schema.names:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(len(rows), schema.field(name).type))
    return write_file(table.place, rows.select(schema.names).cast(schema), table.codec, prefix)


def _as_rows(rows: pa.Table, version: Version, stored: Sequence[TableColumn]) -> pa.Table:
    """A file of a state or of a history as fold() takes rows."""
    named = {then: now for now, then in _NAMES.items()}
    rows = rows.rename_columns([named.get(name, name) for name in rows.column_names])
    own = schema_of(columns_of([version]), _ROW)
    return as_version(rows, version, stored).select(own.names).cast(own)


def _part(relid: int, bucket: int, link: int | None, kind: str, data: bytes) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "relid": pa.array([relid], pa.int64()),
        "bucket": pa.array([bucket], pa.int32()),
        "link": pa.array([link], pa.int32()),
        "kind": [kind],
        "data": pa.array([data], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _parts(relid: int, bucket: int, link: int | None, kind: str, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), _MOST_ROWS):
        yield _part(relid, bucket, link, kind, packed(rows.slice(start, _MOST_ROWS)))


def _grouped(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[tuple[int, int], dict[str, list[bytes]]]]:
    """The parts of each group, which come together."""
    current: tuple[int, int] | None = None
    parts: dict[str, list[bytes]] = {}
    for batch in batches:
        for group, relid, kind, data in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if (group, relid) != current:
                if current is not None:
                    yield current, parts
                current, parts = (group, relid), {}
            parts.setdefault(kind, []).append(data)
    if current is not None:
        yield current, parts


# -- buckets -----------------------------------------------------------------------------------------------------------


def _by_bucket(rows: pa.Table, version: Version, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of a state in their buckets."""
    if buckets == 1 or not len(rows):
        yield 0, rows
        return
    columns = columns_of([version])
    now = _buckets_of(rows, Cells.of(rows, columns), version, columns, buckets)
    for bucket in np.unique(now).tolist():
        yield bucket, rows.filter(pa.array(now == bucket))


def _buckets_of(rows: pa.Table, side: Cells, version: Version, columns: Sequence[TableColumn], buckets: int) -> Buckets:
    """The bucket of each row, by a hash of what identifies it, which is the same everywhere."""
    if version.identified:
        parts = [part for [part] in identities([side], version, columns)]
    else:
        parts = [one_chunk(rows[name]) for name in ("_position", "_seq")]
    number = np.zeros(len(rows), np.uint64)
    for part in parts:
        number = number * _FACTOR + _hash(texts_of(part))
    return (number >> np.uint64(16)).astype(np.int64) % buckets


def _hash(texts: pa.Array) -> npt.NDArray[np.uint64]:
    encoded = texts.dictionary_encode(null_encoding="encode")
    values = np.array(encoded.dictionary.to_pylist(), object)
    found: npt.NDArray[np.uint64] = pd.util.hash_array(values, categorize=False)[encoded.indices.to_numpy()]
    return found
