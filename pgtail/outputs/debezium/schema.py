"""Write the schemas of Debezium's events as Kafka Connect's JsonConverter does.

Sources: Debezium's documentation, "Data change events"; PostgresSourceInfoStructMaker.java, Envelope.java and
LogicalDecodingMessageMonitor.java. The
stream does not send NOT NULL: columns outside the key are optional.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from pgtail._orjson import orjson
from pgtail.changes.relations import Column
from pgtail.outputs.debezium.values import Converter

Schema = dict[str, Any]


def _field(type_: str, name: str, *, optional: bool = False) -> Schema:
    return {"type": type_, "optional": optional, "field": name}


_TIMES: Final = [_field("int64", name, optional=True) for name in ("ts_ms", "ts_us", "ts_ns")]
_SOURCE: Final[Schema] = {
    "type": "struct",
    "fields": [
        *[_field("string", name) for name in ("version", "connector", "name")],
        _field("int64", "ts_ms"),
        {**_field("string", "snapshot", optional=True), "default": "false"},
        _field("string", "db"),
        _field("string", "sequence", optional=True),
        *[_field("int64", name, optional=True) for name in ("ts_us", "ts_ns")],
        *[_field("string", name) for name in ("schema", "table")],
        *[_field("int64", name, optional=True) for name in ("txId", "lsn", "xmin")],
    ],
    "optional": False,
    "name": "io.debezium.connector.postgresql.Source",
    "field": "source",
}
_TRANSACTION: Final[Schema] = {
    "type": "struct",
    "fields": [_field("string", "id"), _field("int64", "total_order"), _field("int64", "data_collection_order")],
    "optional": True,
    "name": "event.block",
    "version": 1,
    "field": "transaction",
}
_COLLECTION: Final[Schema] = {
    "type": "struct",
    "fields": [_field("string", "data_collection"), _field("int64", "event_count")],
    "optional": False,
    "name": "event.collection",
    "version": 1,
}
BOUNDARY: Final = orjson.dumps(
    {
        "type": "struct",
        "fields": [
            _field("string", "status"),
            _field("string", "id"),
            _field("int64", "event_count", optional=True),
            {"type": "array", "items": _COLLECTION, "optional": True, "field": "data_collections"},
            _field("int64", "ts_ms"),
        ],
        "optional": False,
        "name": "io.debezium.connector.common.TransactionMetadataValue",
        "version": 1,
    }
)
"""The schema of the events for the begin and end of a transaction."""
MESSAGE: Final = orjson.dumps(
    {
        "type": "struct",
        "fields": [
            _SOURCE,
            _TRANSACTION,
            _field("string", "op"),
            *_TIMES,
            {
                "type": "struct",
                "fields": [_field("string", "prefix", optional=True), _field("bytes", "content", optional=True)],
                "optional": False,
                "name": "io.debezium.connector.postgresql.Message",
                "version": 1,
                "field": "message",
            },
        ],
        "optional": False,
        "name": "io.debezium.connector.postgresql.MessageValue",
        "version": 1,
    }
)
"""The schema of logical decoding messages."""
MESSAGE_KEY: Final = orjson.dumps(
    {
        "type": "struct",
        "fields": [_field("string", "prefix", optional=True)],
        "optional": False,
        "name": "io.debezium.connector.postgresql.MessageKey",
        "version": 1,
    }
)
"""The schema of their keys."""


def envelope(prefix: str, schema: str, table: str, columns: Iterable[tuple[Column, Converter]], *, key: bool) -> bytes:
    """The schema of the changes of a table; `key` says that its identity columns are never NULL."""
    named = _named(prefix, schema, table)
    row: Schema = {
        "type": "struct",
        "fields": [
            {**converter.schema, "optional": not (key and column.key), "field": column.name}
            for column, converter in columns
        ],
        "optional": True,
        "name": f"{named}.Value",
    }
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, _SOURCE, _TRANSACTION, _field("string", "op")]
    name = f"{named}.Envelope"
    return orjson.dumps({"type": "struct", "fields": [*fields, *_TIMES], "optional": False, "name": name, "version": 1})


def key(prefix: str, schema: str, table: str, columns: Iterable[tuple[Column, Converter]]) -> bytes:
    """The schema of the keys of a table's changes."""
    fields = [{**converter.schema, "optional": False, "field": column.name} for column, converter in columns]
    return orjson.dumps(
        {"type": "struct", "fields": fields, "optional": False, "name": f"{_named(prefix, schema, table)}.Key"}
    )


def _named(prefix: str, schema: str, table: str) -> str:
    return ".".join([_avro(prefix, first=True), _avro(schema), _avro(table)])


def _avro(name: str, *, first: bool = False) -> str:
    """A part of a schema's name, with underscores for characters that Avro does not allow."""
    safe = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return re.sub(r"\A[0-9]", "_", safe) if first else safe
