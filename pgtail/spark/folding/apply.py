"""One batch of `changes` applied to a stored state: what is new in it, in which order, and to which rows.

Only the buckets that a batch touches are read and written anew.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 -- as everybody writes it

from pgtail.errors import InputError, OptionError
from pgtail.pgoutput.scalars import lsn_text
from pgtail.spark.folding import routing
from pgtail.spark.folding.fold import Moment
from pgtail.spark.folding.fold_task import fold_batches
from pgtail.spark.folding.manifest import (
    Manifest,
    MissingSegment,
    Piece,
    Place,
    TableFiles,
    joined,
    last_whole,
    next_part,
)
from pgtail.spark.folding.plan import Run, TablePlan, plans, roots, stays_whole
from pgtail.spark.folding.settings import Settings
from pgtail.spark.folding.store import CLOSED, ROWS, Store, paths_of
from pgtail.spark.folding.versions import Version

MOST_BUCKETS: Final = 1024
MOST_CLOSED: Final = 64
"""Files of a table's rows that are no more; each batch adds one, and beyond so many they become one."""

_FOLDED: Final = (
    "relid long, identifier array<string>, values map<string,string>, unknown array<string>, undecoded array<string>, "
    "position long, seq long, time long, until_position long, until_seq long, until_time long"
)


@dataclasses.dataclass(slots=True)
class Applied:
    """What applying came to. `behind` is the place up to which the state now goes."""

    behind: Place
    changes: int = 0
    waiting: MissingSegment | None = None
    gaps: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    unknown_tables: list[int] = dataclasses.field(default_factory=list)
    """OIDs of tables that were never described: nothing of them can be applied."""


def apply(
    spark: SparkSession,
    root: str,
    changes: DataFrame,
    relations: DataFrame,
    pieces: Sequence[Piece] | None = None,
    settings: Settings | None = None,
    *,
    known: Iterable[str] = (),
) -> Applied:
    """Bring the state in the folder `root` up to the changes. What of them is in it already changes nothing.

    `pieces` are the parts of the stream that `changes` holds whole; without them it is taken to be everything from its
    first to its last row. `known` are names of segments that are there without a part of their own.

    Raises MissingSegment and other InputErrors, OptionError, OutputError.
    """
    settings = settings or Settings()
    store = Store(spark, root)
    manifest = copy.deepcopy(store.manifest)
    if store.exists and manifest.history != settings.history:
        raise OptionError(f"{root} holds {'history' if manifest.history else 'state'}: keep each in its own folder")
    given = _all_of(changes) if pieces is None else pieces
    now = next_part(manifest, given, known, allow_gap=settings.allow_gap)
    if now.missing is not None and not settings.wait:
        raise now.missing
    result = Applied(manifest.behind, waiting=now.missing, gaps=now.gaps)
    if not now.parts:
        return result
    # The first condition is one that Parquet's statistics know how to use.
    new = changes.filter(F.col("position") >= now.parts[0][0][0]).filter(_within(now.parts))
    parts, new = _cut(now.parts, new, settings.until, manifest)
    if parts:
        result.changes = _Batch(spark, store, manifest, settings).run(new, relations, result)
        manifest.applied = joined([*manifest.applied, *parts])
        manifest.last = last_whole(manifest, given)
        manifest.gaps += now.gaps
        manifest.history = settings.history
        result.behind = manifest.behind
        store.commit(manifest, settings.retain)
    return result


def _all_of(changes: DataFrame) -> list[Piece]:
    places = F.struct("position", F.coalesce("ordinal", F.lit(0)).alias("ordinal"))
    found = changes.agg(F.min(places).alias("first"), F.max(places).alias("last")).first()
    if found is None or found["first"] is None:
        return []
    first, last = found["first"], found["last"]
    return [Piece((first["position"], first["ordinal"]), (last["position"] + 1, 0))]


def _within(parts: Sequence[tuple[Place, Place]]) -> Column:
    """Whether a row lies in one of the parts."""
    found = F.lit(False)
    ordinal = F.coalesce("ordinal", F.lit(0))
    for (position, number), (behind, behind_number) in joined(parts):
        at_least = (F.col("position") > position) | ((F.col("position") == position) & (ordinal >= number))
        before = (F.col("position") < min(behind, 2**63 - 1)) | (
            (F.col("position") == min(behind, 2**63 - 1)) & (ordinal < behind_number)
        )
        found = found | (at_least & before)
    return found


def _cut(
    parts: list[tuple[Place, Place]], changes: DataFrame, until: int | datetime.datetime | None, manifest: Manifest
) -> tuple[list[tuple[Place, Place]], DataFrame]:
    """The parts and changes up to a point. A prepared transaction counts when its outcome comes."""
    if until is None or not parts:
        return parts, changes
    outcome = F.col("op") == routing.OUTCOMES[0]
    place = F.when(outcome, routing.number_of(F.col("commit_lsn"))).otherwise(F.col("position"))
    if isinstance(until, datetime.datetime):
        later = changes.filter(F.col("state").isNull() & (F.col("commit_ts") > F.lit(until)))
        found = later.agg(F.min(place).alias("place")).first()
        if found is None or found["place"] is None:
            return parts, changes
        until = found["place"] - 1
    assert isinstance(until, int)
    end = (until + 1, 0)
    if manifest.behind > end:
        raise InputError(f"the state goes beyond {lsn_text(until)} already: make one as of then in another directory")
    return [(first, min(behind, end)) for first, behind in parts if first < end], changes.filter(place <= until)


class _Batch:
    """One batch, from the changes to the manifest's new content."""

    def __init__(self, spark: SparkSession, store: Store, manifest: Manifest, settings: Settings) -> None:
        self._spark = spark
        self._store = store
        self._manifest = manifest
        self._settings = settings

    def run(self, changes: DataFrame, relations: DataFrame, result: Applied) -> int:
        """Write the files, and change the manifest accordingly. Returns how many changes were applied."""
        rows = routing.ordered(self._committed(changes))
        survey = [row for row in _survey(rows) if row["relid"] is not None]
        if not survey:
            return 0
        versions = _versions(relations, survey)
        result.unknown_tables = sorted({r["relid"] for r in survey if (r["relid"], r["relation"]) not in versions})
        survey = [row for row in survey if row["relid"] not in result.unknown_tables]
        truncates = [(row["relid"], Moment(*moment)) for row in survey for moment in row["truncates"]]
        planned = plans(_runs(rows, survey), truncates, versions, self._manifest.tables)
        buckets = self._buckets(survey)
        self._fold(rows, planned, buckets, moving=any(row["moving"] for row in survey))
        self._describe(planned, buckets, versions, survey)
        return sum(row["count"] for row in survey)

    def _committed(self, changes: DataFrame) -> DataFrame:
        """Without what is only prepared, which is kept in files of its own."""
        pending = self._manifest.pending
        found = changes.agg(F.max(F.col("state").isNotNull()).alias("prepared")).first()
        if not pending and not (found is not None and found["prepared"]):
            return changes
        before = self._store.rows(pending, changes.schema) if pending else None
        committed, left = routing.committed(changes, before)
        self._manifest.pending = self._store.write_plain(left)
        return committed

    def _buckets(self, survey: Sequence[Row]) -> dict[int, int]:
        """The number of buckets of each table: a power of two that grows with the table."""
        sizes: dict[int, int] = {}
        for row in survey:
            sizes[row["relid"]] = sizes.get(row["relid"], 0) + (row["bytes"] or 0)
        found = {}
        for relid, size in sizes.items():
            table = self._manifest.tables.get(relid)
            number = 1 if table is None else table.buckets
            total = size if table is None else table.size
            while number < MOST_BUCKETS and total > number * self._settings.bucket_size:
                number *= 2
            found[relid] = number
        return found

    def _fold(
        self, rows: DataFrame, planned: Mapping[int, TablePlan], buckets: Mapping[int, int], *, moving: bool
    ) -> None:
        spark, tables = self._spark, self._manifest.tables
        sent = routing.identified(rows, routing.routes(spark, planned, buckets))
        wholly, partly = self._concerned(planned, buckets)
        ways = (
            routing.ways(sent.filter(F.lit(moving) | F.col("relid").isin(partly))).collect() if moving or partly else []
        )
        rooted = routing.roots_of(
            spark, roots((way.relid, way.before, way.now) for way in ways if way.before is not None)
        )
        everything = routing.routed(sent, rooted)
        touched: dict[int, list[int] | None] = dict.fromkeys(wholly)
        for relid in partly:
            touched[relid] = sorted({number for way in ways if way.relid == relid for number in way.buckets})
        before = [path for relid, wanted in touched.items() for path in paths_of(tables[relid].files, wanted)]
        spread = routing.tables_of(spark, planned, buckets)
        if before:
            everything = routing.stored_rows(self._store.rows(before), spread, rooted).unionByName(everything)
        streams = {relid: plan.stream for relid, plan in planned.items()}
        fold = functools.partial(_fold_task, tables=streams, history=self._settings.history)
        folded = routing.in_order(everything).mapInArrow(fold, _FOLDED)
        done = _stored(folded, spread)
        crowded = [relid for relid in planned if relid in tables and len(tables[relid].closed) > MOST_CLOSED]
        if crowded:
            closed = self._store.rows([path for relid in crowded for path in tables[relid].closed])
            done = done.unionByName(closed.coalesce(1).withColumn("bucket", F.lit(CLOSED)))
        written = self._store.write(done)
        for relid in planned:
            if relid in crowded:
                tables[relid].closed = []
            self._replace(relid, touched.get(relid), written.get(relid, {}), buckets[relid])

    def _concerned(self, planned: Mapping[int, TablePlan], buckets: Mapping[int, int]) -> tuple[list[int], list[int]]:
        """The stored tables that have to be done anew wholly, and those of which only some buckets."""
        stored = {relid: table for relid, table in self._manifest.tables.items() if relid in planned}
        wholly = [relid for relid, t in stored.items() if planned[relid].touches_all or t.buckets != buckets[relid]]
        return wholly, [relid for relid in stored if relid not in wholly]

    def _replace(
        self, relid: int, touched: list[int] | None, written: dict[int, list[tuple[str, int]]], buckets: int
    ) -> None:
        """Put the written files in the place of those that were done anew."""
        table = self._manifest.tables.setdefault(relid, TableFiles([], (-1, 0)))
        for bucket in list(table.files) if touched is None else touched:
            table.files.pop(bucket, None)
        for bucket, files in written.items():
            paths = [path for path, _ in files]
            if bucket == CLOSED:
                table.closed += paths
            else:
                # A row that moved to another bucket was written by the task that carried it.
                table.files.setdefault(bucket, []).extend(paths)
        table.buckets = buckets
        sizes = {path: size for files in written.values() for path, size in files}
        table.sizes = {path: sizes.get(path, table.sizes.get(path, 0)) for path in paths_of(table.files)}

    def _describe(
        self,
        planned: Mapping[int, TablePlan],
        buckets: Mapping[int, int],
        versions: Mapping[tuple[int, str], Version],
        survey: Sequence[Row],
    ) -> None:
        """Note the tables' versions, and since when each has its name."""
        firsts: dict[tuple[int, str], Place] = {}
        for row in survey:
            first = row["first"]
            firsts[row["relid"], row["relation"]] = (first["position"], first["seq"])
        for relid, plan in planned.items():
            table = self._manifest.tables[relid]
            table.whole = stays_whole(plan, table if table.versions else None)
            for version in plan.versions:
                name = (version.schema, version.table)
                if not table.versions or (table.current.schema, table.current.table) != name:
                    table.named = firsts[relid, version.relation]
                if version in table.versions:
                    table.versions.remove(version)
                table.versions.append(version)


def _fold_task(batches: Iterator[pa.RecordBatch], *, tables: Any, history: bool) -> Iterator[pa.RecordBatch]:
    return fold_batches(batches, tables, history=history)


def _survey(rows: DataFrame) -> list[Row]:
    """What there is of each version of each table."""
    order = F.struct("position", "seq", "time")
    moving = (F.col("op") == "update") & F.col("old").isNotNull() & (F.size("unchanged") > 0)
    found = rows.groupBy("relid", "relation").agg(
        F.min(order).alias("first"),
        F.max(order).alias("last"),
        F.count("*").alias("count"),
        F.sum("bytes").alias("bytes"),
        F.max(moving).alias("moving"),
        F.collect_list(F.when(F.col("op") == "truncate", order)).alias("truncates"),
    )
    return found.collect()


def _runs(rows: DataFrame, survey: Sequence[Row]) -> list[Run]:
    """The runs of changes of each version. Where a table went back to an earlier version, every run by itself."""
    runs = [Run(row["relid"], row["relation"], Moment(*row["first"]), Moment(*row["last"])) for row in survey]
    mixed = set()
    for relid in {run.relid for run in runs}:
        own = sorted((run for run in runs if run.relid == relid), key=lambda run: run.first)
        if any(now.first < before.last for before, now in itertools.pairwise(own)):
            mixed.add(relid)
    if not mixed:
        return runs
    window = Window.partitionBy("relid").orderBy("position", "seq")
    others = rows.filter(F.col("relid").isin(*mixed)).withColumn("previous", F.lag("relation").over(window))
    turns = others.filter(F.col("previous").isNull() | (F.col("previous") != F.col("relation")))
    exact = [
        Run(row["relid"], row["relation"], *[Moment(row["position"], row["seq"], row["time"])] * 2)
        for row in turns.select("relid", "relation", "position", "seq", "time").collect()
    ]
    return [run for run in runs if run.relid not in mixed] + exact


def _versions(relations: DataFrame, survey: Iterable[Row]) -> dict[tuple[int, str], Version]:
    """The versions of these tables, by OID and fingerprint, which two tables of one name have in common."""
    wanted = {(row["relid"], row["relation"]) for row in survey}
    known = {row["relation"]: Version.of(row.asDict(recursive=True)) for row in relations.collect()}
    return {(relid, one): dataclasses.replace(known[one], relid=relid) for relid, one in wanted if one in known}


def _stored(folded: DataFrame, spread: DataFrame) -> DataFrame:
    """Rows as they are stored, with their bucket."""
    hashed = F.when(F.col("until_position").isNull(), F.xxhash64("identifier"))
    rows = folded.join(spread, "relid").withColumn("hash", hashed)
    rows = rows.withColumn("bucket", F.coalesce(routing.bucket(F.col("hash")), F.lit(CLOSED)))
    for name in ("time", "until_time"):
        rows = rows.withColumn(name, F.timestamp_micros(name))
    names = [part.split()[0] for part in ROWS.split(", ")]
    return rows.select(*names, "bucket")
