"""Floor 7, a folder of datasets brought up to date: what is new in the captures becomes a batch, once and for ever."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pgtail.captures.names import CLOSED
from pgtail.errors import InputError, OptionError
from pgtail.spark.dataframes import added_up, changes_in, first_seen, relations_in, transactions
from pgtail.spark.failures import plainly
from pgtail.spark.output import Manifest, Output
from pgtail.spark.place import Part, Parts
from pgtail.spark.rowtypes import CHANGES, RELATIONS, TRANSACTIONS, spark_schema
from pgtail.spark.segments import Surveyed, check_one_server, collected, literal, parts_of, segments, surveys, uncut
from pgtail.spark.written import written

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
_DATED: Final = frozenset(["changes", "transactions"])
_MOST_SEGMENTS: Final = 1000
"""In one batch: after a crash no more than this is done again."""
_COUNTED: Final = "counted"
"""Transactions that are staged to be added up with others; no dataset."""
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
            with plainly():
                self._write(found.repartitionByRange(files, "commit_date", "schema", "table", *_ORDER), "changes")
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
        self._tell(f"looking through {len(paths)} segments")
        surveyed = surveys(self._spark, paths).persist()
        try:
            found = collected(surveyed)
            self._check(manifest, found)
            done.notes += _missing(manifest, found)
            covered = manifest.covered()
            parts = parts_of(found, covered)
            manifest.number += 1
            if parts:
                self._tell(f"decoding {len(parts)} segments")
                self._changes(manifest, uncut(parts, found), split_at(parts, covered))
            self._relations(manifest, surveyed)
        finally:
            surveyed.unpersist()
        for segment in found:
            taken = parts.get(segment.path) or ()
            manifest.apply(segment.path, segment.stream, taken, segment.predecessor, open_=segment.open)
        self._output.commit(manifest)
        done.segments += len(paths)
        done.batches += 1

    def _check(self, manifest: Manifest, found: Sequence[Surveyed]) -> None:
        check_one_server(found)
        for segment in found:
            if segment.server and manifest.server and segment.server != manifest.server:
                raise InputError(
                    f"{segment.path} comes from another server or database than what {self._output.folder} holds: "
                    "name another place for it"
                )
            manifest.server = segment.server or manifest.server

    def _changes(self, manifest: Manifest, parts: Mapping[str, Parts], split: Sequence[int]) -> None:
        """Stage changes and transactions; of those that are `split`, an earlier batch has a part already."""
        others = self._batches_with(manifest, split) if split else []
        with plainly():
            if self._stored_as == "parquet":
                found = self._by_workers(parts, alone=not others)
            else:
                self._write(changes_in(self._spark, parts, self._tables), "changes")
                self._tell("counting transactions")
                found = transactions(self._staged("changes", CHANGES))
            if found is not None:
                if others:
                    # They become one row again.
                    before = read_batches(self._spark, self._output, manifest, "transactions", others)
                    found = added_up(found.unionByName(before))
                self._write(found, "transactions")
        manifest.batches["changes"].append(manifest.number)
        kept = [number for number in manifest.batches["transactions"] if number not in others]
        manifest.batches["transactions"] = [*kept, manifest.number]

    def _by_workers(self, parts: Mapping[str, Parts], *, alone: bool) -> DataFrame | None:
        """Changes and transactions by those who decode; returns the transactions where they are not staged so."""
        done = written(self._spark, parts, self._tables, self._output.attempts())
        self._output.take("changes", done["changes"])
        self._output.take("transactions" if alone else _COUNTED, done["transactions"])
        return None if alone else self._staged(_COUNTED, TRANSACTIONS)

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
        with plainly():
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
        dated = ["commit_date"] if kind in _DATED else []
        order = [*dated, *(["schema", "table"] if kind != "transactions" else []), *_order_of(kind)]
        writer = found.sortWithinPartitions(*order).write.format(self._stored_as).partitionBy(*dated)
        writer = writer.options(**OF_FORMAT[self._stored_as])
        writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").save(self._output.staged(kind))


_ORDER: Final = ("position", "ordinal", "seq")


def _order_of(kind: str) -> tuple[str, ...]:
    return _ORDER if kind == "changes" else ("position",)


def split_at(parts: Mapping[str, Parts], covered: Sequence[tuple[Part, str]]) -> list[int]:
    """The positions of transactions of which a part is new, and a part was there before."""
    new = {place.position for some in parts.values() for part in some or () for place in part}
    old = {place.position for part, _ in covered for place in part}
    return sorted(new & old)


def _missing(manifest: Manifest, found: Sequence[Surveyed]) -> list[str]:
    """A word for each segment that should stand before one of these and is not there."""
    there = {segment.name for segment in found}
    there |= {path.rpartition("/")[2].partition(".")[0] for path in manifest.segments}
    return [
        f"{segment.path}: the segment {segment.predecessor}, which should stand before it, is not there"
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
