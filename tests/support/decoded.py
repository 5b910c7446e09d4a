"""What pgtail decode makes of the captures, as lines and as documents without loss."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from tests.support.corpus import Capture
from tests.support.pgtext import Pairs, parse
from tests.support.run import Result, decode

UNDECODABLE = re.compile(r"reg[a-z]+|float8_r|float8_mr|aclitem")
"""Types whose binary form cannot be decoded: the only ones that may be named in `undecoded`."""

ENUMS = ("mood", "col", "colour", 'We"ird Enum, type')
"""The captures' enums, whose binary form is a label that a dump does not announce."""

LSN = re.compile(rb'^(\{"op":"message",|.*?"(?:commit|prepare)_ts":"[^"]+",)"lsn":"[0-9A-F]+/[0-9A-F]+",')


@cache
def decoded(capture: Capture, form: str) -> Result:
    return decode(
        *("--encoding", capture.encoding, "--schema-changes", "--transactions"),
        *(option for name in ENUMS for option in ("--type", f"{name}=enum")),
        capture.forms[form],
    )


def without_lsn(lines: Iterable[bytes]) -> list[bytes]:
    return [LSN.sub(rb"\1", line) for line in lines]


def changes(capture: Capture, form: str) -> list[bytes]:
    """The lines except descriptions of tables, which a session may send at any time."""
    return [line for line in decoded(capture, form).lines if not line.startswith(b'{"op":"relation"')]


def parsed(capture: Capture, form: str = "walsender.bin") -> Iterator[dict[str, Any]]:
    """The lines without loss: the keys of a line as a dictionary, values as pgtext.parse() gives them.

    A row's line has the types of its table's columns, as described so far, under `types`.
    """
    types: dict[tuple[str, str], dict[str, str]] = {}
    for text in decoded(capture, form).lines:
        document = parse(text)
        assert isinstance(document, Pairs)
        line: dict[str, Any] = {name: dict(value) if name in ("old", "new") else value for name, value in document}
        table = line.get("schema", ""), line.get("table", "")
        if line["op"] == "relation":
            line["columns"] = [dict(column) for column in line["columns"]]
            types[table] = types.get(table, {}) | {column["name"]: column["type"] for column in line["columns"]}
        elif table in types:
            line["types"] = types[table]
        yield line


def rows(capture: Capture, form: str = "walsender.bin") -> list[dict[str, Any]]:
    """The row changes without positions, and without messages, which not every capture has."""
    found = [line for line in parsed(capture, form) if line["op"] in ("insert", "update", "delete", "truncate")]
    for line in found:
        line.pop("lsn", None)
    return found


def described(capture: Capture) -> dict[tuple[str, str], dict[str, str]]:
    """(schema, table) -> column -> type, of every version that was described."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for line in parsed(capture):
        if line["op"] == "relation":
            columns = found.setdefault((line["schema"], line["table"]), {})
            columns.update({column["name"]: column["type"] for column in line["columns"]})
    return found


def own_type_name(name: str) -> str:
    """format_type()'s name without the schema and quotes, as it reads in a session whose search_path has the schema."""
    return re.sub(r'^public\.|"', "", name)
