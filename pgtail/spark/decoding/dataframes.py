"""Captures -> DataFrames: changes, transactions, relations. Works in any session; writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pgtail.spark.decoding.decode import changes_of
from pgtail.spark.schemas import CHANGES, RELATIONS, TRANSACTIONS, spark_schema
from pgtail.spark.segments.listing import contents, files, literal, plan, segments, surveys
from pgtail.spark.segments.ranges import Parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def changes(spark: SparkSession, captures: str | Sequence[str], *, tables: Sequence[str] = ()) -> DataFrame:
    """One row for each change in the closed segments of these captures (directories, files, or patterns of them).

    A change that several of them hold comes once. `tables` are globs, as --table takes them. Raises InputError where
    there is nothing to read; where a segment is damaged, Spark's job fails and names it.
    """
    paths = segments(spark, [captures] if isinstance(captures, str) else captures)
    return changes_in(spark, plan(spark, paths), tables)


def changes_in(spark: SparkSession, parts: Mapping[str, Parts], tables: Sequence[str] = ()) -> DataFrame:
    """The changes in these parts of these segments."""
    if not parts:
        return spark.createDataFrame([], spark_schema(CHANGES))
    found = files(spark, [literal(path) for path in parts]).select("path", "content")
    # Where nothing is cut, the function that travels to the workers stays small.
    cut: dict[str, Parts] = {path: some for path, some in parts.items() if some is not None}
    return found.mapInArrow(_Decode(cut, tuple(tables)), spark_schema(CHANGES))


@dataclass(frozen=True, slots=True)
class _Decode:
    """What a task does with its files."""

    parts: dict[str, Parts]
    tables: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in contents(batch):
                yield from changes_of(content, path, parts=self.parts.get(path), tables=self.tables)


def transactions(found: DataFrame) -> DataFrame:
    """One row for each transaction in `changes`: how many changes and messages, how many bytes, which tables."""
    from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

    of_one = found.where("xid IS NOT NULL AND op NOT IN ('commit_prepared', 'rollback_prepared')")
    # The rows of one Truncate message each have its size.
    alone = F.when(F.col("op") != "truncate", F.col("bytes"))
    truncates = F.collect_set(F.when(F.col("op") == "truncate", F.struct("ordinal", "bytes")))
    sizes = F.aggregate(truncates, F.lit(0).cast("bigint"), lambda sum_, one: sum_ + one["bytes"])
    counted = of_one.groupBy("position").agg(
        *[F.first(name).alias(name) for name in _OF_TRANSACTION],
        F.count("seq").alias("changes"),
        F.count(F.when(F.col("op") == "message", 1)).alias("messages"),
        (F.coalesce(F.sum(alone), F.lit(0)) + sizes).alias("bytes"),
        F.array_sort(F.collect_set(F.concat("schema", F.lit("."), "table"))).alias("tables"),
    )
    return counted.select(TRANSACTIONS.names)


def added_up(parts: DataFrame) -> DataFrame:
    """Transactions whose changes came in several parts, each a row: one row for each."""
    from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

    added = parts.groupBy("position").agg(
        *[F.first(name).alias(name) for name in _OF_TRANSACTION],
        *[F.sum(name).alias(name) for name in ("changes", "messages", "bytes")],
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("tables")))).alias("tables"),
    )
    return added.select(TRANSACTIONS.names)


_OF_TRANSACTION = (
    "xid",
    "commit_lsn",
    "commit_ts",
    "prepare_lsn",
    "prepare_ts",
    "origin",
    "gid",
    "state",
    "commit_date",
)


def relations(spark: SparkSession, captures: str | Sequence[str]) -> DataFrame:
    """One row for each version of each table in these captures, with the place where it was first seen."""
    paths = segments(spark, [captures] if isinstance(captures, str) else captures)
    return relations_in(surveys(spark, paths)) if paths else spark.createDataFrame([], spark_schema(RELATIONS))


def relations_in(surveyed: DataFrame) -> DataFrame:
    """The same of surveys."""
    return first_seen(surveyed.selectExpr("inline(relations)"))


def first_seen(found: DataFrame) -> DataFrame:
    """Of several rows of one version of a table the first."""
    from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

    others = [name for name in RELATIONS.names if name != "relation"]
    first = F.min_by(F.struct(*others), F.struct("position", "ordinal")).alias("first")
    return found.groupBy("relation").agg(first).select("relation", "first.*")
