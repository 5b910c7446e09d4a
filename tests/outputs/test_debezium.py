"""Debezium's events: the examples of its documentation, schemas, and keys.

The expected values are those that the documentation states (PostgreSQL connector: "Data change events", "Transaction
metadata") or that its tests state; ours are read back as Kafka Connect would read them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from pgtail.errors import OptionError
from tests.support.corpus import capture
from tests.support.debezium import AFTER, ANNE, AT, CUSTOMERS, EPOCH, SOURCE, check, events, known, timeless
from tests.support.encode import UNCHANGED, begin, commit, delete, insert, message, relation, truncate, update
from tests.support.render import WAYS, Way, render


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
            # None, or an array with None.
            assert all(payload[row][column] is None or None in payload[row][column] for column in columns)
        check(event["schema"], payload)
    plain = render(*messages, output="debezium", transactions=True).objects
    assert [timeless(event) for event in plain] == [timeless(event["payload"]) for event in found]


# -- keys --------------------------------------------------------------------------------------------------------------


def keyed(*messages: bytes, way: Way = "decoder", **options: Any) -> list[tuple[Any, Any]]:
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
    assert keyed(message(b"x", "foo"), truncate(100), report=told.append) == [({"prefix": "foo"}, "m")]
    assert told == ["left out 1 truncate: they have no key (--keys)"]


@pytest.mark.parametrize("way", WAYS)
def test_a_key_that_is_not_known_is_empty_and_noted_once(way: Way) -> None:
    told: list[str] = []
    full = relation(oid=200, name="full", identity="f", key=(0, 1))
    rows = [insert("1", "x", oid=200), delete("1", "x", kind="O", oid=200)]
    assert keyed(full, *rows, way=way, report=told.append) == [(None, "c"), (None, "d")]
    assert told == ["note: the key of public.full is not known (replica identity full): --keys leaves it empty"]


def test_keys_are_for_one_topic() -> None:
    with pytest.raises(OptionError, match="of --transactions to another"):
        keyed(transactions=True)
