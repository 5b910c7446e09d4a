"""Reading the tables of OUT in a Spark session that has no jar of Delta's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from pgtail.errors import InputError
from pgtail.spark.jobs import frame, spark_schema
from pgtail.spark.lake.catalog import folder_in
from pgtail.spark.lake.delta import LakeTable
from pgtail.spark.lake.parquet import opened
from pgtail.storage import Location, StorageOptions, locate_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAMED: tuple[str, ...] = ("tables", "state", "history")


def read(
    spark: SparkSession,
    uri: str,
    table: str,
    version: int | None = None,
    *,
    columns: Sequence[str] = (),
    storage: Mapping[str, str] | None = None,
) -> DataFrame:
    """A table of the folder `uri`, as it is now or as of a version of Delta's log.

    `table` is changes, transactions, relations, snapshots, ddl or catalog, or tables/NAME, state/NAME or history/NAME,
    where NAME is the table's schema.table; `storage` are options as --storage takes them. With `columns` only these are
    read, which saves time in an object store: there the tasks do not know the columns of a query. Raises InputError if
    there is no such table or column.
    """
    out = locate_target(uri, StorageOptions.of(storage))
    kind, _, name = table.partition("/")
    place = out / (folder_in(out, kind, name) if kind in _NAMED and name else table)
    opened_table = LakeTable(place, version)
    if opened_table.schema is None:
        raise InputError(f"there is no table {table}", source=str(out))
    selected = opened_table.schema if not columns else _selected(opened_table.schema, columns, str(place))
    schema = spark_schema(selected)
    places = [place / file.path for file in opened_table.files()]
    if place.path is None or not places:
        # Spark opens object stores only with Hadoop's jars.
        return frame(spark, partial(_rows, schema=selected), places, schema)
    return spark.read.schema(schema).parquet(*[literal(str(one)) for one in places])


def _selected(schema: pa.Schema, columns: Sequence[str], source: str) -> pa.Schema:
    """The schema with these columns alone, in this order. Raises InputError."""
    for name in columns:
        if name not in schema.names:
            raise InputError(f"there is no column {name}; there are {', '.join(schema.names)}", source=source)
    return pa.schema([schema.field(name) for name in columns])


def _rows(place: Location, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file with these columns; NULL where the file lacks one."""
    with opened(place) as parquet:
        for rows in parquet.iter_batches(columns=schema.names):
            yield pa.RecordBatch.from_struct_array(_with_fields(rows.to_struct_array(), pa.struct(schema)))


def _with_fields(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array as this type, whose structs may have more fields: those are NULL."""
    if not pa.types.is_struct(kind):
        return values.cast(kind)
    there = dict(zip([f.name for f in values.type], values.flatten(), strict=True))
    fields = [_with_fields(there[f.name], f.type) if f.name in there else pa.nulls(len(values), f.type) for f in kind]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=values.is_null())


def literal(path: str) -> str:
    """Escape a path for Spark's readers, which look for patterns in it."""
    return re.sub(r"[\\*?\[\]{}]", r"\\\g<0>", path)
