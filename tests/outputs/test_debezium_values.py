"""Debezium's values: every type of a real server, and values without a Debezium form.

The expected values are those that the documentation states (PostgreSQL connector: "Data type mappings") or that its
tests state.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import b64decode, b64encode
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from hashlib import md5
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pgtail.demo.server import EmbeddedServer
from pgtail.outputs.debezium import times
from pgtail.outputs.debezium.values import UNAVAILABLE
from pgtail.values.arraytext import NotAnArray
from pgtail.values.oids import OIDS
from tests.support.debezium import check, events, made_for, numeric
from tests.support.encode import UNCHANGED, insert, relation, update
from tests.support.render import render
from tests.support.samples import SAMPLES
from tests.support.servers import Database, some_versions
from tests.support.workload import pgoutput, pinned

EWKB = b64encode(bytes.fromhex("002000000100000C733FF0000000000000")).decode()
"""The start of a point in big-endian order."""

# -- values ------------------------------------------------------------------------------------------------------------


def value(name: str, text: str, typmod: int = -1, numbers: Any = "exact") -> Any:
    return json.loads(made_for(name, typmod, numbers).json(text))


@pytest.mark.parametrize(
    ("name", "typmod", "text", "shown"),
    [
        ("bool", -1, "t", True),
        ("bit", 1, "1", True),
        ("bit", 11, "10000000011", "AwQ="),
        ("bit", 16, "0000000000000101", "BQ=="),
        ("varbit", -1, "101", "BQ=="),
        ("varbit", -1, "0000000000", ""),
        ("oid", -1, "4294967295", 4294967295),
        ("float8", -1, "1.5e+300", 1.5e300),
        ("float8", -1, "NaN", "NaN"),
        ("bytea", -1, "\\x010203", "AQID"),
        ("json", -1, '{"a":  1}', '{"a":  1}'),
        ("xml", -1, "<a/>", "<a/>"),
        ("inet", -1, "192.168.2.0/12", "192.168.2.0/12"),
        ("int4range", -1, "[1000,6000)", "[1000,6000)"),
        ("date", -1, "2016-11-04", 17109),
        ("date", -1, "1970-01-01", 0),
        ("date", -1, "0001-01-01", -719162),
        ("time", -1, "13:51:30.123456", 49890123456),
        ("time", 3, "13:51:30.123", 49890123),
        ("time", -1, "24:00:00", 86400000000),
        ("timetz", -1, "13:51:30+02", "11:51:30Z"),
        ("timetz", -1, "00:10:00.5+05:30", "18:40:00.5Z"),
        # "TIMESTAMP type" in the documentation.
        ("timestamp", -1, "2018-06-20 15:13:16.945104", 1529507596945104),
        ("timestamp", 3, "2016-11-04 13:51:30.123", 1478267490123),
        ("timestamp", -1, "infinity", 9223372036825200000),
        ("timestamp", -1, "-infinity", -9223372036832400000),
        ("timestamptz", -1, "2016-11-04 11:51:30.123456+00", "2016-11-04T11:51:30.123456Z"),
        ("timestamptz", -1, "2016-11-04 13:51:30+02", "2016-11-04T11:51:30.000000Z"),
        ("timestamptz", 0, "2016-11-04 13:51:30+02", "2016-11-04T11:51:30Z"),
        ("timestamptz", 3, "10000-11-04 13:51:30.5+00", "+10000-11-04T13:51:30.500Z"),
        ("timestamptz", -1, "0044-03-15 00:00:00+00 BC", "-0043-03-15T00:00:00.000000Z"),
        ("timestamptz", -1, "infinity", "infinity"),
        # P1Y2M3DT4H5M0S, of Debezium's tests.
        ("interval", -1, "1 year 2 mons 3 days 04:05:00", 37091100000000),
        ("interval", -1, "-00:00:00.5", -500000),
        ("interval", -1, "00:00:00", 0),
        ("_text", -1, '{one,NULL,"t w\\"o"}', ["one", None, 't w"o']),
        ("_bytea", -1, '{"\\\\x01"}', ["AQ=="]),
        ("_date", -1, "{2016-11-04,NULL}", [17109, None]),
        ("hstore", -1, '"key"=>"val", "k2"=>NULL, "\\"q\\""=>"\\\\"', '{"key":"val","k2":null,"\\"q\\"":"\\\\"}'),
        ("hstore", -1, "", "{}"),
        ("ltree", -1, "Top.Collections", "Top.Collections"),
        ("mood", -1, "sad", "sad"),
        ("_int4", -1, "[-3:-2]={1,2}", [1, 2]),
        ("geometry", -1, "002000000100000C733FF0000000000000", {"wkb": EWKB, "srid": 3187}),
        ("geometry", -1, "010700000000000000", {"wkb": "AQcAAAAAAAAA", "srid": None}),
        ("halfvec", -1, "[1,-2.5,6e-08]", [1, -2.5, 6e-08]),
        ("sparsevec", -1, "{}/32767", {"dimensions": 32767, "vector": []}),
        ("box", -1, "(1,1),(0,0)", "(1,1),(0,0)"),
    ],
)
def test_values_of_each_type(name: str, typmod: int, text: str, shown: Any) -> None:
    assert value(name, text, typmod) == shown


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("geometry", "POINT(1 2)"),
        ("geometry", "0101000020"),
        ("geometry", "010700000000000000A"),
        ("vector", "(1,2)"),
        ("vector", "[1,NaN]"),
        ("sparsevec", "{1:1.5}/32768"),
        ("sparsevec", "[1,2]"),
        ("hstore", "a=>1"),
        ("_mood", "(1)"),
    ],
)
def test_text_of_another_type_with_the_name_of_an_extensions(name: str, text: str) -> None:
    with pytest.raises((ValueError, NotAnArray)):
        value(name, text)
    assert made_for(name).partly(text) == b"null"


def test_arrays_of_more_than_one_dimension_do_not_match_a_schema() -> None:
    for text in ("{{1,2},{3,4}}", "[0:1][-3:-2]={{1,2},{3,4}}"):
        with pytest.raises(ValueError, match="dimension"):
            value("_int4", text)
        assert made_for("_int4").partly(text) == b"null"


def test_a_point_has_its_coordinates_and_wkb() -> None:
    found = value("point", "(1,-2.5)")
    assert (found["x"], found["y"], found["srid"]) == (1, -2.5, None)
    assert struct.unpack("<BIdd", b64decode(found["wkb"])) == (1, 1, 1, -2.5)


def unscaled(text: str) -> int:
    return int.from_bytes(b64decode(text, validate=True), signed=True)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3))
def test_numeric_keeps_its_value(number: Decimal) -> None:
    text = f"{number:f}"
    if text.startswith("-0") and not number:
        return  # PostgreSQL has no negative zero
    found = value("numeric", text)
    assert Fraction(unscaled(found["value"]), 10 ** found["scale"]) == Fraction(text)
    assert found["scale"] == len(text.partition(".")[2].rstrip("0"))
    fixed = value("numeric", text, numeric(40, 3))
    assert Fraction(unscaled(fixed), 1000) == Fraction(text)
    assert len(b64decode(fixed)) == 1 or unscaled(fixed).bit_length() > 8 * len(b64decode(fixed)) - 9
    assert value("numeric", text, numbers="string") == text


def test_numeric_of_any_length_and_scale() -> None:
    assert unscaled(value("numeric", "9" * 20_000)["value"]) == 10**20_000 - 1
    assert unscaled(value("numeric", "1200", numeric(4, -2))) == 12
    assert unscaled(value("numeric", "0", numeric(4, -2))) == 0
    schema = made_for("numeric", numeric(10, 2)).schema
    assert schema["parameters"] == {"scale": "2", "connect.decimal.precision": "10"}
    assert unscaled(value("money", "-$92,233,720,368,547,758.08")) == -(2**63)
    assert value("money", "$1,000.50", numbers="string") == "1000.50"
    assert value("numeric", "NaN", numbers="string") == "NAN"


def test_a_value_without_a_debezium_form_is_null_and_undecoded() -> None:
    special = relation(columns=(("id", 23), ("n", 1700), ("d", 1082), ("a", 1182), ("b", 25)))
    [found] = events(special, insert("1", "NaN", "infinity", "[0:1]={1970-01-03,infinity}", "fine"))
    assert found["after"] == {"id": 1, "n": None, "d": None, "a": [2, None], "b": "fine"}
    assert found["undecoded"] == {"after": {"n": "NaN", "d": "infinity", "a": "[0:1]={1970-01-03,infinity}"}}
    assert "undecoded" not in events(special, insert("1", "1", "2000-01-01", "{}", None))[0]
    # A delete and a create for one update name their own columns each.
    keyed = relation(columns=(("n", 1700), ("d", 1082)), key=(0,))
    gone, come = events(keyed, update(("1", "infinity"), ("NaN", None)))
    assert (gone["op"], gone["undecoded"]) == ("d", {"before": {"n": "NaN"}})
    assert (come["op"], come["undecoded"]) == ("c", {"after": {"d": "infinity"}})


def test_toast_that_was_not_sent_has_the_placeholder_of_its_type() -> None:
    names = ["text", "json", "bytea", "_text", "_int4", "_int8", "numeric", "tsvector"]
    names += ["_jsonb", "_bytea", "_date", "_uuid", "_time"]
    toast = relation(columns=[("id", 23), *[(name, OIDS[name]) for name in names]])
    [found] = events(toast, update(("1", *[UNCHANGED] * len(names))))
    marks = [*UNAVAILABLE.encode()]
    assert found["after"] == {
        "id": 1,
        "text": UNAVAILABLE,
        "json": UNAVAILABLE,
        "bytea": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        "_text": [UNAVAILABLE],
        "_int4": marks,
        "_int8": marks,
        "numeric": None,
        "tsvector": UNAVAILABLE,
        "_jsonb": [UNAVAILABLE],
        "_bytea": ["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="],
        "_date": marks,
        "_uuid": [str(UUID(bytes=md5(UNAVAILABLE.encode()).digest(), version=3))],
        "_time": None,
    }
    assert found["undecoded"] == {"after": {"numeric": UNAVAILABLE, "_time": UNAVAILABLE}}
    # Under REPLICA IDENTITY FULL it came with the old row.
    full = relation(identity="f", key=(0, 1))
    assert events(full, update(("1", UNCHANGED), ("1", "old"), "O"))[0]["after"] == {"id": 1, "v": "old"}


# -- types by name -----------------------------------------------------------------------------------------------------

STAND_IN = """
CREATE TYPE {0}; CREATE FUNCTION {0}_in(cstring) RETURNS {0} AS 'textin' LANGUAGE internal IMMUTABLE STRICT;
CREATE FUNCTION {0}_out({0}) RETURNS cstring AS 'textout' LANGUAGE internal IMMUTABLE STRICT;
CREATE TYPE {0} (INPUT = {0}_in, OUTPUT = {0}_out, DELIMITER = '{1}');
"""
"""A type of this name with any text, in place of an extension that the server does not have."""
EXTENSIONS = {
    **{name: ([name], ",") for name in ("citext", "hstore", "ltree")},
    "postgis": (["geometry", "geography"], ":"),
    "vector": (["vector", "halfvec", "sparsevec"], ","),
}
USER_TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE _pair AS (a int, b int);
CREATE DOMAIN pos AS int CHECK (VALUE > 0); CREATE DOMAIN price AS numeric(10,2); CREATE DOMAIN ids AS int[];
"""
STRINGS = ("array", "string", None)
POINT = "0101000020730C00001C7C613255DE6540787AA52C435C42C0"
LINES = "0105000020E610000001000000010200000002000000A779C7293A2465400B462575025A46C0C66D3480B7FC6440C3D32B65195246C0"
"""Those of Debezium's tests."""


def wkb(text: str, srid: int | None) -> Any:
    return {"wkb": b64encode(bytes.fromhex(text)).decode(), "srid": srid}


BY_NAME: dict[str, tuple[str, tuple[str | None, ...], Any]] = {
    # The type of a column: what is inserted; Connect's type, that of the elements, the name of either; the value.
    "mood": ("ok", ("string", None, None), "ok"),
    "mood[]": ("{sad,NULL,ok}", STRINGS, ["sad", None, "ok"]),
    "pos": ("7", ("int32", None, None), 7),
    "pos[]": ("{1,2}", STRINGS, ["1", "2"]),
    "price": ("1.50", ("struct", None, "io.debezium.data.VariableScaleDecimal"), {"scale": 1, "value": "Dw=="}),
    "ids": ("[0:1]={1,2}", ("array", "int32", None), [1, 2]),
    "_pair": ("(1,2)", STRINGS, None),
    "_pair[]": ('{"(1,2)"}', STRINGS, ["(1,2)"]),
    "numeric(10,2)[]": ("{1.5,NaN}", ("array", "bytes", "org.apache.kafka.connect.data.Decimal"), ["AJY=", None]),
    "tsvector": ("'a':1", ("string", None, "io.debezium.data.Tsvector"), "'a':1"),
    "citext": ("Ab", ("string", None, None), "Ab"),
    "citext[]": ('{A,"b c",NULL}', STRINGS, ["A", "b c", None]),
    "ltree": ("a.b", ("string", None, "io.debezium.data.Ltree"), "a.b"),
    "ltree[]": ("{a.b,c}", ("array", "string", "io.debezium.data.Ltree"), ["a.b", "c"]),
    "hstore": ('"a"=>"1"', ("string", None, "io.debezium.data.Json"), '{"a":"1"}'),
    "hstore[]": (r'{"\"a\"=>NULL"}', ("array", "string", "io.debezium.data.Json"), ['{"a":null}']),
    "geometry": (POINT, ("struct", None, "io.debezium.data.geometry.Geometry"), wkb(POINT, 3187)),
    "geography": (LINES, ("struct", None, "io.debezium.data.geometry.Geography"), wkb(LINES, 4326)),
    "geometry[]": (
        f"{{010700000000000000:{POINT}}}",
        ("array", "struct", "io.debezium.data.geometry.Geometry"),
        [wkb("010700000000000000", None), wkb(POINT, 3187)],
    ),
    "vector": ("[1,2.5,-3e-05]", ("array", "double", "io.debezium.data.DoubleVector"), [1, 2.5, -3e-05]),
    "vector[]": ('{"[1,2]"}', ("array", "array", "io.debezium.data.DoubleVector"), [[1, 2]]),
    "halfvec": ("[1,-0.5]", ("array", "float", "io.debezium.data.FloatVector"), [1, -0.5]),
    "sparsevec": (
        "{1:1.5,30:-2}/3000",
        ("struct", None, "io.debezium.data.SparseDoubleVector"),
        {"dimensions": 3000, "vector": [[1, 1.5], [30, -2]]},
    ),
}


@pytest.mark.parametrize("server", some_versions(12), indirect=True)
def test_types_of_extensions_and_users_are_known_by_name(server: EmbeddedServer, database: Database) -> None:
    """Also of domains: their Type message names the base type, but not its modifier."""
    available = {name for (name,) in database.query("SELECT name FROM pg_available_extensions")}
    assert available & {"hstore", "vector"}, "every server has one of them, so that not all types are stand-ins"
    for extension, (names, delimiter) in EXTENSIONS.items():
        made = [STAND_IN.format(name, delimiter) for name in names]
        database.execute(*([f"CREATE EXTENSION {extension}"] if extension in available else made))
    columns = [f"c{number} {name}" for number, name in enumerate(BY_NAME)]
    values = [f"$_${text}$_$" for text, _, _ in BY_NAME.values()]
    database.execute(
        USER_TYPES,
        f"CREATE TABLE t ({', '.join(columns)}); CREATE PUBLICATION pub FOR TABLE t",
        "SELECT pg_create_logical_replication_slot('one', 'pgoutput')",
        f"INSERT INTO t VALUES ({', '.join(values)})",
    )
    messages = [data for _, data in pgoutput(database, "one")]
    [event] = render(*messages, output="debezium", kafka_schema=True).objects
    undecoded = event["payload"].pop("undecoded")
    check(event["schema"], event["payload"])
    after = event["payload"]["after"]
    assert dict(zip(BY_NAME, after.values(), strict=True)) == {name: known[2] for name, known in BY_NAME.items()}
    fields = event["schema"]["fields"][1]["fields"]
    for field, (_, (kind, element, name), _) in zip(fields, BY_NAME.values(), strict=True):
        items = field.get("items", {})
        assert (field["type"], items.get("type"), field.get("name", items.get("name"))) == (kind, element, name)
    assert sorted(undecoded["after"].values()) == ["(1,2)", "{1.50,NaN}"]


@given(st.sampled_from(sorted(OIDS)), st.text(max_size=30), st.sampled_from([-1, 0, 1, 3, 6, numeric(5, 2)]))
def test_any_accepted_text_matches_its_schema(name: str, text: str, typmod: int) -> None:
    assume(re.search(r"\d{5}", text) is None)  # no server sends an int2 that is out of range: it would be shown
    made = made_for(name, typmod)
    try:
        found = made.json(text)
    except (ValueError, NotAnArray):
        return
    check({**made.schema, "optional": False}, json.loads(found))


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)))  # noqa: DTZ001 -- without a zone
def test_timestamps_are_pythons(when: datetime) -> None:
    epoch = datetime(1970, 1, 1)  # noqa: DTZ001 -- likewise
    text = when.isoformat(" ")
    assert times.timestamp_micros(text) == (when - epoch) // timedelta(microseconds=1)
    assert times.date_days(text[:10]) == (when.date() - date(1970, 1, 1)).days
    utc = (when - timedelta(hours=5, minutes=30)).isoformat(timespec="microseconds")
    assert times.timestamptz_text(f"{text}+05:30", 6) == f"{utc}Z"


def test_dates_and_times_equal_the_servers(newest_database: Database) -> None:
    """Also BC, and years that Python does not support."""
    checks = {
        "date": ("(x::date - date '1970-01-01')::text", times.date_days),
        "timestamp": ("(extract(epoch FROM x::timestamp) * 1000000)::numeric(30)::text", times.timestamp_micros),
        "time": ("(extract(epoch FROM x::time) * 1000000)::numeric(30)::text", times.time_micros),
    }
    with pinned(newest_database) as session:
        for name, (query, ours) in checks.items():
            finite = [text for text in SAMPLES[name] if "infinity" not in text]
            assert len(finite) > 4
            for text in finite:
                row = session.execute(f"SELECT {query}, x::{name}::text FROM (SELECT %s::text x) _".encode(), [text])
                [(expected, shown)] = row.fetchall()
                try:
                    assert ours(shown) == int(expected)
                except ValueError:
                    assert int(expected) >= 2**63 or text == "5874897-12-31", text
        for text in ("2016-11-04 13:51:30.5+02", "0044-03-15 00:00:00+00 BC", "0001-01-01 00:00:00+00"):
            row = session.execute("SELECT %s::timestamptz::text", [text])
            assert times.timestamptz_text(text, 6) == times.timestamptz_text(str(row.fetchall()[0][0]), 6)
