"""Debezium's values: every type of a real server, and values without a Debezium form.

The expected values are those that the documentation states (PostgreSQL connector: "Data type mappings") or that its
tests state.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import b64decode
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pgtail.outputs.debezium import times
from pgtail.outputs.debezium.values import UNAVAILABLE
from pgtail.values.arraytext import NotAnArray
from pgtail.values.oids import OIDS
from tests.support.debezium import check, events, made_for, numeric
from tests.support.encode import UNCHANGED, insert, relation, update
from tests.support.samples import SAMPLES
from tests.support.servers import Database
from tests.support.workload import pinned

# -- values ------------------------------------------------------------------------------------------------------------


def value(name: str, text: str, typmod: int = -1, numbers: Any = "exact") -> Any:
    return json.loads(made_for(name, typmod, numbers).json(text))


@pytest.mark.parametrize(
    ("name", "typmod", "text", "shown"),
    [
        ("bool", -1, "t", True),
        ("bit", 1, "1", True),
        ("bit", 11, "10000000011", "AwQ="),
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
        ("_int4", -1, "{{1,2},{3,4}}", [[1, 2], [3, 4]]),
        ("hstore", -1, '"key"=>"val", "k2"=>NULL, "\\"q\\""=>"\\\\"', '{"key":"val","k2":null,"\\"q\\"":"\\\\"}'),
        ("hstore", -1, "", "{}"),
        ("ltree", -1, "Top.Collections", "Top.Collections"),
        ("mood", -1, "sad", "sad"),
        ("box", -1, "(1,1),(0,0)", "(1,1),(0,0)"),
    ],
)
def test_values_of_each_type(name: str, typmod: int, text: str, shown: Any) -> None:
    assert value(name, text, typmod) == shown


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
    special = relation(columns=(("id", 23), ("n", 1700), ("d", 1082), ("a", 1007), ("b", 25)))
    [found] = events(special, insert("1", "NaN", "infinity", "[0:1]={1,2}", "fine"))
    assert found["after"] == {"id": 1, "n": None, "d": None, "a": None, "b": "fine"}
    assert found["undecoded"] == {"after": {"n": "NaN", "d": "infinity", "a": "[0:1]={1,2}"}}
    assert "undecoded" not in events(special, insert("1", "1", "2000-01-01", "{}", None))[0]
    # A delete and a create for one update name their own columns each.
    keyed = relation(columns=(("n", 1700), ("d", 1082)), key=(0,))
    gone, come = events(keyed, update(("1", "infinity"), ("NaN", None)))
    assert (gone["op"], gone["undecoded"]) == ("d", {"before": {"n": "NaN"}})
    assert (come["op"], come["undecoded"]) == ("c", {"after": {"d": "infinity"}})


def test_toast_that_was_not_sent_has_the_placeholder_of_its_type() -> None:
    names = ["text", "json", "bytea", "_text", "_int4", "_int8", "numeric", "tsvector"]
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
    }
    assert found["undecoded"] == {"after": {"numeric": UNAVAILABLE}}
    # Under REPLICA IDENTITY FULL it came with the old row.
    full = relation(identity="f", key=(0, 1))
    assert events(full, update(("1", UNCHANGED), ("1", "old"), "O"))[0]["after"] == {"id": 1, "v": "old"}


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
