"""DataFrames of rows as text -> DataFrames of typed rows, a column for each of the table's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- as everybody writes it
from pyspark.sql import types as T  # noqa: N812 -- as everybody writes it

from pgtail.spark.folding.versions import Version, names
from pgtail.spark.typed.arrow_types import is_json
from pgtail.spark.typed.casts import RESCUED, ColumnType, typed

_SCALARS: dict[pa.DataType, T.DataType] = {
    pa.string(): T.StringType(),
    pa.bool_(): T.BooleanType(),
    pa.int16(): T.ShortType(),
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
    pa.float32(): T.FloatType(),
    pa.float64(): T.DoubleType(),
    pa.date32(): T.DateType(),
    pa.timestamp("us"): T.TimestampNTZType(),
    pa.timestamp("us", tz="UTC"): T.TimestampType(),
    pa.binary(): T.BinaryType(),
}
_TEXTS = T.MapType(T.StringType(), T.StringType())

VALUES, OLD, UNDECODED = "values", "old", "undecoded"
"""The columns of the rows that are read: maps from a column to its text, and the names of those not to be read."""


def columns_of(versions: Iterable[Version]) -> list[ColumnType]:
    """A column for every name that any of the versions has, of a type that holds them all."""
    return [ColumnType.holding(name, types) for name, types in names(versions).items()]


def spark_type(kind: pa.DataType) -> T.DataType:
    """An Arrow type as Spark's."""
    if pa.types.is_list(kind):
        return T.ArrayType(spark_type(kind.value_type))
    if pa.types.is_decimal(kind):
        return T.DecimalType(kind.precision, kind.scale)
    return _SCALARS[kind]


def typed_frame(
    rows: DataFrame, columns: Sequence[ColumnType], others: Sequence[str], *, old: bool = False
) -> DataFrame:
    """The table's columns from `values`; behind them `others` as they are, with an underscore before their names, and
    `_rescued`; with `old` also `_old` and `_old_rescued`, the same of the map `old`.

    Where the table has a column of such a name, ours has more underscores. A table without columns has no `_old`: no
    format stores a struct of nothing.
    """
    old = old and bool(columns)
    taken = {column.name for column in columns}
    kinds = {field.name: field.dataType for field in rows.schema}
    fields = [T.StructField(column.name, spark_type(column.kind)) for column in columns]
    ours = [T.StructField(_free(name, taken), kinds[name]) for name in others]
    ours.append(T.StructField(_free("rescued", taken), _TEXTS))
    if old:
        ours += [
            T.StructField(_free("old", taken), T.StructType(fields)),
            T.StructField(_free("old_rescued", taken), _TEXTS),
        ]
    schema = T.StructType([*fields, *ours])
    needed = list(dict.fromkeys([VALUES, UNDECODED, *([OLD] if old else []), *others]))
    return rows.select(*needed).mapInArrow(_Typing(tuple(columns), tuple(others), old, tuple(schema.names)), schema)


def as_variant(frame: DataFrame, versions: Iterable[Version]) -> DataFrame:
    """json and jsonb columns as VARIANT; what has no place in one is rescued."""
    columns = names(versions)
    found = [name for name, types in columns.items() if all(map(is_json, types))]
    rescued = _free("rescued", set(columns))
    lost = F.create_map().cast(_TEXTS)
    for name in found:
        column = F.col(_quoted(name))
        unread = column.isNotNull() & F.try_parse_json(column).isNull()
        lost = F.map_concat(
            lost, F.when(unread, F.create_map(F.lit(name), column)).otherwise(F.create_map().cast(_TEXTS))
        )
    if not found:
        return frame
    merged = F.map_concat(F.coalesce(rescued, F.create_map().cast(_TEXTS)), lost)
    shown = [F.try_parse_json(_quoted(n)).alias(n) if n in found else F.col(_quoted(n)) for n in frame.columns]
    kept = F.when(F.size(merged) > 0, merged).alias(rescued)
    return frame.select(*[kept if n == rescued else one for n, one in zip(frame.columns, shown, strict=True)])


@dataclass(frozen=True, slots=True)
class _Typing:
    """What a task does with its rows."""

    columns: tuple[ColumnType, ...]
    others: tuple[str, ...]
    old: bool
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            undecoded = batch.column(UNDECODED)
            arrays, rescued = typed(batch.column(VALUES).cast(RESCUED), self.columns, undecoded)
            arrays += [*map(batch.column, self.others), rescued]
            if self.old:
                before, lost = typed(batch.column(OLD).cast(RESCUED), self.columns, undecoded)
                sent = pa.StructArray.from_arrays(
                    before, [column.name for column in self.columns], mask=batch.column(OLD).is_null()
                )
                arrays += [sent, lost]
            yield pa.RecordBatch.from_arrays(arrays, list(self.names))


def _free(name: str, taken: set[str]) -> str:
    found = f"_{name}"
    while found in taken:
        found = f"_{found}"
    return found


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))
