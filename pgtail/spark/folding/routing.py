"""Rows of `changes` -> the events that the fold takes, each routed to the group of keys that it concerns.

Spark's own expressions, no Python. Two changes whose order matters always meet in one group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- as everybody writes it

from pgtail.spark.folding.fold_task import EVENT, ROW
from pgtail.spark.folding.plan import TablePlan

ROWS = ("insert", "update", "delete")
OUTCOMES = ("commit_prepared", "rollback_prepared")

_ROUTES = "relid long, relation string, mode string, keys array<string>, buckets int"


def number_of(lsn: Column) -> Column:
    """The number of an LSN in PostgreSQL's notation."""
    halves = F.split(lsn, "/")
    return F.conv(halves[0], 16, 10).cast("long") * F.lit(1 << 32) + F.conv(halves[1], 16, 10).cast("long")


def committed(changes: DataFrame, prepared: DataFrame | None) -> tuple[DataFrame, DataFrame]:
    """What is committed by now, and what is still prepared; `prepared` is what earlier batches left so.

    A prepared transaction's changes take the place of its outcome in the stream. Until then it holds the locks of its
    rows, so nothing lies between that its order with them would matter to, and every batch ends at one place.
    """
    outcomes = changes.filter(F.col("op").isin(*OUTCOMES)).dropDuplicates(["gid", "xid"])
    outcomes = outcomes.select(
        "gid",
        "xid",
        F.col("op").alias("_outcome"),
        number_of(F.col("commit_lsn")).alias("_position"),
        F.col("commit_ts").alias("_commit_ts"),
    )
    now = changes.filter(F.col("state") == "prepared")
    waiting = now if prepared is None else prepared.unionByName(now)
    done = waiting.join(F.broadcast(outcomes.filter(F.col("_outcome") == OUTCOMES[0])), ["gid", "xid"])
    done = done.withColumn("position", F.col("_position")).withColumn("commit_ts", F.col("_commit_ts"))
    left = waiting.join(F.broadcast(outcomes), ["gid", "xid"], "left_anti")
    return changes.filter(F.col("state").isNull()).unionByName(done.select(changes.columns)), left.select(
        changes.columns
    )


def ordered(changes: DataFrame) -> DataFrame:
    """The row changes and truncates, with the order and the time of their transaction in numbers."""
    found = changes.filter(F.col("op").isin(*ROWS, "truncate") & F.col("relid").isNotNull())
    return found.select(
        "relid",
        "relation",
        "op",
        "position",
        F.coalesce("seq", "ordinal").alias("seq"),
        F.unix_micros("commit_ts").alias("time"),
        "old",
        "new",
        "unchanged",
        "undecoded",
        "bytes",
    )


def routes(spark: SparkSession, plans: Mapping[int, TablePlan], buckets: Mapping[int, int]) -> DataFrame:
    """For each version of each table: how its changes find their rows."""
    rows = [
        (relid, version.relation, plan.mode, list(version.key), buckets[relid])
        for relid, plan in plans.items()
        for version in plan.versions
    ]
    return F.broadcast(spark.createDataFrame(rows, _ROUTES))


def identified(rows: DataFrame, routing: DataFrame) -> DataFrame:
    """The row changes with `before` and `now`: hashes of what identifies the row before and after the change."""
    sent = rows.filter(F.col("op") != "truncate").join(routing, ["relid", "relation"])
    empty = F.create_map().cast("map<string,string>")
    old, new = F.coalesce("old", empty), F.coalesce("new", empty)
    unchanged = F.coalesce("unchanged", F.array().cast("array<string>"))
    missing = F.map_filter(old, lambda name, _: F.array_contains(unchanged, name) & ~F.map_contains_key(new, name))
    sent = sent.withColumn("filled", F.map_concat(new, missing))
    change = F.array(F.col("position").cast("string"), F.col("seq").cast("string"))
    appended = F.col("mode") == "append"
    by_key = F.col("mode") == "key"
    before = F.when(by_key, _values("old", "new")).when(appended, change).otherwise(pairs(F.col("old")))
    now = F.when(by_key, _values("new", "old")).when(appended, change).otherwise(pairs(F.col("filled")))
    return sent.withColumn("before", F.xxhash64(before)).withColumn("now", F.xxhash64(now))


def pairs(values: Column) -> Column:
    """All of a row, as Fold.identifier gives it under identity full."""
    return F.flatten(F.transform(F.array_sort(F.map_entries(values)), lambda e: F.array(e["key"], e["value"])))


def _values(first: str, second: str) -> Column:
    """The key's values, from one map, or where it does not have them from the other."""
    return F.transform("keys", lambda name: F.coalesce(F.try_element_at(first, name), F.try_element_at(second, name)))


def ways(sent: DataFrame) -> DataFrame:
    """Each once: the buckets that changes touch; with hashes before and now where values stayed behind in a move, that
    were not sent and that only the fold can carry."""
    unsent = (F.col("mode") == "key") & (F.col("op") == "update") & (F.size("unchanged") > 0)
    moved = unsent & (F.col("before") != F.col("now"))
    hashes = (F.when(moved, F.col(name)).alias(name) for name in ("before", "now"))
    touched = F.array(bucket(F.col("before")), bucket(F.col("now"))).alias("buckets")
    return sent.select("relid", *hashes, touched).distinct()


def routed(sent: DataFrame, roots: DataFrame) -> DataFrame:
    """The events of a batch. A row that moves with all its values is two of them: gone from here, new there."""
    update = F.col("op") == "update"
    left = (F.col("before") != F.col("now")) & (F.size(F.coalesce("unchanged", F.array())) == 0)
    apart = update & (((F.col("mode") == "key") & left) | (F.col("mode") == "bag"))
    gone = F.struct(F.lit("delete").alias("op"), F.col("before").alias("hash"))
    put = F.struct(F.lit("insert").alias("op"), F.col("now").alias("hash"))
    deleted = F.struct(F.lit("delete").alias("op"), F.col("before").alias("hash"))
    whole = F.struct(F.col("op"), F.col("now").alias("hash"))
    events = F.when(apart, F.array(gone, put)).when(F.col("op") == "delete", F.array(deleted)).otherwise(F.array(whole))
    sent = sent.withColumn("apart", apart)
    found = sent.select("*", F.posexplode(events).alias("half", "event"))
    found = found.withColumn("op", F.col("event.op")).withColumn("hash", F.col("event.hash"))
    found = found.withColumn("new", F.when(F.col("apart"), F.col("filled")).otherwise(F.col("new")))
    return _grouped(found.withColumn("turn", F.lit(1)), roots)


def stored_rows(rows: DataFrame, tables: DataFrame, roots: DataFrame) -> DataFrame:
    """The rows of the state so far as events. `tables` has relid, mode and buckets."""
    found = rows.join(tables, "relid").withColumn("op", F.lit(ROW)).withColumn("turn", F.lit(0))
    found = found.withColumn("half", F.lit(0)).withColumn("old", F.lit(None).cast("map<string,string>"))
    found = found.withColumn("unchanged", F.lit(None).cast("array<string>"))
    found = found.withColumn("time", F.unix_micros("time")).withColumnRenamed("values", "new")
    return _grouped(found, roots)


def tables_of(spark: SparkSession, plans: Mapping[int, TablePlan], buckets: Mapping[int, int]) -> DataFrame:
    """How each table is spread: its mode and number of buckets."""
    rows = [(relid, plan.mode, buckets[relid]) for relid, plan in plans.items()]
    return F.broadcast(spark.createDataFrame(rows, "relid long, mode string, buckets int"))


def roots_of(spark: SparkSession, found: Mapping[tuple[int, int], int]) -> DataFrame:
    """The groups of keys between which rows moved."""
    rows = [(relid, one, root) for (relid, one), root in found.items()]
    return F.broadcast(spark.createDataFrame(rows, "relid long, hash long, root long"))


def bucket(hashed: Column) -> Column:
    """The bucket of a hash among `buckets`."""
    return F.pmod(hashed, F.col("buckets")).cast("int")


def in_order(events: DataFrame) -> DataFrame:
    """Each group together in one partition, those of a bucket too, and in order."""
    spread = events.withColumn("bucket", bucket(F.col("group"))).repartition("relid", "bucket")
    order = ("relid", "bucket", "group", "turn", "position", "seq", "half")
    return spread.sortWithinPartitions(*order).select(*EVENT)


def _grouped(events: DataFrame, roots: DataFrame) -> DataFrame:
    found = events.join(roots, ["relid", "hash"], "left")
    group = F.when(F.col("mode") == "whole", F.lit(0).cast("long")).otherwise(F.coalesce("root", "hash"))
    needed: Iterable[str] = [*(name for name in EVENT if name != "group"), "turn", "half", "buckets"]
    return found.withColumn("group", group).select(*needed, "group")
