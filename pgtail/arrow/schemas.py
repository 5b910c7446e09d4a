"""The columns of `changes`, `relations`, `transactions` and `snapshots`."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_TYPES: Final = {
    "text": pa.string(),
    "texts": pa.list_(pa.string()),
    "values": pa.map_(pa.string(), pa.string()),
    "bytes": pa.binary(),
    "bool": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "date": pa.date32(),
    "time": pa.timestamp("us", tz="UTC"),
}


def fields(text: str) -> list[pa.Field]:
    """Fields of "NAME TYPE, NAME TYPE ..."."""
    return [pa.field(name, _TYPES[kind]) for name, kind in map(str.split, text.split(","))]


SNAPSHOT: Final = "snapshot"
"""The operation of a row of a table's snapshot."""

OUTCOMES: Final = ("commit_prepared", "rollback_prepared")
"""The operations of the outcomes of prepared transactions."""

CHANGES: Final = pa.schema(
    fields(
        "op text, schema text, table text, xid bigint, seq bigint, position bigint, commit_lsn text, commit_ts time,"
        "prepare_lsn text, prepare_ts time, lsn text, lsn_number bigint, origin text, gid text, state text,"
        "identity text, key texts, old values, new values, unchanged texts, undecoded texts, cascade bool,"
        "restart_identity bool, relation text, relid bigint, prefix text, content bytes, transactional bool,"
        "bytes bigint, ordinal bigint, commit_date date"
    )
)
"""One row for each change (man page pgtail-spark(1) describes them); (position, ordinal, seq) is their order."""

WITH_CONTEXT: Final = CHANGES.append(pa.field("context", _TYPES["text"]))
"""The same where the context of changes is asked for."""

_COLUMN: Final = pa.struct(fields("name text, type text, type_oid bigint, typmod int, key bool"))

RELATIONS: Final = pa.schema(
    [
        *fields("relation text, relid bigint, schema text, table text, identity text"),
        pa.field("columns", pa.list_(_COLUMN)),
        *fields("position bigint, ordinal bigint, partition text"),
    ]
)
"""One row for each version of a table, with the place where it was first seen, and the partition whose replica identity
it has, as in Relation, as SQL writes its name."""

DDL: Final = pa.schema(fields("relid bigint, position bigint, ordinal bigint, seq bigint, content text"))
"""One row for each schema change of `pgtail ddl`, with its place, the `seq` of the row before it, and its content: NULL
if it is not known what was done. `relid` is 0 where that may be to any table."""

TRANSACTIONS: Final = pa.schema(
    fields(
        "position bigint, xid bigint, commit_lsn text, commit_ts time, prepare_lsn text, prepare_ts time, origin text,"
        "gid text, state text, changes bigint, messages bigint, bytes bigint, tables texts, commit_date date"
    )
)

SNAPSHOTS: Final = pa.schema(
    fields(
        "relid bigint, schema text, table text, lsn text, position bigint, commit_ts time, relation text, rows bigint,"
        "capture text"
    )
)
"""One row for each snapshot of a table; `position` is that of its rows."""
