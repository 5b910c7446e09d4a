"""Write the schemas of Debezium's events as Kafka Connect's JsonConverter does.

Sources: Debezium's documentation, "Data change events"; PostgresSourceInfoStructMaker.java, Envelope.java and
LogicalDecodingMessageMonitor.java. The
stream does not send NOT NULL: columns outside the key are optional.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pgtail._orjson import orjson
from pgtail.changes.relations import Column
from pgtail.outputs.debezium.values import Converter

Schema = dict[str, Any]


def _field(type_: str, name: str, *, optional: bool = False) -> Schema:
    return {"type": type_, "optional": optional, "field": name}


def _struct(name: str, fields: Sequence[Schema], *, optional: bool = False, **more: object) -> Schema:
    return {"type": "struct", "fields": fields, "optional": optional, "name": name, **more}


_TIMES: Final = [_field("int64", name, optional=True) for name in ("ts_ms", "ts_us", "ts_ns")]
_SOURCE: Final = _struct(
    "io.debezium.connector.postgresql.Source",
    [
        *[_field("string", name) for name in ("version", "connector", "name")],
        _field("int64", "ts_ms"),
        {**_field("string", "snapshot", optional=True), "default": "false"},
        _field("string", "db"),
        _field("string", "sequence", optional=True),
        *[_field("int64", name, optional=True) for name in ("ts_us", "ts_ns")],
        *[_field("string", name) for name in ("schema", "table")],
        *[_field("int64", name, optional=True) for name in ("txId", "lsn", "xmin")],
    ],
    field="source",
)
_TRANSACTION: Final = _struct(
    "event.block",
    [_field("string", "id"), _field("int64", "total_order"), _field("int64", "data_collection_order")],
    optional=True,
    version=1,
    field="transaction",
)
_COLLECTION: Final = _struct(
    "event.collection", [_field("string", "data_collection"), _field("int64", "event_count")], version=1
)
BOUNDARY: Final = orjson.dumps(
    _struct(
        "io.debezium.connector.common.TransactionMetadataValue",
        [
            _field("string", "status"),
            _field("string", "id"),
            _field("int64", "event_count", optional=True),
            {"type": "array", "items": _COLLECTION, "optional": True, "field": "data_collections"},
            _field("int64", "ts_ms"),
        ],
        version=1,
    )
)
"""The schema of the events for the begin and end of a transaction."""
_PREFIX: Final = _field("string", "prefix", optional=True)
_MESSAGE: Final = _struct(
    "io.debezium.connector.postgresql.Message",
    [_PREFIX, _field("bytes", "content", optional=True)],
    version=1,
    field="message",
)
MESSAGE: Final = orjson.dumps(
    _struct(
        "io.debezium.connector.postgresql.MessageValue",
        [_SOURCE, _TRANSACTION, _field("string", "op"), *_TIMES, _MESSAGE],
        version=1,
    )
)
"""The schema of logical decoding messages."""
MESSAGE_KEY: Final = orjson.dumps(_struct("io.debezium.connector.postgresql.MessageKey", [_PREFIX], version=1))
"""The schema of their keys."""


def envelope(prefix: str, schema: str, table: str, columns: Iterable[tuple[Column, Converter]], *, key: bool) -> bytes:
    """The schema of the changes of a table; `key` says that its identity columns are never NULL."""
    named = _named(prefix, schema, table)
    cells = [
        {**converter.schema, "optional": not (key and column.key), "field": column.name}
        for column, converter in columns
    ]
    rows = [_struct(f"{named}.Value", cells, optional=True, field=which) for which in ("before", "after")]
    fields = [*rows, _SOURCE, _TRANSACTION, _field("string", "op"), *_TIMES]
    return orjson.dumps(_struct(f"{named}.Envelope", fields, version=1))


def key(prefix: str, schema: str, table: str, columns: Iterable[tuple[Column, Converter]]) -> bytes:
    """The schema of the keys of a table's changes."""
    fields = [{**converter.schema, "optional": False, "field": column.name} for column, converter in columns]
    return orjson.dumps(_struct(f"{_named(prefix, schema, table)}.Key", fields))


def _named(prefix: str, schema: str, table: str) -> str:
    return ".".join([_avro(prefix, first=True), _avro(schema), _avro(table)])


def _avro(name: str, *, first: bool = False) -> str:
    """A part of a schema's name, with underscores for characters that Avro does not allow."""
    safe = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return re.sub(r"\A[0-9]", "_", safe) if first else safe
