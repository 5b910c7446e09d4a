"""The work of tasks for a state: to split files into buckets, then to fold the rows and changes of some buckets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from pgtail.arrow.fold import (
    BOTH_ROWS,
    DELETE,
    FROM_SNAPSHOT,
    NEW_ROW,
    OLD_ROW,
    SIDE,
    TRUNCATE,
    UPDATE,
    Cells,
    Events,
    Folded,
    fold,
    identities,
    schema_of_rows,
    snapshot_start,
)
from pgtail.arrow.segments.ranges import Place, Range
from pgtail.arrow.typed.alterations import Origins
from pgtail.arrow.typed.arrays import Flags, one_chunk, with_schema
from pgtail.arrow.typed.casts import TableColumn, texts_of
from pgtail.arrow.typed.columns import ROW, VALID_FROM, VALIDITY, columns_of, former_columns, own_columns, schema_of
from pgtail.arrow.typed.rows import as_stored, as_version, described
from pgtail.arrow.typed.versions import Version
from pgtail.spark.jobs import packed, unpacked
from pgtail.spark.lake.delta import LakeFile
from pgtail.spark.lake.parquet import DataFile, TableFolder, rows_in, write_file
from pgtail.storage import Location

PART: Final = pa.schema(
    [("relid", pa.int64()), ("bucket", pa.int32()), ("links", pa.list_(pa.int32())), ("data", pa.binary())]
)
"""Some rows or changes of a bucket of a table; `links` are other buckets that have to be folded with it."""
CLOSED: Final = "closed-"
"""File-name prefix of closed rows; other files are named by bucket."""
_MOST_BUCKETS: Final = 1024
BLOCK_BITS: Final = 9
"""The block_bits of a TableLayout: up to 512 neighbouring keys are in one bucket."""
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)

Numbers = npt.NDArray[np.int64]


class WantedChanges(Struct, frozen=True):
    """Selects rows of a file: transactions by their positions, and prepared ones that were committed.

    `committed` is as in Outcomes. Commits before the position `since` are left out. `snapshots` are the
    positions of those whose rows are wanted. `run` are the places (position and seq) between which the table had the
    version.
    """

    ranges: Sequence[range]
    committed: Mapping[int, tuple[int, int]]
    since: int = -1
    snapshots: frozenset[int] = frozenset()
    run: Range | None = None

    def of(self, rows: pa.Table, *, snapshot: bool = False) -> pa.Table:
        """The rows that are wanted, committed ones at their places; `snapshot`: they are those of snapshots."""
        if snapshot:
            rows = rows.filter(np.isin(rows["_position"].to_numpy(), list(self.snapshots)))
        else:
            rows = self._of_stream(rows)
        if self.run is not None:
            first, end = self.run
            rows = rows.filter(_at_least(rows, first) & ~_at_least(rows, end))
        return rows

    def _of_stream(self, rows: pa.Table) -> pa.Table:
        position, inside = rows["_position"].to_numpy(), np.zeros(len(rows), bool)
        for one in self.ranges:
            inside |= (position >= one.start) & (position < one.stop)
        prepared = rows["_state"].is_valid().to_numpy()
        there = np.where(prepared, np.isin(position, list(self.committed)), inside)
        if not there.all():
            rows = rows.filter(there)
        if self.committed and prepared.any():
            rows = self._at_commit(rows)
        return rows if self.since < 0 else rows.filter(pc.greater_equal(rows["_position"], self.since))

    @property
    def least(self) -> int:
        """No wanted row is at a position below this one."""
        return min([*(one.start for one in self.ranges), *self.committed, *self.snapshots], default=0)

    def may_have(self, file: LakeFile) -> bool:
        if file.of_snapshots:
            return file.may_have("_position", [range(one, one) for one in self.snapshots])
        return file.may_have("_position", [*self.ranges, *(range(one, one + 1) for one in self.committed)])

    def has_all(self, file: LakeFile) -> bool:
        """Whether all rows of a file of changes are wanted, as far as its statistics show."""
        position = file.bounds("_position")
        inside = any(one.start <= position.least and position.most < one.stop for one in self.ranges)
        return inside and position.least >= self.since and file.bounds("_gid").nulls == file.rows

    def _at_commit(self, rows: pa.Table) -> pa.Table:
        index = pc.index_in(one_chunk(rows["_position"]), pa.array(self.committed, pa.int64()))
        for place, name in enumerate(("_position", "_commit_ts")):
            kind = rows.schema.field(name).type
            values = pa.array([pair[place] for pair in self.committed.values()], pa.int64()).cast(kind)
            number = rows.column_names.index(name)
            rows = rows.set_column(number, name, pc.coalesce(values.take(index), one_chunk(rows[name])))
        return rows


def _at_least(rows: pa.Table, place: Place) -> Flags:
    position, seq = rows["_position"].to_numpy(), rows["_seq"].to_numpy()
    found: Flags = (position > place.position) | ((position == place.position) & (seq >= place.ordinal))
    return found


class ChangesFile(NamedTuple):
    """A file of `tables/*`, whose rows are all of one version of one table, and the columns of that table."""

    place: Location
    columns: Sequence[TableColumn]
    snapshot: bool
    """Whether the rows are those of snapshots."""


class SnapshotStarts(NamedTuple):
    """In a history: at this position and time (microseconds since 1970) a snapshot starts."""

    position: int
    time: int


Item: TypeAlias = "ChangesFile | RowsFile | SnapshotStarts"
"""The input that a pass splits into buckets."""


class TableLayout(NamedTuple):
    """How the rows of a table are kept: as those of a version, with columns of the state's table, in buckets.

    The bucket of a row does not depend on the last `block_bits` bits of the integers in its key, shared evenly among
    them: neighbours are in one bucket. Keys are usually sequential, and recent rows change most often.
    """

    version: Version
    stored: Sequence[TableColumn]
    buckets: int
    block_bits: int

    @property
    def folded(self) -> pa.Schema:
        """The columns of the rows while they are folded."""
        return schema_of_rows(self.version, self.former)

    @property
    def former(self) -> list[TableColumn]:
        """The columns of other versions, which only a history has."""
        return former_columns(self.version, self.stored)

    def bucket_of(self, rows: pa.Table, cells: Cells, *, by_value: bool = False) -> Numbers:
        """The bucket of each row, by a hash of its identifying values, equal in every process; `by_value`: of all its
        values, if none identify it."""
        if self.version.identified:
            parts = list(self._blocks(cells))
        elif by_value:
            names = [column.name for column in self.version.columns]
            parts = [part for [part] in identities([cells], self.version, names)]
        else:
            parts = [one_chunk(rows[name]) for name in ("_position", "_seq")]
        number = np.zeros(len(rows), np.uint64)
        for part in parts:
            number = number * _FACTOR + _hash(texts_of(part))
        return (number >> np.uint64(16)).astype(np.int64) % self.buckets

    def by_bucket(self, rows: pa.Table, *, by_value: bool) -> Iterator[tuple[int, pa.Table]]:
        if self.buckets == 1:
            yield 0, rows
            return
        yield from split(rows, self.bucket_of(rows, Cells.of(rows, self.version), by_value=by_value))

    def _blocks(self, cells: Cells) -> Iterator[pa.Array]:
        """The values that the bucket of each row is computed from, for each column that identifies it."""
        integers = {
            column.name
            for column in columns_of([self.version])
            if column.name in self.version.key and pa.types.is_integer(column.kind)
        }
        for name, [part] in zip(self.version.identifying, identities([cells], self.version), strict=True):
            if name in integers:
                values = cells.values[name]
                bits = pa.scalar(self.block_bits // len(integers), values.type)
                part = pc.coalesce(cells.rescued[name], texts_of(pc.shift_right(values, bits)))
            yield part


def buckets_for(size: int, bucket_size: int, buckets: int = 1) -> int:
    """The number of buckets for `size` bytes of Parquet: at least `buckets`, doubled until they are small enough."""
    while buckets < _MOST_BUCKETS and size > buckets * bucket_size:
        buckets *= 2
    return buckets


def split(rows: pa.Table, buckets: Numbers) -> Iterator[tuple[int, pa.Table]]:
    """Rows by their buckets; the order within a bucket stays."""
    order = np.argsort(buckets, kind="stable")
    yield from _slices(rows.take(pa.array(order)), buckets[order])


def _slices(rows: pa.Table, buckets: Numbers) -> Iterator[tuple[int, pa.Table]]:
    """Rows in the order of their buckets."""
    (found, counts), start = np.unique(buckets, return_counts=True), 0
    for bucket, count in zip(found.tolist(), counts.tolist(), strict=True):
        yield bucket, rows.slice(start, count)
        start += count


def _hash(texts: pa.Array) -> npt.NDArray[np.uint64]:
    encoded = texts.dictionary_encode(null_encoding="encode")
    values = np.array(encoded.dictionary.to_pylist(), object)
    found: npt.NDArray[np.uint64] = pd.util.hash_array(values, categorize=False)[encoded.indices.to_numpy()]
    return found


class RowsFile(NamedTuple):
    """A file of a state's table, and how its rows are kept."""

    file: DataFile
    layout: TableLayout

    @property
    def bucket(self) -> int | None:
        """None for closed rows."""
        path = self.file.path
        return None if path.startswith(CLOSED) else int(path[1 : path.index("-")])


class Pass(Struct, frozen=True):
    """One table in one pass: its changes of one version, and the rows that they are applied to."""

    relid: int
    folder: TableFolder
    """That of the state's table."""
    history: bool
    layout: TableLayout
    """How the rows are kept afterwards."""
    wanted: WantedChanges
    files: Mapping[int, Sequence[DataFile]]
    """The files of each bucket whose rows are kept like this already."""
    by_value: bool = False
    """Whether rows that nothing identifies are in buckets by all their values: a snapshot is compared with them."""
    origins: Origins | None = None
    """Where the rows have their values from, if they are of an earlier version and that is known."""

    def split(self, item: Item) -> Iterator[pa.RecordBatch]:
        """Parts of a file's changes, or of its rows in another layout."""
        if isinstance(item, ChangesFile):
            yield from self._changes(item)
        elif isinstance(item, SnapshotStarts):
            rows = snapshot_start(self.layout.version, item.position, item.time)
            rows = rows.append_column(SIDE, pa.array([BOTH_ROWS]))
            for bucket in range(self.layout.buckets):
                yield from self._parts(bucket, rows)
        else:
            rows = self._read(item.file.path, item.layout)
            rows = described(rows, item.layout.version, self.layout.version, self.layout.former, self.origins)
            for bucket, some in self.layout.by_bucket(rows, by_value=self.by_value):
                yield from self._parts(bucket, some)

    def _changes(self, source: ChangesFile) -> Iterator[pa.RecordBatch]:
        rows = self.wanted.of(rows_in(source.place), snapshot=source.snapshot)
        if not len(rows):
            return
        rows = as_version(rows, self.layout.version, source.columns)
        if self.layout.buckets == 1:
            yield from self._parts(0, rows.append_column(SIDE, pa.array(np.full(len(rows), BOTH_ROWS))))
            return
        events = Events(rows, self.layout.version)
        old_bucket, new_bucket = self._buckets_of(rows, events)
        truncated = events.op == TRUNCATE
        carries = np.logical_or.reduce([np.zeros(len(rows), bool), *events.unsent.values()])
        moves = (old_bucket != new_bucket) & ~truncated
        leaves, linked = np.flatnonzero(moves & ~carries), moves & carries
        # A row that moves is twice in it, a TRUNCATE in each bucket.
        arrives, ends, every = np.flatnonzero(~truncated), np.flatnonzero(truncated), np.arange(self.layout.buckets)
        places = np.concatenate([arrives, leaves, np.repeat(ends, len(every))])
        side = np.full(len(places), BOTH_ROWS)
        side[: len(arrives)][(moves & ~carries)[arrives]] = NEW_ROW
        side[len(arrives) : len(arrives) + len(leaves)] = OLD_ROW
        buckets = np.concatenate([new_bucket[arrives], old_bucket[leaves], np.tile(every, len(ends))])
        order = np.argsort(buckets, kind="stable")
        some = rows.take(pa.array(places[order])).append_column(SIDE, pa.array(side[order]))
        for bucket, own in _slices(some, buckets[order]):
            links = np.unique(old_bucket[linked & (new_bucket == bucket)]) if linked.any() else ()
            yield from self._parts(bucket, own, list(map(int, links)))

    def _buckets_of(self, rows: pa.Table, events: Events) -> tuple[Numbers, Numbers]:
        """The buckets of the old and the new row of each change; of a change that has only one row twice the same."""
        deleted, updated = events.op == DELETE, events.op == UPDATE
        new_bucket = self.layout.bucket_of(rows, events.new, by_value=self.by_value)
        identified = self.layout.version.identified
        old_bucket = self.layout.bucket_of(rows, events.before) if identified else new_bucket
        old_bucket = np.where(deleted | updated, old_bucket, new_bucket)
        return old_bucket, np.where(deleted, old_bucket, new_bucket)

    def _parts(self, bucket: int, rows: pa.Table, links: Sequence[int] = ()) -> Iterator[pa.RecordBatch]:
        for data in packed(rows):
            part = {"relid": self.relid, "bucket": bucket, "links": links, "data": data}
            yield pa.RecordBatch.from_pylist([part], PART)

    def fold(self, parts: pa.Table) -> Iterator[DataFile]:
        """Fold parts of buckets, each with the buckets in `together`, and write the files of these again.

        One such group is in memory at a time.
        """
        closed = []
        together = parts["together"].to_pylist()
        for buckets in sorted(set(map(tuple, together))):
            own = [place for place, some in enumerate(together) if tuple(some) == buckets]
            there, ended = self._folded(buckets, parts["data"].take(own))
            closed += [ended] if len(ended) else []
            one = len(buckets) == 1
            for bucket, rows in [(buckets[0], there)] if one else self.layout.by_bucket(there, by_value=self.by_value):
                if len(rows):
                    yield self._write(rows, f"b{bucket:05d}-")
        if closed:
            yield self._write(pa.concat_tables(closed), CLOSED)

    def _folded(self, buckets: Sequence[int], parts: pa.ChunkedArray) -> Folded:
        """The rows of these buckets, with these parts applied to them."""
        tables = unpacked(parts)
        changes = [one for one in tables if SIDE in one.column_names]
        rows = [one for one in tables if SIDE not in one.column_names]
        rows += [self._read(file.path, self.layout) for bucket in buckets for file in self.files.get(bucket, ())]
        none = self.layout.folded.empty_table()
        there = pa.concat_tables([none, *rows], promote_options="default")
        if not changes:
            return Folded(there, none)
        all_ = pa.concat_tables(changes, promote_options="default")
        return fold(there, all_, self.layout.version, history=self.history)

    def _read(self, path: str, layout: TableLayout) -> pa.Table:
        """The rows of a file, to be folded."""
        named = {then: now for now, then in VALID_FROM.items()}
        rows = rows_in(self.folder.place / path)
        rows = rows.rename_columns([named.get(name, name) for name in rows.column_names])
        if FROM_SNAPSHOT.name not in rows.column_names:
            rows = rows.append_column(FROM_SNAPSHOT, pa.array(np.zeros(len(rows), bool)))
        return as_version(rows, layout.version, layout.stored).select(layout.folded.names).cast(layout.folded)

    def _write(self, rows: pa.Table, prefix: str) -> DataFile:
        """Write rows to a new file; in a history, a row without an end is current."""
        version, stored = self.layout.version, self.layout.stored
        rows = as_stored(rows, version, stored)
        rows = rows.append_column("_relation", pa.repeat(pa.scalar(version.relation), len(rows)))
        rows = rows.rename_columns([VALID_FROM.get(name, name) if self.history else name for name in rows.column_names])
        columns = stored if self.history else own_columns(version, stored)
        schema = schema_of(columns, VALIDITY if self.history else ROW)
        return write_file(self.folder._replace(prefix=prefix), with_schema(rows, schema))
