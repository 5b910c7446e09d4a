"""Values as Python's: each is exactly what PostgreSQL's text says, or is that text."""

from __future__ import annotations

import ipaddress
import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pytest

import pgtail
from pgtail.api.values import loader_of
from pgtail.changes.relations import Column
from pgtail.pgoutput.cells import Binary
from pgtail.values import Types, Undecoded
from pgtail.values.floats import float8
from pgtail.values.oids import OIDS
from tests.support.corpus import Scenario, scenarios
from tests.support.encode import begin, commit, insert, lengths, relation, type_
from tests.values.test_golden import GOLDEN

PLUS_ONE = timezone(timedelta(hours=1))


def column(type_name: str) -> Column:
    """A column of a built-in type."""
    oid = OIDS[type_name]
    types = Types()
    return Column("c", oid, -1, False, types.type_name(oid), types.codec(oid))


def load(type_name: str, cell: bytes) -> Any:
    """The value of a cell."""
    return loader_of(column(type_name), "python")(cell)


def written(value: object) -> str:
    """PostgreSQL's text of a value: an independent way back."""
    match value:
        case str() | int() if not isinstance(value, bool):
            return str(value)
        case bool():
            return "t" if value else "f"
        case float():
            return float8(value)
        case Decimal():
            return f"{value:f}"
        case bytes():
            return f"\\x{value.hex()}"
        case datetime():
            zone = "" if value.tzinfo is None else value.strftime("%z")
            return f"{value.date()} {clock_text(value.time())}{zone_text(zone)}"
        case time():
            return f"{clock_text(value)}{zone_text('' if value.tzinfo is None else value.strftime('%z'))}"
        case timedelta():
            return interval_text(value)
        case _:
            return str(value)


def clock_text(value: time) -> str:
    text = value.replace(tzinfo=None).isoformat()
    return text.rstrip("0").rstrip(".") if "." in text else text


def zone_text(zone: str) -> str:
    """+0100 as +01, +053000 as +05:30."""
    hours, rest = zone[:3], zone[3:]
    while rest.endswith("00"):
        rest = rest[:-2]
    return hours + "".join([f":{rest[at : at + 2]}" for at in range(0, len(rest), 2)])


def interval_text(value: timedelta) -> str:
    """The text of an interval whose days and time of day have the same sign."""
    sign = "-" if value < timedelta(0) else ""
    days, seconds = abs(value).days, abs(value).seconds
    parts = [f"{sign}{days} day{'' if sign == '' and days == 1 else 's'}"] if days else []
    clock = (datetime(2000, 1, 1, tzinfo=UTC) + timedelta(0, seconds, abs(value).microseconds)).timetz()
    if seconds or abs(value).microseconds or not parts:
        parts.append(sign + clock_text(clock))
    return " ".join(parts)


@pytest.mark.parametrize(("type_name", "binary", "text", "_"), GOLDEN, ids=str)
def test_golden_values_in_both_forms(type_name: str, binary: str, text: str, _: str | None) -> None:
    value = load(type_name, text.encode())
    again = load(type_name, Binary(bytes.fromhex(binary)))
    assert repr(again) == repr(value)
    assert type(again) is type(value)
    if not isinstance(value, list) and type_name not in ("json", "jsonb"):
        assert written(value) == text
    assert loader_of(column(type_name), "text")(Binary(bytes.fromhex(binary))) == text


@pytest.mark.parametrize(
    ("type_name", "text", "value"),
    [
        ("bool", "t", True),
        ("int8", "-9223372036854775808", -(2**63)),
        ("float8", "1e+23", 1e23),
        ("numeric", "1.50", Decimal("1.50")),
        ("numeric", "0.00000001", Decimal("0.00000001")),
        ("numeric", "-Infinity", Decimal("-Infinity")),
        ("text", "a", "a"),
        ("bytea", r"\x00ff", b"\0\xff"),
        ("date", "2026-11-28", date(2026, 11, 28)),
        ("time", "10:42:00.5", time(10, 42, 0, 500000)),
        ("timetz", "10:42:00+01", time(10, 42, tzinfo=PLUS_ONE)),
        ("timestamp", "2026-11-28 10:42:00", datetime(2026, 11, 28, 10, 42)),  # noqa: DTZ001 -- it has no zone
        ("timestamptz", "2026-11-28 10:42:00.123456+00", datetime(2026, 11, 28, 10, 42, 0, 123456, UTC)),
        ("timestamptz", "2026-11-28 11:42:00+01", datetime(2026, 11, 28, 10, 42, tzinfo=UTC)),
        ("interval", "1 day 02:03:04.5", timedelta(1, 7384.5)),
        ("interval", "-1 days +02:00:00", timedelta(-1, 7200)),
        ("interval", "-00:00:00.000001", timedelta(microseconds=-1)),
        ("interval", "00:00:00", timedelta(0)),
        ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
        ("inet", "192.168.0.1", ipaddress.ip_address("192.168.0.1")),
        ("inet", "192.168.0.1/24", ipaddress.ip_interface("192.168.0.1/24")),
        ("inet", "::ffff:1.2.3.4", ipaddress.ip_address("::ffff:1.2.3.4")),
        ("cidr", "10.0.0.0/8", ipaddress.ip_network("10.0.0.0/8")),
        ("jsonb", '{"a": 1.10, "b": [null, true, 12345678901234567890]}',
         {"a": Decimal("1.10"), "b": [None, True, 12345678901234567890]}),
        ("json", '"x"', "x"),
        ("_int4", "{1,NULL,3}", [1, None, 3]),
        ("_text", '{a,"b,c",NULL,"NULL",""}', ["a", "b,c", None, "NULL", ""]),
        ("_numeric", "{{1.5,2},{3,4}}", [[Decimal("1.5"), Decimal(2)], [Decimal(3), Decimal(4)]]),
        ("_timestamptz", '{"2026-11-28 10:42:00+00"}', [datetime(2026, 11, 28, 10, 42, tzinfo=UTC)]),
        ("_jsonb", r'{"{\"a\": [1]}"}', [{"a": [1]}]),
        ("_bool", "{t,f}", [True, False]),
        ("_int4", "{}", []),
    ],
    ids=str,
)  # fmt: skip
def test_values(type_name: str, text: str, value: object) -> None:
    found = load(type_name, text.encode())
    assert (found, type(found)) == (value, type(value))


def test_not_a_number_is_python_s() -> None:
    assert load("numeric", b"NaN").is_nan()
    assert math.isnan(load("float8", b"NaN"))


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        ("date", "infinity"),
        ("date", "0044-03-15 BC"),
        ("date", "10000-01-01"),
        ("date", "28.11.2026"),
        ("date", "11-28-2026"),
        ("time", "24:00:00"),
        ("timetz", "24:00:00+00"),
        ("timestamp", "-infinity"),
        ("timestamp", "294276-12-31 23:59:59.999999"),
        ("timestamp", "2026-11-28 10:42:00+00"),
        ("timestamptz", "0001-01-01 00:00:00+00 BC"),
        ("timestamptz", "Sat Nov 28 10:42:00 2026 UTC"),
        ("interval", "1 mon"),
        ("interval", "1 year 2 mons 3 days"),
        ("interval", "infinity"),
        ("interval", "2147483647 days"),
        ("interval", "P1D"),
        ("interval", "1 12:00:00"),
        ("money", "$1.00"),
        ("bytea", r"\000a"),
        ("json", "null"),
        ("jsonb", "null"),
        ("json", "[" * 100_000 + "]" * 100_000),
        ("jsonb", "9" * 5000),
        ("point", "(1,2)"),
        ("int4range", "[1,5)"),
        ("varbit", "101"),
        ("macaddr", "08:00:2b:01:02:03"),
        ("tsvector", "'cat':3"),
        ("pg_lsn", "16/B374D848"),
        ("_int4", "[0:1]={1,2}"),
    ],
    ids=lambda text: text[:30],
)
def test_what_python_cannot_hold_is_its_text(type_name: str, text: str) -> None:
    value = load(type_name, text.encode())
    assert type(value) is pgtail.Text
    assert value == text
    assert repr(value) == f"Text({text!r})"


@pytest.mark.parametrize(
    ("type_name", "cell"),
    [
        ("int4", b"1_000"), ("int4", b" 1"), ("int4", b""),
        ("int4", "\u0661".encode()), ("numeric", b"1_0"), ("float8", b"inf"),
        ("bool", b"true"), ("json", b"{"), ("json", b"NaN"), ("_int4", b"{1"), ("_int4", b"{x}"), ("text", b"\xff"),
        ("int4", Binary(b"\0")), ("regclass", Binary(b"\0\0\0\1")),
    ],
)  # fmt: skip
def test_what_is_not_valid_raises(type_name: str, cell: bytes) -> None:
    with pytest.raises(Undecoded):
        load(type_name, cell)


def test_types_of_users() -> None:
    """A domain has the values of its base type; other types are texts, their arrays lists."""
    columns = [("d", 20001), ("m", 20002), ("a", 20003), ("n", 20004)]
    data = lengths(
        type_(20001, "int4", ""), type_(20002, "mood"), type_(20003, "_mood"), type_(20004, "_named"),
        relation(columns=columns), begin(), insert("7", "sad", '{sad,NULL,"a b"}', "no array"), commit(),
    )  # fmt: skip
    [row] = [change.new for transaction in pgtail.read(data) for change in transaction]
    assert row == {"d": 7, "m": "sad", "a": ["sad", None, "a b"], "n": "no array"}
    assert row is not None
    assert [type(value) for value in (*row.values(), *row["a"])] == [
        int, pgtail.Text, list, pgtail.Text, pgtail.Text, type(None), pgtail.Text,
    ]  # fmt: skip


# -- real values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", scenarios(), ids=str)
def test_values_of_all_captures_are_those_of_the_text(scenario: Scenario) -> None:
    for one in scenario.captures:
        path = one.forms["walsender.bin"]
        read = partial(pgtail.read, path, encoding=one.encoding)
        for values, texts in zip(read(), read(values="text"), strict=True):
            for change, same in zip(values, texts, strict=True):
                for row, row_of_texts in ((change.new, same.new), (change.old, same.old)):
                    compare(row or {}, row_of_texts or {}, change)


def compare(row: dict[str, Any], texts: dict[str, Any], change: pgtail.Change) -> None:
    types = {column.name: column.type_name for column in change.relation.columns}
    undecoded = set(change.undecoded)
    assert list(row) == list(texts)
    for name in set(row) - undecoded:
        value, text = row[name], texts[name]
        if text is None or isinstance(text, type(pgtail.UNCHANGED)):
            assert value is text
            continue
        if isinstance(value, list) and types[name] not in ("json", "jsonb"):
            of_json = types[name] in ("json[]", "jsonb[]")
            read = {"parse_float": Decimal} if of_json else {"parse_float": str, "parse_int": str}
            line = json.loads(change.json(), **read)
            found = (line["new"] if change.new is row else line["old"])[name]
            if of_json:  # in which JSON's null is NULL
                assert [None if item == "null" else item for item in value] == found
            else:
                assert list_text(value) == list_text(found)
        elif types[name] in ("json", "jsonb"):
            assert value == (json.loads(text, parse_float=Decimal) if text != "null" else "null")
        elif isinstance(value, float):
            assert value == float(text) or (value != value and text == "NaN")
        elif isinstance(value, timedelta):
            assert interval_text(value) == text or (value < timedelta(0)) or "-" in text
        elif type(value).__module__ == "ipaddress":
            assert value == type(value)(text)
        else:
            assert written(value) == text, (types[name], text)


def list_text(items: list[Any]) -> list[Any]:
    """A list with texts in place of values."""
    return [
        list_text(item) if isinstance(item, list) else json_text(item) if item is not None else None for item in items
    ]


def json_text(item: object) -> str:
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, float):
        return float8(item)
    return written(item)
