"""Debezium's events of made-up transactions, and Kafka Connect's rules for their schemas."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from pgtail.changes.relations import Column
from pgtail.outputs.debezium.values import Converter, converter
from pgtail.values import Types
from pgtail.values.oids import OIDS
from tests.support.encode import begin, commit, relation
from tests.support.render import render

Json = dict[str, Any]

EPOCH = 946_684_800_000_000
"""Microseconds from 1970 to PostgreSQL's epoch."""
AT = 1_559_033_904_863_123
"""The time of the documentation's events, in microseconds since 1970."""

CUSTOMERS = relation(name="customers", columns=(("id", 23), ("first_name", 1043), ("last_name", 1043), ("email", 1043)))
ANNE = ("1", "Anne", "Kretchmar", "annek@noanswer.org")


def events(*messages: bytes, **options: Any) -> list[Json]:
    """The events of a transaction with these messages, at the time of the documentation's events."""
    options = {"source_name": "PostgreSQL_server", "database": "postgres", **options}
    changes = (CUSTOMERS, begin(555, 24023128, AT - EPOCH), *messages, commit(24023128, 24023200, AT - EPOCH))
    return render(*changes, output="debezium", lsn=24023128, **options).objects


def numeric(precision: int, scale: int) -> int:
    """numeric's typmod."""
    return (precision << 16 | (scale & 0x7FF)) + 4


def made_for(name: str, typmod: int = -1, numbers: Any = "exact") -> Converter:
    """The converter of a column of a built-in type, or of a user's type of this name."""
    types, oid = Types(), OIDS.get(name, 20_000)
    if name not in OIDS:
        types.declare(oid, "public", name)
    return converter(Column("c", oid, typmod, False, types.type_name(oid, typmod), types.codec(oid)), numbers)


def known(event: Json) -> Json:
    """An event without the version and the times of processing. Null fields are dropped, because the documentation
    omits some of them."""
    payload = event.get("payload", event)
    payload = {key: value for key, value in payload.items() if key not in ("ts_ms", "ts_us", "ts_ns")}
    source = {key: value for key, value in payload["source"].items() if key not in ("version", "sequence")}
    return {
        key: value
        for key, value in {**payload, "source": {k: v for k, v in source.items() if v is not None}}.items()
        if value is not None
    }


SOURCE = {
    "connector": "postgresql",
    "name": "PostgreSQL_server",
    "ts_ms": AT // 1000,
    "ts_us": AT,
    "ts_ns": AT * 1000,
    "snapshot": "false",
    "db": "postgres",
    "schema": "public",
    "table": "customers",
    "txId": 555,
    "lsn": 24023128,
}
AFTER = {"id": 1, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}


def timeless(event: Json) -> Json:
    """An event without the times of processing, which are also the time of a non-transactional message."""
    source = {key: value for key, value in event.get("source", {}).items() if not key.startswith("ts_")}
    return {**{key: value for key, value in event.items() if key not in ("ts_ms", "ts_us", "ts_ns")}, "source": source}


KINDS: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int16": (int,),
    "int32": (int,),
    "int64": (int,),
    "float": (int, float, str),
    "double": (int, float, str),
    "string": (str,),
    "bytes": (str,),
}


def check(schema: Json, value: Any) -> None:
    """Whether Kafka Connect's JsonConverter can read a value of this schema; absent keys are null."""
    if value is None:
        assert schema["optional"], schema
    elif schema["type"] == "struct":
        assert set(value) <= {field["field"] for field in schema["fields"]}
        for field in schema["fields"]:
            if field["field"] in value or field["optional"]:
                check(field, value.get(field["field"]))
            else:
                raise AssertionError(f"{field} is missing")
    elif schema["type"] == "array":
        for item in value:
            check(schema["items"], item)
    elif schema["type"] == "map":
        for key, element in value:
            check(schema["keys"], key)
            check(schema["values"], element)
    else:
        assert isinstance(value, KINDS[schema["type"]]), (schema, value)
        if schema["type"].startswith("int"):
            bits = int(schema["type"][3:])
            assert -(1 << bits - 1) <= int(str(value)) < 1 << bits - 1
        if schema["type"] == "bytes":
            b64decode(str(value), validate=True)
