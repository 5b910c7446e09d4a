"""The tables of a state compared with the server's in Spark's tasks: each task has one bucket of a table in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgtail.spark.jobs import (
    RESULT,
    collected,
    cores,
    frame,
    groups,
    packed,
    result,
    results,
    translate_spark_errors,
    unpacked,
)
from pgtail.spark.lake.catalog import entries
from pgtail.spark.lake.parquet import DataFile, rows_in
from pgtail.spark.lake.update import Lake
from pgtail.spark.schemas import spark_schema
from pgtail.spark.state.comparison import Comparison, compare, total
from pgtail.spark.state.fold import Cells
from pgtail.spark.state.snapshots import by_table
from pgtail.spark.state.tasks import ChangesFile, RowsFile, TableLayout, read_rows
from pgtail.spark.typed.arrays import Flags
from pgtail.spark.typed.columns import columns_of
from pgtail.spark.typed.rows import as_version, described
from pgtail.spark.typed.texts import texts_of
from pgtail.spark.typed.versions import Version
from pgtail.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PART: Final = pa.schema([("relid", pa.int64()), ("bucket", pa.int32()), ("server", pa.bool_()), ("data", pa.binary())])
"""Some rows of a bucket of a table."""
_MOST_ROWS: Final = 64 * 1024
_MOST_BUCKETS: Final = 1024
_BUCKET: Final = 32 << 20
"""Bytes of Parquet that a bucket should have at most."""
_TURNS: Final = 4
"""Tasks for each core: a task has one of its buckets in memory at a time."""
_MILLION: Final = 1_000_000

Item: TypeAlias = "RowsFile | ChangesFile"
"""A file of a state, or of the server's rows."""


@dataclass(frozen=True, slots=True)
class VerifiedTable:
    """How a table compares; `relid` is its OID, the names are the server's."""

    relid: int
    schema: str
    table: str
    found: Comparison


@dataclass(frozen=True, slots=True)
class _Pair:
    """The rows of a table in a state and on the server, in common buckets: files, with their bytes.

    `place` is the folder of the state's table, None if it has none. `sample` is the share of keys that are compared, in
    millionths.
    """

    place: Location | None
    layout: TableLayout
    items: Sequence[tuple[Item, int]]
    sample: int

    def split(self, relid: int, item: Item) -> Iterator[pa.RecordBatch]:
        """The rows of a file in their buckets, as rows of _PART."""
        rows, version = self._rows(item), self.layout.version
        if version.key and self.sample < _MILLION:
            rows = rows.filter(sampled(rows, version, self.sample))
        for bucket, some in self.layout.by_bucket(rows, by_value=True):
            for start in range(0, len(some), _MOST_ROWS):
                part = {"relid": relid, "bucket": bucket, "server": isinstance(item, ChangesFile)}
                data = packed(some.slice(start, _MOST_ROWS))
                yield pa.RecordBatch.from_pylist([{**part, "data": data}], _PART)

    def _rows(self, item: Item) -> pa.Table:
        version = self.layout.version
        own = [column.stored for column in columns_of([version])]
        if isinstance(item, ChangesFile):
            return as_version(rows_in(item.place), version, item.columns).select([*own, "_rescued"])
        assert self.place is not None
        rows = described(read_rows(self.place / item.file.path, item.layout), item.layout.version, version)
        return rows.select([*own, "_rescued", "_unknown"])

    def compared(self, parts: pa.Table) -> Comparison:
        """Compare a bucket."""
        state, server = (self._together(parts.filter(mask)) for mask in (pc.invert(parts["server"]), parts["server"]))
        return compare(state, server, self.layout.version)

    def _together(self, parts: pa.Table) -> pa.Table:
        rows = [unpacked(data.as_buffer()) for data in parts["data"]]
        return pa.concat_tables(rows, promote_options="default") if rows else self.layout.folded.empty_table()


def sampled(rows: pa.Table, version: Version, millionths: int) -> Flags:
    """Which rows are in a sample: by the MD5 of the key's texts, joined by commas, so the same rows on both sides."""
    cells = Cells.of(rows.combine_chunks(), version)
    texts = []
    for column in columns_of([version]):
        if column.name in version.key:
            own = texts_of(cells.values[column.name], column.delimiter)
            texts.append(pc.coalesce(cells.rescued[column.name], own).to_pylist())
    keys = (",".join(text or "" for text in row) for row in zip(*texts, strict=True))
    numbers = [int(hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()[:8], 16) for key in keys]
    found: Flags = np.array([number * _MILLION < millionths << 32 for number in numbers], bool)
    return found


def compare_tables(state: Lake, server: Lake, *, sample: float = 100.0) -> list[VerifiedTable]:
    """Compare the rows of a state with those of `server`, which has a snapshot of each table to compare, and its typed
    rows. `sample` is the percentage of keys; tables without a key are compared whole. Raises PgtailError.
    """
    pairs = _pairs(state, server, round(sample * _MILLION / 100))
    state.tell("comparing the rows")
    items = [((relid, item), size) for relid, pair in pairs.items() for item, size in pair.items]
    by_table: dict[int, list[Comparison]] = {relid: [] for relid in pairs}
    for relid, found in _compared(state, pairs, items) if items else ():
        by_table[relid].append(found)
    return sorted(
        (
            VerifiedTable(relid, version.schema, version.table, total(by_table[relid]))
            for relid, pair in pairs.items()
            for version in [pair.layout.version]
        ),
        key=lambda one: (one.schema, one.table),
    )


def _compared(
    lake: Lake, pairs: Mapping[int, _Pair], items: Sequence[tuple[tuple[int, Item], int]]
) -> list[tuple[int, Comparison]]:
    def split(some: Sequence[tuple[int, Item]]) -> Iterator[pa.RecordBatch]:
        for relid, item in some:
            yield from pairs[relid].split(relid, item)

    def compared(parts: pa.Table) -> pa.Table:
        relid = parts["relid"][0].as_py()
        return pa.Table.from_batches([result((relid, pairs[relid].compared(parts)))])

    spark, count = lake.spark, sum(pair.layout.buckets for pair in pairs.values())
    with translate_spark_errors():
        parts: DataFrame = frame(spark, split, groups(spark, items), spark_schema(_PART))
        spread = parts.repartition(min(count, _TURNS * cores(spark)), "relid", "bucket")
        return results(spread.groupBy("relid", "bucket").applyInArrow(compared, RESULT))


def _pairs(state: Lake, server: Lake, sample: int) -> dict[int, _Pair]:
    """The tables to compare, by their OIDs."""
    by_relation = {one.relation: one for lake in (state, server) for some in lake.versions().values() for one in some}
    notes = state.plan.notes["state"].tables
    copied, found = _copied(server), {}
    for relid, some in by_table(server.snapshots()).items():
        version, own, place = by_relation[some[-1].relation], notes.get(relid), None
        files: list[tuple[RowsFile, int]] = []
        if own is not None:
            last, table = by_relation[own.versions[-1]], state.batches.table(own.folder)
            layout, place = TableLayout(last, columns_of([last]), own.buckets), table.place
            files = [(RowsFile(DataFile(one.path, one.size, ""), layout), one.size) for one in table.files()]
        items = [*files, *copied.get(relid, ())]
        buckets = 1 if not version.key and _any_unknown(state, place, version, files) else _buckets(items)
        found[relid] = _Pair(place, TableLayout(version, columns_of([version]), buckets), items, sample)
    return found


def _copied(server: Lake) -> dict[int, list[tuple[ChangesFile, int]]]:
    """The files with the server's rows, by the OID of the table, with their bytes."""
    versions, found = server.versions(), dict[int, list[tuple[ChangesFile, int]]]()
    for entry in entries(server.out):
        table, columns = server.batches.table(entry.folder), columns_of(versions[entry.schema, entry.table])
        for file in table.files():
            one = ChangesFile(table.place / file.path, columns, snapshot=True)
            found.setdefault(file.bounds("_relid").least, []).append((one, file.size))
    return found


def _buckets(items: Sequence[tuple[Item, int]]) -> int:
    """How many buckets a table needs."""
    size = max(sum(size for item, size in items if isinstance(item, kind)) for kind in (RowsFile, ChangesFile))
    buckets = 1
    while buckets < _MOST_BUCKETS and size > buckets * _BUCKET:
        buckets *= 2
    return buckets


def _any_unknown(state: Lake, place: Location | None, version: Version, files: Sequence[tuple[RowsFile, int]]) -> bool:
    """Whether a value may be unknown by which rows without a key are in buckets."""
    if any(one.layout.version != version for one, _ in files):
        return True
    return place is not None and any(collected(state.spark, _has_unknown, [place / one.file.path for one, _ in files]))


def _has_unknown(place: Location) -> bool:
    rows = rows_in(place, ["_unknown"])
    return bool(rows["_unknown"].null_count < len(rows))
