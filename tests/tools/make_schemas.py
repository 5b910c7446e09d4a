"""Writes the JSON Schemas of what programs read, as man/schema/*.json: `make man`.

They take names and values from the declarations of the package where there are some. They allow keys, and values of
`op` and the like, that they do not know: later versions may add some. Tests check outputs against strict forms of them
(tests/support/schemas.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pgtail.capture.contents import PreparedTransaction, TableContents
from pgtail.changes.ddl import DdlColumn
from pgtail.changes.filters import OPS
from pgtail.doctor import Severity
from pgtail.native.plan import ROW_OPS
from pgtail.outputs.debezium import schema as kafka
from pgtail.postgres import slot_report
from pgtail.postgres.wal_holder import OpenTransaction
from pgtail.stats.rate import Counts
from pgtail.stats.report_json import OPS as OPS_OF_ROWS

SCHEMAS: Final = Path(__file__).parents[2] / "man" / "schema"
Schema = dict[str, Any]
_WIDTH: Final = 110
"""Characters of a line that is not broken."""

STRING: Final[Schema] = {"type": "string"}
INTEGER: Final[Schema] = {"type": "integer"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
NUMBER: Final[Schema] = {"type": "number"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
TRUE: Final[Schema] = {"const": True}
VALUES: Final[Schema] = {"type": "object", "additionalProperties": True}
LSN: Final[Schema] = {"type": "string", "pattern": "^[0-9A-F]{1,8}/[0-9A-F]{1,8}$"}
TIME: Final[Schema] = {"type": "string", "pattern": r"^\d+-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z( BC)?$"}
SECONDS: Final[Schema] = {"type": "number", "minimum": 0}


def said(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def listed(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def known(*values: str) -> Schema:
    """A string of which later versions may have other values."""
    return {"type": "string", "examples": [*values]}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def record(required: dict[str, Schema], optional: dict[str, Schema] | None = None, description: str = "") -> Schema:
    found: Schema = {"type": "object", "properties": {**required, **(optional or {})}, "required": [*required]}
    return said(found, description) if description else found


def map_of(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def by(key: str, kinds: dict[tuple[str, ...], Schema]) -> Schema:
    """Objects that differ by the value of a key, of which later versions may have other values."""
    rules = [
        {"if": {"properties": {key: {"enum": [*values]}}, "required": [key]}, "then": schema}
        for values, schema in kinds.items()
    ]
    return {"type": "object", "required": [key], "allOf": rules}


def either(key: str, with_it: Schema, without: Schema) -> Schema:
    """Objects that differ by whether they have a key."""
    return {"type": "object", "if": {"required": [key]}, "then": with_it, "else": without}


TABLE: Final = {
    "schema": said(STRING, "The table's schema."),
    "table": said(STRING, "The table's name."),
    "relid": said(COUNT, "The table's OID, in place of schema and table, if its description was never seen."),
}


# -- json, json-tx -----------------------------------------------------------------------------------------------------

OF_TRANSACTION: Final = {
    "xid": said(COUNT, "The transaction ID of the top-level transaction. Snapshots have none."),
    "commit_lsn": said(LSN, "The log position of the commit."),
    "commit_ts": said(TIME, "The time of the commit, in UTC."),
    "prepare_lsn": said(LSN, "In place of commit_lsn in a prepared transaction."),
    "prepare_ts": said(TIME, "In place of commit_ts in a prepared transaction."),
    "origin": said(STRING, "The replication origin, if the transaction came from another server."),
    "gid": said(STRING, "The identifier of a prepared transaction."),
    "state": said(known("prepared", "open"), "Absent for a committed transaction."),
}
OF_CHANGE: Final = {
    "lsn": said(LSN, "The position that the server sent with the change."),
    "context": said({"type": ["object", "string"], "additionalProperties": True}, "What --context found before it."),
    "context_base64": said(STRING, "The same, if its bytes are not UTF-8."),
    "aborted": said(TRUE, "It was rolled back (--show-aborted)."),
}
NAMES: Final = listed(STRING)
OF_ROW: Final = {
    **TABLE,
    "seq": said({"type": "integer", "minimum": 1}, "The number of the change in its transaction, before any filter."),
    "identity": said(known("default", "nothing", "full", "index"), "The table's replica identity."),
    "key": said(NAMES, "The columns of the replica identity."),
    "old": said(VALUES, "The old row, as far as it was sent: values by column."),
    "old_seen": said(NAMES, "Columns of old that were not sent, but seen before."),
    "new": said(VALUES, "The new row: values by column."),
    "unchanged": said(NAMES, "Columns of the new row that were not sent, because they did not change."),
    "changed": said(NAMES, "Under --changed: the columns that changed, or may have."),
    "maybe_changed": said(NAMES, "Those of them that may not have changed."),
    "undecoded": said(NAMES, "Columns whose value could not be read as their type."),
}


DDL_COLUMN: Final = {
    **dict.fromkeys(("not_null", "key", "has_default"), BOOLEAN),
    **dict.fromkeys(("generated", "missing", "default"), STRING),
}


def changes(of_transaction: dict[str, Schema]) -> dict[tuple[str, ...], Schema]:
    """The objects of rows, truncates and messages, with these keys of their transaction."""
    common = {**of_transaction, **OF_CHANGE}
    message = {
        "prefix": said(STRING, "The prefix of pg_logical_emit_message()."),
        "transactional": said(BOOLEAN, "Whether it belongs to a transaction."),
    }
    content = {
        "content": said(STRING, "The content, if it is UTF-8."),
        "content_base64": said(STRING, "The content, if it is not UTF-8."),
    }
    truncate = {"cascade": BOOLEAN, "restart_identity": BOOLEAN}
    named = {name: OF_ROW[name] for name in ("schema", "table", "relid", "seq")}
    with_new = tuple([op for op in ROW_OPS if op != "delete"])
    ddl_column = {"attnum": COUNT, "name": STRING, "type": STRING}
    assert {*ddl_column, *DDL_COLUMN} == {*DdlColumn.__struct_fields__}
    ddl = {
        **{name: OF_ROW[name] for name in ("schema", "table", "relid", "identity")},
        "dropped": TRUE,
        "partitioned": TRUE,
        "columns": listed(record(ddl_column, DDL_COLUMN)),
        "differences": NAMES,
        "statement": STRING,
        "error": STRING,
    }
    return {
        with_new: record({"op": STRING, "new": OF_ROW["new"]}, {**OF_ROW, **common}, "A row."),
        ("delete",): record({"op": STRING}, {**OF_ROW, **common}, "A row."),
        ("truncate",): record({"op": STRING, **truncate}, {**named, **common}, "A table was truncated."),
        ("message",): record({"op": STRING, **message}, {**content, **common}, "A logical message."),
        ("ddl",): record({"op": STRING, "tag": STRING}, {**ddl, **common}, "A schema change (pgtail ddl)."),
    }


def others() -> dict[tuple[str, ...], Schema]:
    """The other objects, which belong to no transaction or are about one."""
    op = {"op": STRING}
    prepared = {**op, "xid": COUNT, "gid": STRING}
    peers = {"packet_ts": TIME, "client": STRING, "server": STRING}
    end = {"end_lsn": said(LSN, "The position from which to resume."), "changes": said(COUNT, "The number of changes.")}
    boundary = {**OF_TRANSACTION, **TABLE, "snapshot": said(TRUE, "The rows of a table at a position follow.")}
    column = record({"name": STRING, "type": STRING, "typmod": INTEGER, "key": BOOLEAN})
    described = {"schema": STRING, "table": STRING, "relid": COUNT, "identity": STRING, "columns": listed(column)}
    return {
        ("commit_prepared",): record({**prepared, "commit_lsn": LSN, "end_lsn": LSN, "commit_ts": TIME}),
        ("rollback_prepared",): record(
            {**prepared, "prepare_end_lsn": LSN, "rollback_end_lsn": LSN, "rollback_ts": TIME}, {"prepare_ts": TIME}
        ),
        ("begin",): record(op, boundary, "With --transactions: a transaction begins."),
        ("commit", "prepare"): record(op, {**boundary, **end}, "With --transactions: a transaction is complete."),
        ("relation",): record(
            {**op, **described},
            {"differences": said(NAMES, "What changed, in words.")},
            "With --schema-changes: a table's description.",
        ),
        ("start_replication",): record(
            {**op, "command": STRING},
            {**peers, "slot": STRING, "lsn": STRING, "options": map_of({"type": ["string", "null"]})},
            "With --client: how a client began.",
        ),
        ("standby_status",): record(
            {**op, "write_lsn": LSN, "flush_lsn": LSN, "apply_lsn": LSN},
            {**peers, "client_ts": TIME, "reply_requested": BOOLEAN},
            "With --client: what a client confirmed.",
        ),
    }


def json_line() -> Schema:
    return by("op", {**changes(OF_TRANSACTION), **others()})


def json_tx() -> Schema:
    inside = by("op", changes({}))
    transaction = {
        **OF_TRANSACTION,
        **TABLE,
        "snapshot": TRUE,
        "end_lsn": said(LSN, "The position from which to resume; absent if the transaction is not complete."),
        "incomplete": said(TRUE, "The input ended inside it."),
        "aborted": TRUE,
    }
    whole = record({"changes": said(listed(inside), "Its changes, as under -o json.")}, transaction, "A transaction.")
    return either("op", json_line(), whole)


# -- wal2json, debezium ------------------------------------------------------------------------------------------------


def wal2json() -> Schema:
    head = {"action": STRING, "xid": nullable(COUNT), "timestamp": nullable(STRING), "lsn": nullable(LSN)}
    column = record(
        {"name": STRING, "value": {}},
        {"type": STRING, "typeoid": COUNT, "undecoded": said(TRUE, "The value is a string: it could not be decoded.")},
    )
    row = {**head, "schema": STRING, "table": STRING, "columns": listed(column), "identity": listed(column)}
    message = {**head, "transactional": BOOLEAN, "prefix": STRING, "content": STRING, "undecoded": TRUE}
    action = {"action": STRING}
    return by(
        "action",
        {
            ("I", "U", "D"): record(action, row, "An insert, update or delete."),
            ("T",): record(action, {name: row[name] for name in (*head, "schema", "table")}, "A truncate."),
            ("M",): record(action, message, "A message."),
            ("B", "C"): record(action, {**head, "nextlsn": LSN}, "The begin or the end of a transaction."),
        },
    )


def wal2json_v1() -> Schema:
    kind = {"kind": STRING}
    table = {"schema": STRING, "table": STRING}
    oids = listed(COUNT)
    columns = {"columnnames": NAMES, "columntypes": NAMES, "columntypeoids": oids, "columnvalues": listed({})}
    keys = record({}, {"keynames": NAMES, "keytypes": NAMES, "keytypeoids": oids, "keyvalues": listed({})})
    row = {**table, **columns, "oldkeys": keys, "undecoded": NAMES}
    message = {"transactional": BOOLEAN, "prefix": STRING, "content": STRING, "undecoded": TRUE}
    change = by(
        "kind",
        {
            ("insert", "update", "delete"): record(kind, row),
            ("truncate",): record(kind, table),
            ("message",): record(kind, message),
        },
    )
    more = {"xid": nullable(COUNT), "timestamp": nullable(STRING), "nextlsn": LSN, "incomplete": TRUE}
    return record({"change": listed(change)}, more, "A transaction, or one message that belongs to none.")


_OF_KAFKA: Final = {"string": STRING, "int64": INTEGER, "bytes": STRING}


def of_kafka(struct: Schema) -> Schema:
    """A struct of Kafka Connect: its fields, by their names."""
    fields = {field["field"]: _of_field(field) for field in struct["fields"]}
    return record(fields)


def _of_field(field: Schema) -> Schema:
    kind = field["type"]
    if kind == "array":
        found = listed(of_kafka(field["items"]))
    else:
        found = of_kafka(field) if kind == "struct" else _OF_KAFKA[kind]
    return nullable(found) if field["optional"] else found


def debezium() -> Schema:
    message, boundary = of_kafka(json.loads(kafka.MESSAGE)), of_kafka(json.loads(kafka.BOUNDARY))
    common = {name: message["properties"][name] for name in ("source", "transaction", "op", "ts_ms", "ts_us", "ts_ns")}
    common["op"] = said(known("c", "u", "d", "r", "t", "m"), "Create, update, delete, read, truncate, message.")
    row = nullable(VALUES)
    undecoded = said(map_of(map_of(STRING)), "pgtail's: the text of columns that are null as they have no form here.")
    more = {"before": row, "after": row, "message": message["properties"]["message"], "undecoded": undecoded}
    event = either("status", boundary, record(common, more, "A change."))
    with_schema = record({"schema": said(VALUES, "Kafka Connect's schema of the payload."), "payload": event})
    return either("payload", said(with_schema, "With --schema."), event)


# -- reports -----------------------------------------------------------------------------------------------------------


def stats() -> Schema:
    table = {name: TABLE[name] for name in TABLE}
    key = record({"key": VALUES, "changes": COUNT}, {**table, "undecoded": NAMES})
    place = {"lsn": nullable(LSN), "ts": nullable(TIME)}
    origin = {"origin": said(STRING, "The time is another server's.")}
    counts = dict.fromkeys(("inserts", "updates", "deletes", "bytes"), COUNT)
    sample = record(
        {
            "at": TIME,
            "seconds": SECONDS,
            **dict.fromkeys(("transactions", "rows", "bytes"), COUNT),
            "lsn": nullable(LSN),
            "server_lsn": nullable(LSN),
            "lag_bytes": nullable(INTEGER),
            "last_commit_ts": nullable(TIME),
            "open": nullable(record({"xid": nullable(COUNT), "changes": COUNT})),
            "tables": listed(record(counts, table)),
            "hot_keys": listed(key),
        },
        description="With --watch: an interval.",
    )
    bound = nullable(SECONDS)
    classes = listed(record({"from": said(NUMBER, "The least number of the class."), "count": COUNT}))
    of_size = listed(record({"rows": COUNT, "bytes": COUNT}, table))
    size = record(
        {"xid": nullable(COUNT), **place, "rows": COUNT, "bytes": COUNT}
        | {"seconds_at_least": bound, "seconds_at_most": bound}
        | {"streamed": BOOLEAN, "tables": of_size, "more_tables": COUNT},
        {"gid": STRING, **origin},
    )
    histogram = record({**dict.fromkeys(("total", "p50", "p95", "p99", "max"), COUNT), "classes": classes})
    steps = dict.fromkeys(OPS_OF_ROWS, listed(COUNT))
    of_rate = record({name: listed(COUNT) for name in Counts._fields}, table)
    step = {"from": TIME, "step_seconds": SECONDS, "rows": listed(COUNT), "bytes": listed(COUNT), **steps}
    waiting = {"gid": STRING, "xid": nullable(COUNT), "lsn": nullable(LSN), "ts": TIME}
    longest = record({**waiting, "outcome": nullable(known("commit_prepared", "rollback_prepared")), "seconds": bound})
    prepared = record(
        {
            **dict.fromkeys(("count", "committed", "rolled_back", "without_outcome"), COUNT),
            "longest": listed(longest),
            "oldest": listed(record(waiting)),
        }
    )
    transactions = record(
        {
            **dict.fromkeys(("count", "empty", "incomplete"), COUNT),
            **dict.fromkeys(("first", "last"), nullable(record(place, origin))),
            "origins": map_of(COUNT),
            "clock_set_back": listed(record({"lsn": LSN, "from": TIME, "to": TIME})),
            **dict.fromkeys(("rows", "bytes"), histogram),
            "seconds": nullable(record({"classes": classes})),
            "streamed": record(dict.fromkeys(("count", "rows", "bytes"), COUNT)),
            "prepared": prepared,
            **dict.fromkeys(("most_bytes", "most_rows", "longest"), listed(size)),
        }
    )
    of_table = record(
        {
            "identity": nullable(STRING),
            **counts,
            "truncates": COUNT,
            "share": {"type": "number", "minimum": 0, "maximum": 1},
            **dict.fromkeys(("key_updates", "updates_compared", "updates_without_change"), COUNT),
            "updates_with_unsent_toast": COUNT,
            "unsent_toast": map_of(COUNT),
        },
        {**table, "snapshot_rows": COUNT, "snapshot_bytes": COUNT},
    )
    client = record(
        {
            "client": STRING,
            "server": STRING,
            "slot": nullable(STRING),
            "status_updates": COUNT,
            "confirmed_lsn": nullable(LSN),
            "behind_bytes": nullable(COUNT),
            "most_behind_bytes": nullable(COUNT),
            "stuck_seconds": bound,
            "lag": listed(record({"ts": TIME, "behind_bytes": COUNT})),
        }
    )
    report = record(
        {
            "transactions": transactions,
            "tables": listed(of_table),
            "messages": record({"count": COUNT, "bytes": COUNT}),
            "rate": nullable(record({**step, "tables": listed(of_rate)})),
            "hot_keys": record({"counted": COUNT, "error": COUNT, "keys": listed(key)}),
            "schema_changes": listed(record({**place, "differences": NAMES}, table)),
            "truncates": listed(record(place, table)),
            **dict.fromkeys(("more_schema_changes", "more_truncates"), COUNT),
            "clients": listed(client),
        },
        {"snapshots": record({"count": COUNT, "rows": COUNT, "bytes": COUNT})},
    )
    return either("at", sample, report)


def slot_list() -> Schema:
    types = {
        **dict.fromkeys(slot_report._NUMBERS, INTEGER),
        **dict.fromkeys(slot_report._TIMES, TIME),
        **dict.fromkeys(slot_report._LSNS, LSN),
        **dict.fromkeys(slot_report._TEXTS, STRING),
        "lag_seconds": NUMBER,
    }
    names = dict.fromkeys((*slot_report._FIRST, *slot_report._COUNTERS, *sorted(types), "conflicting"))
    holder = {name: nullable({}) for name in OpenTransaction.__struct_fields__}
    facts = {name: nullable(types.get(name, BOOLEAN)) for name in names}
    facts["wal_held"] = nullable(record({"until": known("transaction", "checkpoint", "reader")}, holder))
    sizes = dict.fromkeys(("pg_wal_bytes", "drop_frees_bytes"), nullable(COUNT))
    watched = dict.fromkeys((slot_report.GROWTH, slot_report.SAFE_SECONDS), nullable(INTEGER))
    always = {name: facts.pop(name) for name in ("slot_name", *slot_report._ALWAYS)}
    return record({"at": TIME, **always, **sizes}, {**facts, **watched}, "A slot; the columns are those of the server.")


def doctor() -> Schema:
    severity = known(*[one.word for one in Severity])
    names = said(NAMES, "The objects concerned, as SQL writes them.")
    finding = {"family": STRING, "check": STRING, "severity": severity, "text": STRING, "subjects": names}
    return record({**finding, "cure": said(NAMES, "Lines to paste into psql.")}, description="A finding.")


def capture_list() -> Schema:
    kind, lsn, time = {"kind": STRING}, nullable(LSN), nullable(TIME)
    fields = {name: STRING if name in ("schema", "table") else COUNT for name in TableContents._fields}
    prepared = nullable(
        listed(record({name: COUNT if name == "xid" else STRING for name in PreparedTransaction._fields}))
    )
    gap = nullable(listed(LSN))
    pruned = nullable(record({"segment": STRING, "position": LSN}))
    capture = {"capture": STRING, "position": lsn, "parameters": nullable(map_of(STRING)), "gap": gap, "pruned": pruned}
    count = nullable(COUNT)
    segment = {
        "segment": STRING,
        "open": BOOLEAN,
        "bytes": COUNT,
        "missing": nullable(STRING),
        "gap": gap,
        "first_commit_lsn": lsn,
        "position": lsn,
        "transactions": count,
        "messages": count,
        "first_commit_ts": time,
        "last_commit_ts": time,
        "xids": nullable(listed(COUNT)),
        "tables": nullable(listed(record(fields))),
        "prepared": prepared,
        "outcomes": prepared,
    }
    snapshot = {
        "schema": STRING,
        "table": STRING,
        "relid": COUNT,
        "lsn": LSN,
        "timeline": INTEGER,
        "rows": COUNT,
        "segments": COUNT,
        "missing": COUNT,
        "bytes": COUNT,
        "counts": BOOLEAN,
    }
    return by(
        "kind",
        {
            ("capture",): record({**kind, **capture, "missing": nullable(STRING)}),
            ("segment",): record({**kind, **segment}),
            ("snapshot",): record({**kind, **snapshot}),
        },
    )


PLAIN_EVENTS: Final = (
    *("message", "error", "trace", "connection_lost", "reconnection_failed", "queue_full", "queue_failed"),
    *("lag_exceeded", "lag_recovered", "applied", "waiting"),
)
"""Events of the log without fields."""
EVENTS: Final[dict[str, dict[str, Schema]]] = {
    "reconnected": {"position": LSN},
    "gap": {"start": LSN, "end": LSN},
    "slot_created": {"slot": STRING},
    "promoted": {"timeline": INTEGER},
    "notice": {"severity": STRING},
    "segment_closed": {"name": STRING, "messages": COUNT, "size": COUNT},
    "segment_uploaded": {"name": STRING},
    "upload_failed": {"waiting": COUNT},
    "updated": dict.fromkeys(("segments", "snapshots", "batches"), COUNT),
    "metrics": {"port": COUNT},
}


def log() -> Schema:
    head = {"time": TIME, "level": known("debug", "info", "warning", "error"), "event": STRING, "message": STRING}
    confirmed = {"confirmed": LSN, "written": LSN}
    events: dict[tuple[str, ...], Schema] = {(name,): record({**head, **fields}) for name, fields in EVENTS.items()}
    return by("event", {PLAIN_EVENTS: record(head), ("not_acknowledged",): record(head, confirmed), **events})


MADE: Final = {
    "json": (json_line, "A line of `pgtail stream` and `decode` with -o json, and of `expect`"),
    "json-tx": (json_tx, "A line of -o json-tx"),
    "wal2json": (wal2json, "A line of -o wal2json (format-version 2)"),
    "wal2json-v1": (wal2json_v1, "A line of -o wal2json-v1 (format-version 1)"),
    "debezium": (debezium, "An event of -o debezium; with --keys it follows the key and a tab"),
    "stats": (stats, "The report of `pgtail stats -o json`, or with --watch a line of it"),
    "slot-list": (slot_list, "A line of `pgtail slot list -o json`"),
    "doctor": (doctor, "A line of `pgtail doctor -o json`"),
    "capture-list": (capture_list, "A line of `pgtail capture list -o json`"),
    "log": (log, "A line of standard error with --log-format json"),
}


def schemas() -> dict[str, Schema]:
    """Every schema by its name."""
    assert set(OPS) <= {op for one in json_line()["allOf"] for op in one["if"]["properties"]["op"]["enum"]}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {name: {**head, "title": title, **make()} for name, (make, title) in MADE.items()}


def texts() -> dict[str, str]:
    """The contents of every file by its name."""
    made = schemas().items()
    return {f"{name}.json": _text(schema) + "\n" for name, schema in made}


def _text(value: Any, indent: int = 0) -> str:
    """JSON in which what fits a line has one."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + 2 * indent <= _WIDTH or not isinstance(value, dict | list):
        return flat
    inside, blank = indent + 1, "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_text(part, inside)}" for key, part in value.items()]
    else:
        parts = [_text(part, inside) for part in value]
    start, end = "{}" if isinstance(value, dict) else "[]"
    return f"{start}\n{blank * inside}" + f",\n{blank * inside}".join(parts) + f"\n{blank * indent}{end}"


def write() -> None:
    """Write every file."""
    SCHEMAS.mkdir(exist_ok=True)
    for name, text in texts().items():
        (SCHEMAS / name).write_text(text, encoding="utf-8")
