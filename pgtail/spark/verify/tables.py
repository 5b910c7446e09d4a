"""Compares the tables of a state with the server's in Spark's tasks: each task has one bucket of a table in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from pgtail.arrow.decoding.decode import SegmentChanges
from pgtail.arrow.fold import Cells
from pgtail.arrow.typed.arrays import Flags
from pgtail.arrow.typed.columns import columns_of
from pgtail.arrow.typed.versions import Version
from pgtail.capture.state import read_state
from pgtail.humanize import counted
from pgtail.spark.jobs import (
    collected,
    collected_by,
    frame,
    groups,
    packed,
    spark_schema,
    translate_spark_errors,
    unpacked,
)
from pgtail.spark.lake.parquet import rows_in
from pgtail.spark.lake.update import Lake
from pgtail.spark.segments.snapshots import ListedSnapshot, listed_in, segments_of
from pgtail.spark.state.comparison import Comparison, compare, server_rows, state_rows, total
from pgtail.spark.state.tasks import BLOCK_BITS, TableLayout, buckets_for
from pgtail.storage import Location, locate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PART: Final = pa.schema([("relid", pa.int64()), ("bucket", pa.int32()), ("server", pa.bool_()), ("data", pa.binary())])
"""Some rows of a bucket of a table."""
BUCKET: Final = 32 << 20
"""Bytes of Parquet that a bucket should have at most."""
_MILLION: Final = 1_000_000


class _File(NamedTuple):
    """A file of a state's table, whose rows are those of a version; without one, a segment with rows of the server."""

    place: Location
    version: Version | None = None


class VerifiedTable(Struct, frozen=True):
    """How a table compares; `relid` is its OID, the names are the server's."""

    relid: int
    schema: str
    table: str
    found: Comparison


class _Pair(Struct, frozen=True):
    """The rows of a table in a state and on the server, in common buckets: files, with their bytes.

    `sample` are the millionths of keys that are compared; None for all.
    """

    layout: TableLayout
    files: Sequence[tuple[_File, int]]
    sample: int | None

    def split(self, relid: int, file: _File) -> Iterator[pa.RecordBatch]:
        """The rows of a file in their buckets, as rows of _PART."""
        version, of_server = self.layout.version, file.version is None
        for rows in self._rows(file):
            if version.key and self.sample is not None:
                rows = rows.filter(sampled(rows, version, self.sample))
            for bucket, some in self.layout.by_bucket(rows, by_value=True):
                for data in packed(some):
                    part = {"relid": relid, "bucket": bucket, "server": of_server, "data": data}
                    yield pa.RecordBatch.from_pylist([part], _PART)

    def _rows(self, file: _File) -> Iterator[pa.Table]:
        own = [*(column.stored for column in self.layout.stored), "_rescued"]
        if file.version is not None:
            yield state_rows(rows_in(file.place), file.version, self.layout.version).select([*own, "_unknown"])
            return
        with file.place.open() as segment:
            for _, rows in server_rows(segment, str(file.place)):
                yield rows.select(own)

    def compared(self, parts: pa.Table) -> Comparison:
        state, server = (self._together(parts.filter(mask)) for mask in (pc.invert(parts["server"]), parts["server"]))
        return compare(state, server, self.layout.version)

    def _together(self, parts: pa.Table) -> pa.Table:
        rows = unpacked(parts["data"])
        return pa.concat_tables(rows) if rows else self.layout.folded.empty_table()


def sampled(rows: pa.Table, version: Version, millionths: int) -> Flags:
    """Flags of the rows in a sample, by the MD5 of the key's texts, joined by commas: the same rows on both sides."""
    cells = Cells.of(rows.combine_chunks(), version)
    texts = [cells.texts(column).to_pylist() for column in columns_of([version]) if column.name in version.key]
    keys = (",".join(text or "" for text in row) for row in zip(*texts, strict=True))
    numbers = [int(hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()[:8], 16) for key in keys]
    found: Flags = np.array([number * _MILLION < millionths << 32 for number in numbers], bool)
    return found


def compare_tables(state: Lake, server: Location, *, sample: int | None) -> list[VerifiedTable]:
    """Compare the rows of a state with those of a capture of nothing but snapshots, one of each table to compare.

    `sample` are the millionths of keys to compare, None for all; tables without a key are compared whole. Raises
    PgtailError.
    """
    listed = listed_in(str(server), read_state(server))
    pairs = {snapshot.table.relid: _pair(state, snapshot, sample) for snapshot in listed}
    state.show_task(f"comparing {counted(len(pairs), 'table')}")
    files = [((relid, file), size) for relid, pair in pairs.items() for file, size in pair.files]
    compared: dict[int, list[Comparison]] = {relid: [] for relid in pairs}
    for relid, part in _compared(state.spark, pairs, files):
        compared[relid].append(part)
    versions = {relid: pair.layout.version for relid, pair in pairs.items()}
    verified = [VerifiedTable(relid, one.schema, one.table, total(compared[relid])) for relid, one in versions.items()]
    return sorted(verified, key=lambda table: (table.schema, table.table))


def _compared(
    spark: SparkSession, pairs: Mapping[int, _Pair], files: Sequence[tuple[tuple[int, _File], int]]
) -> list[tuple[int, Comparison]]:
    def split(some: Sequence[tuple[int, _File]]) -> Iterator[pa.RecordBatch]:
        for relid, file in some:
            yield from pairs[relid].split(relid, file)

    def compared(parts: pa.Table) -> tuple[int, Comparison]:
        relid = parts["relid"][0].as_py()
        return relid, pairs[relid].compared(parts)

    count = sum(pair.layout.buckets for pair in pairs.values())
    with translate_spark_errors():
        parts = frame(spark, split, groups(spark, files), spark_schema(_PART))
        return collected_by(spark, parts, ("relid", "bucket"), count, compared)


def _pair(state: Lake, listed: ListedSnapshot, sample: int | None) -> _Pair:
    """The files of a table to compare."""
    segments = [(_File(locate(segment.path, state.storage)), segment.bytes) for segment in segments_of(listed)]
    version, own = _version_in(segments[0][0].place), state.plan.notes["state"].tables.get(listed.table.relid)
    files: list[tuple[_File, int]] = []
    if own is not None:
        [last] = [one for some in state.versions().values() for one in some if one.relation == own.versions[-1]]
        table = state.batches.table(own.folder)
        files = [(_File(table.place / file.path, last), file.size) for file in table.files()]
    size = max(sum(size for _, size in some) for some in (files, segments))
    spreads = version.key or not _any_unknown(state.spark, version, files)
    buckets = buckets_for(size, BUCKET) if spreads else 1
    return _Pair(TableLayout(version, columns_of([version]), buckets, BLOCK_BITS), [*files, *segments], sample)


def _version_in(segment: Location) -> Version:
    """The version of the table of a snapshot's segment."""
    with segment.open() as file:
        changes = SegmentChanges(file, str(segment))
        next(iter(changes), None)
        return Version.of(changes.survey.relations[0])


def _any_unknown(spark: SparkSession, version: Version, files: Sequence[tuple[_File, int]]) -> bool:
    """Whether a value in these files (with their bytes) is unknown: rows without a key are in buckets by value."""
    if any(one.version != version for one, _ in files):
        return True
    return any(collected(spark, _has_unknown, [one.place for one, _ in files], sum(size for _, size in files)))


def _has_unknown(place: Location) -> bool:
    rows = rows_in(place, ["_unknown"])
    return bool(rows["_unknown"].null_count < len(rows))
