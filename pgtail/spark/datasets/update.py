"""A folder of datasets brought up to date: what is new in the captures becomes a batch, once and for ever."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pgtail.capture.format import CLOSED, is_gap
from pgtail.errors import InputError, OptionError
from pgtail.spark.datasets.manifest import Manifest, Output
from pgtail.spark.datasets.tasks import Workers
from pgtail.spark.decoding.dataframes import added_up, changes_in, first_seen, relations_in, transactions
from pgtail.spark.errors import translate_spark_errors
from pgtail.spark.schemas import CHANGES, RELATIONS, TRANSACTIONS, spark_schema
from pgtail.spark.segments.listing import (
    Surveyed,
    check_one_server,
    collapse_whole_segments,
    directories,
    literal,
    parts_of,
    segments,
    surveyed,
    surveys,
)
from pgtail.spark.segments.ranges import EVERYWHERE, Part, Parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMAS: Final = {"changes": CHANGES, "transactions": TRANSACTIONS, "relations": RELATIONS}
OF_FORMAT: Final = {
    "parquet": {},
    "orc": {},
    "json": {
        # Without them JSON has milliseconds.
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    },
}
"""Options for writing and reading."""
FORMATS: Final = tuple(OF_FORMAT)
_COUNTED: Final = "counted"
"""Transactions that are staged to be added up with others; no dataset."""
_SORTED: Final = {
    "changes": ("commit_date", "schema", "table", "position", "ordinal", "seq"),
    "transactions": ("commit_date", "position"),
    _COUNTED: ("commit_date", "position"),
    "relations": ("schema", "table", "position"),
}
_MOST_SEGMENTS: Final = 1000
"""In one batch: after a crash no more than this is done again."""
TARGET: Final = 128 << 20
"""Bytes that a file should have."""


@dataclass(slots=True)
class Update:
    """What was done."""

    segments: int = 0
    batches: int = 0
    notes: list[str] = field(default_factory=list)


class Datasets:
    """`changes`, `transactions` and `relations` in a folder, written by this process alone.

    `stored_as` is one of FORMATS, `tables` are globs as --table takes them. `tell` hears what is under way.
    """

    def __init__(
        self,
        spark: SparkSession,
        out: str,
        *,
        stored_as: str = "parquet",
        tables: Sequence[str] = (),
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        if stored_as not in FORMATS:
            raise OptionError(f"--format {stored_as}: expected one of {', '.join(FORMATS)}")
        self._spark = spark
        self._output = Output(out)
        self._stored_as, self._tables = stored_as, list(tables)
        self._tell = tell

    def update(self, captures: Sequence[str]) -> Update:
        """Apply every segment of these captures that is not in it. Raises InputError, OptionError, OutputError."""
        paths = segments(self._spark, captures)
        done = self.apply(paths)
        if not paths:
            done.notes.append(f"no closed segment (*{CLOSED}) in {', '.join(captures)}")
        return done

    def apply(self, paths: Sequence[str]) -> Update:
        """Apply these segments, but those that were applied before."""
        done = Update()
        with self._output.writing(self._stored_as, self._tables) as manifest:
            new = [path for path in paths if path not in manifest.segments]
            for start in range(0, len(new), _MOST_SEGMENTS):
                self._batch(manifest, new[start : start + _MOST_SEGMENTS], done)
        return done

    def checkpoint(self, name: str) -> str:
        """Where Structured Streaming keeps what it has seen."""
        return self._output.checkpoint(name)

    def compact(self) -> int:
        """Write the small files of `changes` anew as large ones; returns how many batches became one."""
        with self._output.writing(self._stored_as, self._tables) as manifest:
            small = {n: size for n in manifest.batches["changes"] if (size := self._size_of_small(n)) is not None}
            if len(small) < 2:
                return 0
            self._tell(f"compacting {len(small)} batches")
            manifest.number += 1
            found = read_batches(self._spark, self._output, manifest, "changes", list(small))
            files = max(sum(small.values()) // TARGET, 1)
            with translate_spark_errors():
                self._write(found.repartitionByRange(files, *_SORTED["changes"]), "changes")
            kept = [number for number in manifest.batches["changes"] if number not in small]
            manifest.batches["changes"] = [*kept, manifest.number]
            self._output.commit(manifest)
        return len(small)

    def _size_of_small(self, number: int) -> int | None:
        """Bytes of a batch whose files are small, else None."""
        folder = Path(self._output.batch("changes", number))
        sizes = [file.stat().st_size for file in folder.rglob("part-*")]
        return sum(sizes) if not sizes or sum(sizes) / len(sizes) < TARGET // 2 else None

    def _batch(self, manifest: Manifest, paths: Sequence[str], done: Update) -> None:
        at_once = self._workers() if self._overlaps_nothing(manifest, paths) else None
        if at_once is not None:
            self._tell(f"decoding {len(paths)} segments")
            rows = at_once.tasks(dict.fromkeys(paths), survey=True).persist()
        else:
            self._tell(f"looking through {len(paths)} segments")
            rows = surveys(self._spark, paths).persist()
        try:
            with translate_spark_errors():
                told = rows.drop("relations").toArrow()
            found = surveyed(told)
            self._check(manifest, found)
            done.notes += _missing(manifest, found)
            covered = manifest.covered()
            parts = parts_of(found, covered)
            manifest.number += 1
            if parts:
                wanted, split = collapse_whole_segments(parts, found), split_at(parts, covered)
                if at_once is None or not _whole(wanted, found):
                    self._tell(f"decoding {len(parts)} segments")
                    told = None
                self._changes(manifest, wanted, split, told)
            self._relations(manifest, rows)
        finally:
            rows.unpersist()
        for segment in found:
            taken = parts.get(segment.path) or ()
            manifest.apply(segment.path, segment.stream, taken, segment.predecessor, open_=segment.open)
        self._output.commit(manifest)
        done.segments += len(paths)
        done.batches += 1

    def _overlaps_nothing(self, manifest: Manifest, paths: Sequence[str]) -> bool:
        """Whether all is of one capture, as far as its place tells, so that all of each segment will be wanted."""
        return not self._tables and len(directories([*paths, *manifest.segments])) == 1

    def _workers(self) -> Workers | None:
        """Who write changes and transactions themselves, where the format is one that they can."""
        return Workers(self._spark, self._output.attempts()) if self._stored_as == "parquet" else None

    def _check(self, manifest: Manifest, found: Sequence[Surveyed]) -> None:
        check_one_server(found)
        for segment in found:
            if segment.server and manifest.server and segment.server != manifest.server:
                raise InputError(
                    f"{segment.path} comes from another server or database than what {self._output.folder} holds: "
                    "name another place for it"
                )
            manifest.server = segment.server or manifest.server

    def _changes(
        self, manifest: Manifest, parts: Mapping[str, Parts], split: Sequence[int], told: pa.Table | None
    ) -> None:
        """Stage changes and transactions; of those that are `split`, an earlier batch has a part already.

        `told` is what the workers told, where they wrote them already.
        """
        others = self._batches_with(manifest, split) if split else []
        workers = self._workers()
        with translate_spark_errors():
            if workers is not None:
                told = workers.tasks(parts, self._tables).toArrow() if told is None else told
                files = workers.written(told)
                self._output.take("changes", files["changes"])
                self._output.take(_COUNTED if others else "transactions", files["transactions"])
            else:
                self._write(changes_in(self._spark, parts, self._tables), "changes")
                self._tell("counting transactions")
                self._write(transactions(self._staged("changes", CHANGES)), _COUNTED if others else "transactions")
            if others:
                # A transaction of several batches becomes one row again.
                before = read_batches(self._spark, self._output, manifest, "transactions", others)
                self._write(added_up(self._staged(_COUNTED, TRANSACTIONS).unionByName(before)), "transactions")
        manifest.batches["changes"].append(manifest.number)
        kept = [number for number in manifest.batches["transactions"] if number not in others]
        manifest.batches["transactions"] = [*kept, manifest.number]

    def _staged(self, kind: str, schema: pa.Schema) -> DataFrame:
        if not Path(self._output.staged(kind)).exists():
            return self._spark.createDataFrame([], spark_schema(schema))
        reader = self._spark.read.schema(spark_schema(schema)).format(self._stored_as)
        return reader.options(**OF_FORMAT[self._stored_as]).load(literal(self._output.staged(kind)))

    def _batches_with(self, manifest: Manifest, positions: Sequence[int]) -> list[int]:
        from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

        numbers = manifest.batches["transactions"]
        if not numbers:
            return []
        found = read_batches(self._spark, self._output, manifest, "transactions", numbers, keep_batch=True)
        rows = found.where(F.col("position").isin(list(positions))).select("batch").distinct().collect()
        return [row.batch for row in rows]

    def _relations(self, manifest: Manifest, surveyed: DataFrame) -> None:
        """All versions of tables are one batch, written anew when there are more of them."""
        self._tell("collecting tables")
        with translate_spark_errors():
            found = relations_in(surveyed)
            numbers = manifest.batches["relations"]
            if numbers:
                known = read_batches(self._spark, self._output, manifest, "relations", numbers)
                found = first_seen(found.unionByName(known))
                before = {row.relation: (row.position, row.ordinal) for row in known.collect()}
                now = {row.relation: (row.position, row.ordinal) for row in found.collect()}
                if before == now:
                    return
            self._write(found.coalesce(1), "relations")
        manifest.batches["relations"] = [manifest.number]

    def _write(self, found: DataFrame, kind: str) -> None:
        dated = [] if kind == "relations" else ["commit_date"]
        writer = found.sortWithinPartitions(*_SORTED[kind]).write.format(self._stored_as).partitionBy(*dated)
        writer = writer.options(**OF_FORMAT[self._stored_as])
        writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").save(self._output.staged(kind))


def split_at(parts: Mapping[str, Parts], covered: Sequence[tuple[Part, str]]) -> list[int]:
    """The positions of transactions of which a part is new, and a part was there before."""
    new = {place.position for some in parts.values() for part in some or () for place in part}
    old = {place.position for part, _ in covered for place in part}
    return sorted(new & old)


def _whole(wanted: Mapping[str, Parts], found: Sequence[Surveyed]) -> bool:
    """Whether all of each segment is wanted."""
    return all(wanted.get(one.path, ()) is EVERYWHERE for one in found if one.whole is not None)


def _missing(manifest: Manifest, found: Sequence[Surveyed]) -> list[str]:
    """A word for each segment that should stand before one of these and is not there, and for each gap."""
    there = {segment.name for segment in found}
    there |= {path.rpartition("/")[2].partition(".")[0] for path in manifest.segments}
    return [
        f"{segment.path}: a gap stands before it: what was committed {segment.predecessor} is not in the capture"
        if is_gap(segment.predecessor)
        else f"{segment.path}: the segment {segment.predecessor}, which should stand before it, is not there"
        for segment in found
        if segment.predecessor and segment.predecessor not in there
    ]


def stored(spark: SparkSession, out: str, kind: str) -> DataFrame:
    """`changes`, `transactions` or `relations` of a folder that pgtail wrote: what its manifest names.

    Raises InputError where there is none.
    """
    output = Output(out)
    manifest = output.read()
    if manifest is None:
        raise InputError("holds nothing that pgtail spark wrote", source=out)
    return read_batches(spark, output, manifest, kind, manifest.batches[kind])


def read_batches(
    spark: SparkSession,
    output: Output,
    manifest: Manifest,
    kind: str,
    numbers: Sequence[int],
    *,
    keep_batch: bool = False,
) -> DataFrame:
    """What batches of `changes`, `transactions` or `relations` hold."""
    schema = SCHEMAS[kind]
    batched = pa.schema([*schema, pa.field("batch", pa.int32())])
    reader: Any = spark.read.schema(spark_schema(batched)).format(manifest.stored_as)
    reader = reader.options(**OF_FORMAT[manifest.stored_as])
    # A batch without a row has no file, and no folder.
    paths = [path for number in numbers if Path(path := output.batch(kind, number)).exists()]
    if not paths:
        return spark.createDataFrame([], spark_schema(batched if keep_batch else schema))
    reader = reader.option("basePath", str(output.folder / kind))
    found: DataFrame = reader.load([literal(path) for path in paths])
    return found.select(*schema.names, *(["batch"] if keep_batch else []))
