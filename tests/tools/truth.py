"""The true changes, from sources other than pgoutput: test_decoding's lines and the tables' final contents."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import Any

import psycopg

from tests.support.servers import Database

Json = dict[str, Any]

_NAME = r'(?:"(?:[^"]|"")*"|[^\s."\[]+)'
_TABLE = re.compile(rf"({_NAME})\.({_NAME})")
_COLUMN = re.compile(
    rf" ({_NAME})\[((?:\"[^\"]*\"|[^\"])*?)\]:(null|unchanged-toast-datum|'(?:[^']|'')*'|[^\s']+)", re.DOTALL
)
_CHANGE = re.compile(r"table (.*?): (INSERT|UPDATE|DELETE|TRUNCATE):(.*)", re.DOTALL)
_BITS = re.compile(r"bit(?: varying)?(?:\(\d+\))?")


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _table(text: str) -> list[str]:
    found = _TABLE.fullmatch(text)
    assert found, text
    return [_unquoted(found[1]), _unquoted(found[2])]


def _value(type_name: str, text: str) -> str | None:
    """Undo test_decoding's printing (contrib/test_decoding/test_decoding.c print_literal)."""
    if text == "null":
        return None
    if type_name == "boolean":
        return text[0]
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return text


def _columns(text: str) -> tuple[Json, list[str]]:
    values, unchanged, position = {}, [], 0
    while position < len(text):
        found = _COLUMN.match(text, position)
        assert found, text[position : position + 200]
        name, type_name, value = _unquoted(found[1]), found[2], found[3]
        position = found.end()
        if value == "B" and _BITS.fullmatch(type_name):  # B'101' is printed for bit strings
            end = text.index("'", position + 1)
            value, position = text[position : end + 1], end + 1
        if value == "unchanged-toast-datum":
            unchanged.append(name)
        else:
            values[name] = _value(type_name, value)
    return values, unchanged


def change(line: str) -> Json | None:
    """One line of test_decoding as a change; None for a message."""
    if line.startswith("message:"):
        return None
    found = _CHANGE.fullmatch(line)
    assert found, line
    table, operation, rest = found.groups()
    if operation == "TRUNCATE":
        return {
            "op": "truncate",
            "tables": [_table(name) for name in table.split(", ")],
            "restart_identity": "restart_seqs" in rest,
            "cascade": "cascade" in rest,
        }
    found_change: Json = {"op": operation.lower(), "table": _table(table)}
    if rest == " (no-tuple-data)":
        return found_change | {"new" if operation == "INSERT" else "old": None}
    if operation == "DELETE":
        return found_change | {"old": _columns(rest)[0]}
    if operation == "INSERT":
        return found_change | {"new": _columns(rest)[0]}
    old, mark, new = rest.partition(" new-tuple:")
    values, unchanged = _columns(new if mark else rest)
    found_change["old"] = _columns(old.removeprefix(" old-key:"))[0] if mark else None
    return found_change | {"new": values, "unchanged": unchanged}


def transactions(rows: Iterable[tuple[int, str]]) -> list[Json]:
    """The committed transactions in commit order, those without changes too, from (xid, line) of test_decoding."""
    found: list[Json] = []
    changes: list[Json] = []
    for xid, line in rows:
        if line.startswith("BEGIN"):
            changes = []
        elif line.startswith("COMMIT"):
            found.append({"xid": xid, "commit_time": line[line.index("(at ") + 4 : -1], "changes": changes})
        elif (one := change(line)) is not None:
            changes.append(one)
    return found


_TABLES = """
SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relreplident::text, c.relpersistence::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'
  AND c.relkind IN ('r', 'p') ORDER BY 2, 3"""
_ATTRIBUTES = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.atttypid, a.atttypmod, a.attgenerated::text, t.typsend <> 0,
  t.typsend::regproc::text, coalesce(a.attnum = ANY (i.indkey), false) OR c.relreplident = 'f'
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_index i ON i.indrelid = c.oid
  AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END
WHERE c.oid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_ATTRIBUTE_KEYS = ("name", "type", "type_oid", "typmod", "generated", "has_send", "send", "key")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _rows(session: psycopg.Connection[Any], table: str, columns: list[Json], *, binary: bool) -> list[list[str | None]]:
    """All rows as the output functions (or the send functions, in hex) give them; null where there is none."""
    chosen = [column for column in columns if column["has_send"] or not binary]
    names = ", ".join(_quoted(column["name"]) for column in chosen)
    result = session.pgconn.exec_params(f"SELECT {names} FROM ONLY {table}".encode(), [], result_format=int(binary))
    assert not result.error_message, result.error_message
    rows = []
    for row in range(result.ntuples):
        values: dict[str, str | None] = {}
        for position, column in enumerate(chosen):
            raw = result.get_value(row, position)
            values[column["name"]] = raw if raw is None else raw.hex() if binary else raw.decode()
        rows.append([values.get(column["name"]) for column in columns])
    return rows


def state(database: Database, xids: list[int]) -> Json:
    """The final contents of every table, and of every publication's tables (without filters or column lists)."""
    tables: Json = {}
    published: Json = {name: {} for (name,) in database.query("SELECT pubname FROM pg_publication")}
    relations: Json = {}
    members = set(database.query("SELECT pubname, schemaname, tablename FROM pg_publication_tables"))
    with contextlib.closing(database.connect()) as session:
        for oid, schema, name, kind, identity, persistence in session.execute(_TABLES).fetchall():
            relations[str(oid)] = {
                "schema": schema,
                "name": name,
                "kind": kind,
                "replica_identity": identity,
                "persistence": persistence,
            }
            attributes = session.execute(_ATTRIBUTES, [oid]).fetchall()
            columns = [dict(zip(_ATTRIBUTE_KEYS, row, strict=True)) for row in attributes]
            table = f"{_quoted(schema)}.{_quoted(name)}"
            tables[f"{schema}.{name}"] = {
                "oid": oid,
                **{key: relations[str(oid)][key] for key in ("kind", "replica_identity", "persistence")},
                "columns": columns,
                "rows": _rows(session, table, columns, binary=False),
            }
            sent = [column for column in columns if not column["generated"]]
            for publication, contents in published.items():
                if (publication, schema, name) in members:
                    contents[f"{schema}.{name}"] = {
                        "columns": [column["name"] for column in sent],
                        "row_filter": None,
                        "has_send": [column["has_send"] for column in sent],
                        "rows": _rows(session, table, sent, binary=False),
                        "rows_binary_hex": _rows(session, table, sent, binary=True),
                    }
        types = session.execute(
            "SELECT t.oid, n.nspname, t.typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace"
            " WHERE t.oid >= 16384 AND n.nspname !~ '^pg_'"
        ).fetchall()
        times = session.execute(
            "SELECT x, pg_xact_commit_timestamp(x::text::xid)::text,"
            " (extract(epoch FROM pg_xact_commit_timestamp(x::text::xid)) * 1000000)::bigint - 946684800000000"
            " FROM unnest(%s::bigint[]) x",
            [xids],
        ).fetchall()
        origins = session.execute("SELECT roident::text, roname FROM pg_replication_origin").fetchall()
    return {
        "tables": tables,
        "published": published,
        "relations": relations,
        "types": {str(oid): {"schema": schema, "name": name} for oid, schema, name in types},
        "commit_timestamps": {str(xid): {"ts": text, "usec_since_2000": micros} for xid, text, micros in times},
        "replication_origins": origins,
    }
