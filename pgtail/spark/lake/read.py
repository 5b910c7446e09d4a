"""Reading the tables of OUT in a Spark session that has no jar of Delta's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pgtail.errors import InputError
from pgtail.spark.files import join, place_of
from pgtail.spark.lake.catalog import folder_in
from pgtail.spark.lake.delta import Table
from pgtail.spark.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAMED: tuple[str, ...] = ("tables", "state", "history")


def read(spark: SparkSession, uri: str, table: str, version: int | None = None) -> DataFrame:
    """A table of the folder `uri`, as it is now or as of a version of Delta's log.

    `table` is changes, transactions, relations or catalog, or tables/NAME, state/NAME or history/NAME, where NAME is
    the table's schema.table. Raises InputError where there is no such table.
    """
    out = place_of(uri)
    kind, _, name = table.partition("/")
    place = join(out, folder_in(out, kind, name) if kind in _NAMED and name else table)
    found = Table(place, version)
    if found.schema is None:
        raise InputError(f"there is no table {table}", source=out)
    schema = spark_schema(found.schema)
    paths = [join(place, file.path) for file in found.files()]
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*map(literal, paths))


def literal(path: str) -> str:
    """A path as Spark's readers take it, which look for patterns in it."""
    return re.sub(r"[\\*?\[\]{}]", r"\\\g<0>", path)
