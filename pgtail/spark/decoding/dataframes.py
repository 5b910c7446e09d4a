"""Captures -> DataFrames: changes, transactions, relations. Works in any session; writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from pgtail.arrow.decoding.contexts import contexts_of
from pgtail.arrow.decoding.decode import changes_of
from pgtail.arrow.schemas import CHANGES, RELATIONS, TRANSACTIONS, WITH_CONTEXT
from pgtail.arrow.segments.ranges import Parts
from pgtail.arrow.segments.survey import first_seen
from pgtail.spark.decoding.transactions import OWN
from pgtail.spark.jobs import frame, groups, spark_schema
from pgtail.spark.segments.listing import listing, plan, surveys
from pgtail.storage import StorageOptions, locate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Options = Mapping[str, str] | None
"""Options of the storage, as --storage takes them."""


def changes(
    spark: SparkSession,
    captures: str | Sequence[str],
    *,
    tables: Sequence[str] = (),
    context: str | None = None,
    storage: Options = None,
) -> DataFrame:
    """One row for each change in the closed segments of these captures (directories, files, or patterns of them), and
    for each row of the snapshots that directories list.

    A change that several of them have comes once. `tables` are globs, as --table takes them. With `context`, a prefix
    as --context takes it, there is a column of that name. Raises InputError if
    there is nothing to read; if a segment is damaged, Spark's job fails and names it. A segment is not read if its
    contents have none of the tables.
    """
    options = StorageOptions.of(storage)
    listed = listing(_several(captures), options)
    copied = listed.snapshot_segments(tables)
    sizes = listed.segments | copied
    parts = {**plan(lambda paths: surveys(spark, paths, options), listed.segments), **dict.fromkeys(copied)}

    def decoded(items: Sequence[tuple[str, Parts]]) -> Iterator[pa.RecordBatch]:
        for path, some in items:
            contexts = contexts_of(context, path, options)
            yield from changes_of(locate(path, options), path, parts=some, tables=tables, contexts=contexts)

    items = groups(spark, [(item, sizes[item[0]]) for item in parts.items()])
    return frame(spark, decoded, items, spark_schema(CHANGES if context is None else WITH_CONTEXT))


def transactions(found: DataFrame) -> DataFrame:
    """One row for each transaction in `changes`: how many changes and messages, how many bytes, which tables."""
    from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

    of_one = found.where("xid IS NOT NULL AND op NOT IN ('commit_prepared', 'rollback_prepared')")
    # The rows of one Truncate message each have its size.
    alone = F.when(F.col("op") != "truncate", F.col("bytes"))
    truncates = F.collect_set(F.when(F.col("op") == "truncate", F.struct("ordinal", "bytes")))
    sizes = F.aggregate(truncates, F.lit(0).cast("bigint"), lambda sum_, one: sum_ + one["bytes"])
    counted = of_one.groupBy("position").agg(
        *[F.first(name).alias(name) for name in OWN],
        F.count("seq").alias("changes"),
        F.count(F.when(F.col("op") == "message", 1)).alias("messages"),
        (F.coalesce(F.sum(alone), F.lit(0)) + sizes).alias("bytes"),
        F.array_sort(F.collect_set(F.concat("schema", F.lit("."), "table"))).alias("tables"),
    )
    return counted.select(TRANSACTIONS.names)


def relations(spark: SparkSession, captures: str | Sequence[str], *, storage: Options = None) -> DataFrame:
    """One row for each version of each table in these captures, with the place where it was first seen."""
    options = StorageOptions.of(storage)
    listed = listing(_several(captures), options)
    surveyed = surveys(spark, listed.segments | listed.snapshot_segments(), options)
    rows = first_seen(row for survey in surveyed for row in survey.relations)
    return spark.createDataFrame(
        [tuple(row[name] for name in RELATIONS.names) for row in rows], spark_schema(RELATIONS)
    )


def _several(captures: str | Sequence[str]) -> Sequence[str]:
    return [captures] if isinstance(captures, str) else captures
