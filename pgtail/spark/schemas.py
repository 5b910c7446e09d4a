"""The columns of `changes`, `relations` and `transactions`, for Arrow and for Spark; imports no pyspark."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_TEXTS: Final = pa.list_(pa.string())
_VALUES: Final = pa.map_(pa.string(), pa.string())
_TIME: Final = pa.timestamp("us", tz="UTC")

CHANGES: Final = pa.schema(
    [
        ("op", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("xid", pa.int64()),
        ("seq", pa.int64()),
        ("position", pa.int64()),
        ("commit_lsn", pa.string()),
        ("commit_ts", _TIME),
        ("prepare_lsn", pa.string()),
        ("prepare_ts", _TIME),
        ("lsn", pa.string()),
        ("lsn_number", pa.int64()),
        ("origin", pa.string()),
        ("gid", pa.string()),
        ("state", pa.string()),
        ("identity", pa.string()),
        ("key", _TEXTS),
        ("old", _VALUES),
        ("new", _VALUES),
        ("unchanged", _TEXTS),
        ("undecoded", _TEXTS),
        ("cascade", pa.bool_()),
        ("restart_identity", pa.bool_()),
        ("relation", pa.string()),
        ("relid", pa.int64()),
        ("prefix", pa.string()),
        ("content", pa.binary()),
        ("transactional", pa.bool_()),
        ("bytes", pa.int64()),
        ("ordinal", pa.int64()),
        ("commit_date", pa.date32()),
    ]
)
"""One row for each change (man page pgtail-spark(1) describes them); (position, ordinal, seq) is their order."""

_COLUMN: Final = pa.struct(
    [
        ("name", pa.string()),
        ("type", pa.string()),
        ("type_oid", pa.int64()),
        ("typmod", pa.int32()),
        ("key", pa.bool_()),
    ]
)

RELATIONS: Final = pa.schema(
    [
        ("relation", pa.string()),
        ("relid", pa.int64()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("identity", pa.string()),
        ("columns", pa.list_(_COLUMN)),
        ("position", pa.int64()),
        ("ordinal", pa.int64()),
    ]
)
"""One row for each version of a table, with the place where it was first seen."""

TRANSACTIONS: Final = pa.schema(
    [
        ("position", pa.int64()),
        ("xid", pa.int64()),
        ("commit_lsn", pa.string()),
        ("commit_ts", _TIME),
        ("prepare_lsn", pa.string()),
        ("prepare_ts", _TIME),
        ("origin", pa.string()),
        ("gid", pa.string()),
        ("state", pa.string()),
        ("changes", pa.int64()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("tables", _TEXTS),
        ("commit_date", pa.date32()),
    ]
)
"""One row for each transaction."""

_SPARK: Final = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.date32(): "date",
    _TIME: "timestamp",
}


def spark_type(kind: pa.DataType) -> str:
    """An Arrow type in Spark's words."""
    if pa.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_type(kind.key_type)}, {spark_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'`{field.name}`: {spark_type(field.type)}' for field in kind)}>"
    return _SPARK[kind]


def spark_schema(schema: pa.Schema) -> str:
    """An Arrow schema as Spark's DDL."""
    return ", ".join(f"`{field.name}` {spark_type(field.type)}" for field in schema)
