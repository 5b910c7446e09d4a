"""Debezium's events: the examples of its documentation, every type of a real server, and values without such a form.

The expected values are those that the documentation states (PostgreSQL connector: "Data change events", "Data type
mappings", "Transaction metadata") or that its tests state; ours are read back as Kafka Connect would read them.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtail.changes.relations import Column
from pgtail.errors import OptionError
from pgtail.outputs.debezium import times
from pgtail.outputs.debezium.values import UNAVAILABLE, converter
from pgtail.values import Types
from pgtail.values.arraytext import NotAnArray
from tests.support.corpus import capture
from tests.support.encode import UNCHANGED, begin, commit, delete, insert, message, relation, truncate, update
from tests.support.render import WAYS, Way, render
from tests.support.samples import SAMPLES
from tests.support.servers import Database
from tests.support.workload import pinned

Json = dict[str, Any]

EPOCH = 946_684_800_000_000
"""Microseconds from 1970 to PostgreSQL's epoch."""
AT = 1_559_033_904_863_123
"""The time of the documentation's events, in microseconds since 1970."""

CUSTOMERS = relation(
    name="customers",
    columns=(("id", 23), ("first_name", 1043), ("last_name", 1043), ("email", 1043)),
)
ANNE = ("1", "Anne", "Kretchmar", "annek@noanswer.org")


def events(*messages: bytes, **options: Any) -> list[Json]:
    """The events of a transaction with these messages, at the time of the documentation's events."""
    options = {"source_name": "PostgreSQL_server", "database": "postgres", **options}
    changes = (CUSTOMERS, begin(555, 24023128, AT - EPOCH), *messages, commit(24023128, 24023200, AT - EPOCH))
    return render(*changes, output="debezium", lsn=24023128, **options).objects


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


def test_the_documented_create_update_delete_and_truncate_events() -> None:
    update_ = update(("1", "Anne Marie", *ANNE[2:]))
    found = events(insert(*ANNE), update_, delete("1", None, None, None), truncate(100))
    assert [known(event) for event in found] == [
        {"after": AFTER, "source": SOURCE, "op": "c"},
        {"after": {**AFTER, "first_name": "Anne Marie"}, "source": SOURCE, "op": "u"},
        {"before": {"id": 1}, "source": SOURCE, "op": "d"},
        {"source": SOURCE, "op": "t"},
    ]
    assert found[0]["source"]["sequence"] == '[null,"24023128"]'
    assert {"before", "after"}.isdisjoint(found[3])
    assert all(event["ts_ms"] == event["ts_us"] // 1000 == event["ts_ns"] // 1_000_000 for event in found)


def test_the_documented_message_events() -> None:
    inside, alone = events(message(b"bar", "foo"), message(b"bar", "foo", transactional=False))
    nowhere = {"schema": "", "table": ""}
    said = {"op": "m", "message": {"prefix": "foo", "content": "YmFy"}}
    assert known(inside) == {"source": {**SOURCE, **nowhere}, **said}
    assert known(alone)["message"] == {"prefix": "foo", "content": "YmFy"}
    assert alone["source"]["txId"] is None
    assert alone["source"]["ts_ms"] > AT // 1000  # the current time: such a message has none
    assert alone["source"]["ts_ns"] == alone["ts_ns"]


def test_an_update_of_the_primary_key_is_a_delete_and_a_create() -> None:
    gone, come = events(update(("2", *ANNE[1:]), ("1", None, None, None)))
    assert (gone["op"], gone["before"], gone["after"]) == ("d", {"id": 1}, None)
    assert (come["op"], come["before"], come["after"]) == ("c", None, {**AFTER, "id": 2})
    # A key that was sent but is the same is an ordinary update.
    [same] = events(update(ANNE, ("1", None, None, None)))
    assert (same["op"], same["before"]) == ("u", {"id": 1})
    # So is one of a TOASTed key: the old key is sent, and the new one is unchanged.
    [toasted] = events(update((UNCHANGED, *ANNE[1:]), ("1", None, None, None)))
    assert (toasted["op"], toasted["before"], toasted["after"]) == ("u", {"id": 1}, AFTER)


def test_the_documented_transaction_metadata() -> None:
    two = relation(101, "a", schema="s2")
    found = events(two, insert(*ANNE), insert("1", "x", oid=101), insert("2", "y", oid=101), transactions=True)
    first, *changes, last = found
    assert first == {
        "status": "BEGIN",
        "id": "555:24023128",
        "ts_ms": AT // 1000,
        "event_count": None,
        "data_collections": None,
    }
    assert [change["transaction"] for change in changes] == [
        {"id": "555:24023128", "total_order": 1, "data_collection_order": 1},
        {"id": "555:24023128", "total_order": 2, "data_collection_order": 1},
        {"id": "555:24023128", "total_order": 3, "data_collection_order": 2},
    ]
    assert last == {
        "status": "END",
        "id": "555:24023200",
        "ts_ms": AT // 1000,
        "event_count": 3,
        "data_collections": [
            {"data_collection": "public.customers", "event_count": 1},
            {"data_collection": "s2.a", "event_count": 2},
        ],
    }
    assert events(insert(*ANNE))[0]["transaction"] is None


def test_the_documented_schema() -> None:
    [event] = events(insert(*ANNE), kafka_schema=True)
    schema = event["schema"]
    assert known(event) == {"after": AFTER, "source": SOURCE, "op": "c"}
    assert schema["name"] == "PostgreSQL_server.public.customers.Envelope"
    fields = {field["field"]: field for field in schema["fields"]}
    assert list(fields) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    for name in ("before", "after"):
        assert fields[name]["name"] == "PostgreSQL_server.public.customers.Value"
        assert fields[name]["fields"][0] == {"type": "int32", "optional": False, "field": "id"}
        # NOT NULL is not in the stream.
        assert fields[name]["fields"][1] == {"type": "string", "optional": True, "field": "first_name"}
    assert fields["source"]["name"] == "io.debezium.connector.postgresql.Source"
    assert [field["field"] for field in fields["source"]["fields"]] == list(event["payload"]["source"])
    odd = relation(name="a-b", schema="ü", columns=(("x", 23),))
    [event] = events(odd, insert("1"), kafka_schema=True, source_name="9é")
    assert event["schema"]["name"] == "__._.a_b.Envelope"


@pytest.mark.parametrize("scenario", ["A_dml", "A_types", "A_msgs", "D_twophase"])
def test_every_event_matches_its_schema(scenario: str) -> None:
    name = {"A_msgs": "p1_msg", "D_twophase": "p3_2pc_stream"}.get(scenario, "p1")
    messages = [raw.data for raw in capture(scenario, name).messages()]
    found = render(*messages, output="debezium", kafka_schema=True, transactions=True).objects
    assert len(found) > 15
    for event in found:
        payload = dict(event["payload"])
        undecoded = payload.pop("undecoded", {})
        for row, columns in undecoded.items():
            assert all(payload[row][column] is None for column in columns)
        check(event["schema"], payload)
    plain = render(*messages, output="debezium", transactions=True).objects
    assert [timeless(event) for event in plain] == [timeless(event["payload"]) for event in found]


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
            # Connect has no dimensions: the elements of the inner arrays are checked.
            for element in item if isinstance(item, list) else [item]:
                check(schema["items"], element) if not isinstance(element, list) else None
    else:
        assert isinstance(value, KINDS[schema["type"]]), (schema, value)
        if schema["type"].startswith("int"):
            bits = int(schema["type"][3:])
            assert -(1 << bits - 1) <= int(str(value)) < 1 << bits - 1
        if schema["type"] == "bytes":
            b64decode(str(value), validate=True)


# -- values ------------------------------------------------------------------------------------------------------------

OIDS = {
    "bit": 1560,
    "varbit": 1562,
    "bool": 16,
    "bytea": 17,
    "date": 1082,
    "time": 1083,
    "timetz": 1266,
    "numeric": 1700,
}
OIDS |= {"timestamp": 1114, "timestamptz": 1184, "interval": 1186, "money": 790, "point": 600, "float8": 701, "oid": 26}
OIDS |= {
    "int8": 20,
    "json": 114,
    "xml": 142,
    "uuid": 2950,
    "inet": 869,
    "int4range": 3904,
    "text[]": 1009,
    "bytea[]": 1001,
}
OIDS |= {"int4[]": 1007, "numeric[]": 1231, "date[]": 1182, "tsvector": 3614, "text": 25, "box": 603, "int8[]": 1016}


def column(name: str, typmod: int = -1) -> Column:
    types = Types()
    if name not in OIDS:
        types.declare(20000, "public", name)
    oid = OIDS.get(name, 20000)
    return Column("c", oid, typmod, False, types.type_name(oid, typmod), types.codec(oid))


def value(name: str, text: str, typmod: int = -1, numbers: Any = "exact") -> Any:
    return json.loads(converter(column(name, typmod), numbers).json(text))


def numeric(precision: int, scale: int) -> int:
    """numeric's typmod."""
    return (precision << 16 | (scale & 0x7FF)) + 4


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
        ("text[]", -1, '{one,NULL,"t w\\"o"}', ["one", None, 't w"o']),
        ("bytea[]", -1, '{"\\\\x01"}', ["AQ=="]),
        ("date[]", -1, "{2016-11-04,NULL}", [17109, None]),
        ("int4[]", -1, "{{1,2},{3,4}}", [[1, 2], [3, 4]]),
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
    schema = converter(column("numeric", numeric(10, 2)), "exact").schema
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
    names = ["text", "json", "bytea", "text[]", "int4[]", "int8[]", "numeric", "tsvector"]
    toast = relation(columns=[("id", 23), *[(name, OIDS[name]) for name in names]])
    [found] = events(toast, update(("1", *[UNCHANGED] * len(names))))
    marks = [*UNAVAILABLE.encode()]
    assert found["after"] == {
        "id": 1,
        "text": UNAVAILABLE,
        "json": UNAVAILABLE,
        "bytea": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        "text[]": [UNAVAILABLE],
        "int4[]": marks,
        "int8[]": marks,
        "numeric": None,
        "tsvector": UNAVAILABLE,
    }
    assert found["undecoded"] == {"after": {"numeric": UNAVAILABLE}}
    # Under REPLICA IDENTITY FULL it came with the old row.
    full = relation(identity="f", key=(0, 1))
    assert events(full, update(("1", UNCHANGED), ("1", "old"), "O"))[0]["after"] == {"id": 1, "v": "old"}


@given(st.sampled_from(sorted(OIDS)), st.text(max_size=30), st.sampled_from([-1, 0, 1, 3, 6, numeric(5, 2)]))
def test_any_accepted_text_matches_its_schema(name: str, text: str, typmod: int) -> None:
    made = converter(column(name, typmod), "exact")
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


# -- keys --------------------------------------------------------------------------------------------------------------


def keyed(*messages: bytes, way: Way = "plain", **options: Any) -> list[tuple[Any, Any]]:
    """The key of each line, and the op of its event; None for nothing."""
    changes = (CUSTOMERS, begin(555, 24023128, AT - EPOCH), *messages, commit(24023128, 24023200, AT - EPOCH))
    lines = render(*changes, output="debezium", keys=True, way=way, source_name="PostgreSQL_server", **options).lines
    found = []
    for line in lines:
        key, event = line.split("\t")
        payload = json.loads(event) if event else {}
        found.append((json.loads(key) if key else None, payload.get("payload", payload).get("op")))
    return found


@pytest.mark.parametrize("way", WAYS)
def test_keys_and_tombstones(way: Way) -> None:
    old = ("1", None, None, None)
    rows = [insert(*ANNE), update(ANNE), update(("2", *ANNE[1:]), old), update(ANNE, old), delete(*old)]
    assert keyed(*rows, way=way) == [
        ({"id": 1}, "c"),
        ({"id": 1}, "u"),
        *[({"id": 1}, "d"), ({"id": 1}, None), ({"id": 2}, "c")],
        ({"id": 1}, "u"),
        *[({"id": 1}, "d"), ({"id": 1}, None)],
    ]


def test_the_schema_of_a_key_is_the_documentations() -> None:
    (line,) = keyed(insert(*ANNE), kafka_schema=True)
    fields = [{"field": "id", "optional": False, "type": "int32"}]
    name = "PostgreSQL_server.public.customers.Key"
    assert line[0] == {
        "schema": {"type": "struct", "name": name, "optional": False, "fields": fields},
        "payload": {"id": 1},
    }


def test_messages_have_their_prefix_and_truncates_are_left_out() -> None:
    told: list[str] = []
    assert keyed(message(b"x", "foo"), truncate(100), tell=told.append) == [({"prefix": "foo"}, "m")]
    assert told == ["left out 1 truncate: they have no key (--keys)"]


@pytest.mark.parametrize("way", WAYS)
def test_a_key_that_is_not_known_is_empty_and_noted_once(way: Way) -> None:
    told: list[str] = []
    full = relation(oid=200, name="full", identity="f", key=(0, 1))
    rows = [insert("1", "x", oid=200), delete("1", "x", kind="O", oid=200)]
    assert keyed(full, *rows, way=way, tell=told.append) == [(None, "c"), (None, "d")]
    assert told == ["note: the key of public.full is not known (replica identity full): --keys leaves it empty"]


def test_keys_are_for_one_topic() -> None:
    with pytest.raises(OptionError, match="of --transactions to another"):
        keyed(transactions=True)
