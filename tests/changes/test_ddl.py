"""Schema changes in logical messages: what is read, what is refused, and how outputs and filters treat it."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pgtail
from pgtail.changes.ddl import PREFIX, DdlReader
from pgtail.changes.events import LogicalMessage, Transaction
from tests.support.encode import (
    STREAM_STOP,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    insert,
    lengths,
    message,
    prepare,
    relation,
    stream_abort,
    stream_commit,
    stream_start,
)
from tests.support.render import Rendered, all_ways, render
from tests.support.run import decode

ID = {"attnum": 1, "name": "id", "type": "integer", "not_null": True, "key": True}
TOTAL = {"attnum": 2, "name": "total", "type": "numeric(10,2)"}
NOTE = {"attnum": 3, "name": "note", "type": "text", "not_null": True, "missing": "secret"}
CREATE: dict[str, Any] = {
    "version": 1,
    "tag": "CREATE TABLE",
    "oid": 100,
    "schema": "public",
    "name": "t",
    "identity": "default",
    "columns": [ID, TOTAL],
}
ALTER = CREATE | {"tag": "ALTER TABLE", "columns": [ID, TOTAL | {"type": "numeric(12,2)"}, NOTE]}
DROP = {"version": 1, "tag": "DROP TABLE", "oid": 100, "schema": "public", "name": "t", "dropped": True}


def ddl(form: Any, **options: Any) -> bytes:
    return message(form if isinstance(form, bytes) else orjson.dumps(form), PREFIX, **options)


def texts(*forms: dict[str, Any]) -> list[str]:
    """What is said of the last of these messages."""
    reader, found = DdlReader(), list[str]()
    for form in forms:
        content = orjson.dumps(form)
        found = reader.read(LogicalMessage(Transaction(7), None, PREFIX, content, True)).texts
    return found


def rendered(*forms: Any, **options: Any) -> Rendered:
    return all_ways(relation(), begin(), insert("1", "a"), *map(ddl, forms), commit(), **options)


def with_columns(*columns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return CREATE | {"tag": "ALTER TABLE", "columns": [*columns]} | more


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (ALTER, ["total numeric(10,2) → numeric(12,2)", "+ note text not null (older rows: secret)"]),
        (with_columns(ID), ["- total"]),
        (with_columns(ID, TOTAL | {"has_default": True}), ["total with default"]),
        (with_columns(ID, TOTAL | {"name": "sum"}), ["total renamed to sum"]),
        # Dropped and added under the same name is no change of the type.
        (with_columns(ID, TOTAL | {"attnum": 3}), ["- total", "+ total numeric(10,2)"]),
        (with_columns(ID, TOTAL | {"not_null": True, "key": True}), ["total not null", "total joined the key"]),
        (with_columns(ID | {"not_null": False, "key": False}, TOTAL), ["id nullable", "id left the key"]),
        (with_columns(ID, TOTAL | {"generated": "stored"}), ["total generated stored"]),
        (with_columns(ID, TOTAL | {"default": "0"}), ["total default 0"]),
        (with_columns(ID, TOTAL, schema="b", name="u"), ["renamed from public.t"]),
        (with_columns(ID, TOTAL | {"name": "a b"}), ['total renamed to "a b"']),
        (with_columns(ID, TOTAL, identity="full"), ["identity default → full"]),
        (with_columns(ID, TOTAL), ["columns as before"]),
        (DROP, []),
        (DROP | {"tag": "DROP SCHEMA"}, ["the table was dropped"]),
    ],
)
def test_two_messages_about_a_table_are_compared_by_the_numbers_of_columns(
    now: dict[str, Any], expected: list[str]
) -> None:
    assert texts(CREATE, now) == expected


def test_the_first_message_is_a_description() -> None:
    description = ["id integer not null key", "total numeric(10,2)", "identity default"]
    assert texts(CREATE) == description
    assert texts(CREATE | {"oid": 101}, CREATE) == description
    assert texts(CREATE, DROP, CREATE) == description  # an OID may be used again


def test_a_failure_of_the_trigger_says_nothing_about_tables() -> None:
    failed = {"version": 1, "tag": "ALTER TABLE", "error": "42P01 relation x does not exist"}
    assert texts(CREATE, failed) == ["the trigger failed: 42P01 relation x does not exist"]
    assert texts(CREATE, failed, with_columns(ID)) == ["- total"]


def test_json_has_the_table_and_the_differences() -> None:
    _, create, alter, drop = rendered(CREATE, ALTER | {"statement": "ALTER ..."}, DROP).objects
    at = {"op": "ddl", "xid": 7, "commit_lsn": "0/100", "commit_ts": "2000-01-01T00:00:00.000000Z"}
    table = {"schema": "public", "table": "t", "relid": 100}
    assert create == at | table | {"tag": "CREATE TABLE", "identity": "default", "columns": [ID, TOTAL]}
    assert alter == at | table | {
        "tag": "ALTER TABLE",
        "identity": "default",
        "columns": ALTER["columns"],
        "differences": texts(CREATE, ALTER),
        "statement": "ALTER ...",
    }
    assert drop == at | table | {"tag": "DROP TABLE", "dropped": True}


def test_people_read_what_changed() -> None:
    what = "total numeric(10,2) → numeric(12,2), + note text not null (older rows: secret)"
    assert f"public.t         ALTER TABLE: {what}\n" in rendered_text("line")
    table = " ".join(rendered_text("table").split())
    assert "DDL public.t ALTER TABLE total numeric(10,2) → numeric(12,2) + note text not null" in table
    assert f"\n-- public.t ALTER TABLE: {what}\n" in rendered_text("sql")
    assert "\n-- public.t DROP TABLE\n" in rendered_text("sql", CREATE, DROP)
    assert "public.t         DROP TABLE\n" in rendered_text("line", CREATE, DROP)
    assert f"\n-- undo also: public.t ALTER TABLE: {what}\n" in rendered_text("sql", undo=True)
    template = rendered_text("--format-string", format_string="%o %S %T %t %x")
    assert template.splitlines()[1:] == ["ddl public t public.t 7"] * 2


def rendered_text(output: str, *forms: Any, **options: Any) -> str:
    messages = map(ddl, forms or (CREATE, ALTER))
    return render(relation(), begin(), insert("1", "a"), *messages, commit(), output=output, **options).written.decode()


def test_what_a_message_said_is_not_said_of_the_description_after_it() -> None:
    def described(name: str) -> bytes:
        return relation(columns=[("id", 23), (name, 25)])

    renamed = with_columns(ID, TOTAL | {"name": "sum"})
    messages = [described("total"), begin(), *map(ddl, (CREATE, renamed)), described("sum"), insert("1", "a")]
    messages += [described("other"), insert("2", "b"), commit()]
    text = render(*messages, output="sql").written.decode()
    assert text.count("(the DDL is not in the stream)") == 1
    assert "column sum renamed to other (the DDL" in text
    undo = render(*messages, output="sql", undo=True).written.decode()
    assert undo.count("undo also:") == 2
    stats = decode("-o", "json", input=lengths(*messages), name="stats").objects[0]
    changes = [mark["differences"] for mark in stats["schema_changes"]]
    assert changes == [["ALTER TABLE", "total renamed to sum"], ["column sum renamed to other"]]


@pytest.mark.parametrize("output", ["sql", "line", "table"])
def test_a_name_ends_neither_a_line_nor_a_comment(output: str) -> None:
    bad = "x\nDROP TABLE y; \x1b[2J"
    named = CREATE | {"name": bad, "schema": bad, "tag": bad, "columns": [ID, TOTAL | {"name": bad, "type": bad}]}
    lines = rendered_text(output, CREATE, named | {"identity": bad}, DROP | {"tag": bad}).splitlines()
    assert any("DROP TABLE y" in line for line in lines)
    assert not any(line.lstrip().startswith("DROP TABLE y") or "\x1b" in line for line in lines)


def test_formats_of_other_programs_have_the_message_itself() -> None:
    content = orjson.dumps(CREATE).decode()
    assert [one["content"] for one in rendered(CREATE, output="wal2json").objects if one["action"] == "M"] == [content]
    lines = rendered_text("debezium", CREATE).splitlines()
    assert [orjson.loads(line)["op"] for line in lines] == ["c", "m"]


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"x":' * 100_000,
        orjson.dumps(CREATE | {"version": 2}),
        orjson.dumps(CREATE | {"oid": "100"}),
        orjson.dumps(CREATE | {"oid": -1}),
        orjson.dumps(CREATE | {"name": None}),
        orjson.dumps(CREATE | {"columns": [ID | {"attnum": 0}]}),
        orjson.dumps(CREATE | {"columns": [ID] * 1601}),
        b'{"version":1,"tag":"\\ud800","oid":1,"schema":"s","name":"t","dropped":true}',
        b'{"version":1,"tag":"x","oid":' + b"9" * 5000 + b',"schema":"s","name":"t","dropped":true}',
    ],
)
def test_a_message_of_another_form_stays_a_message(content: bytes) -> None:
    found = rendered(content, content)
    assert [one["op"] for one in found.objects] == ["insert", "message", "message"]
    assert len(found.notes) == 1
    assert "a logical message pgtail.ddl is shown as it is: " in found.notes[0]


def test_what_is_not_transactional_is_no_schema_change() -> None:
    found = all_ways(ddl(CREATE, transactional=False))
    assert [one["op"] for one in found.objects] == ["message"]
    assert found.notes == ["a logical message pgtail.ddl is shown as it is: it is not transactional"]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists), st.data())
def test_no_value_of_a_key_is_more_than_refused(value: Any, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(CREATE)))
    content = json.dumps(CREATE | {key: value}).encode()
    try:
        DdlReader().read(LogicalMessage(Transaction(7), None, PREFIX, content, True))
    except ValueError as error:
        assert not isinstance(value, str) or len(value) < 9 or value not in str(error)


def test_filters_select_by_table_and_operation() -> None:
    other = ALTER | {"oid": 101, "name": "u"}

    def ops(**filters: Any) -> list[tuple[str, str]]:
        shown = rendered(CREATE, other, b"x", filters=filters).objects
        return [(one["op"], one.get("table", "")) for one in shown]

    everything = [("insert", "t"), ("ddl", "t"), ("ddl", "u"), ("message", "")]
    assert ops() == everything
    assert ops(ops=["ddl"]) == [("ddl", "t"), ("ddl", "u")]
    assert ops(ops=["message"]) == [("message", "")]
    assert ops(tables=["public.u"]) == [("ddl", "u")]
    assert ops(exclude=["u"]) == [one for one in everything if one[1] != "u"]
    assert ops(where=["op = 'ddl' and xid = 7"]) == [("ddl", "t"), ("ddl", "u")]


def test_what_a_filter_leaves_out_is_compared_with_all_the_same() -> None:
    [shown] = rendered(CREATE, ALTER | {"name": "u"}, filters={"tables": ["u"]}).objects
    assert shown["differences"][0] == "renamed from public.t"


def test_values_are_masked() -> None:
    forms = [CREATE, ALTER | {"statement": "secret"}, {"version": 1, "tag": "x", "error": "secret"}, b'{"v":"secret"}']
    partitioned = with_columns(TOTAL | {"default": "'secret'"}, partitioned=True)
    for output in ("json", "json-tx", "wal2json", "debezium", "line", "table"):
        assert "secret" not in rendered_text(output, *forms, partitioned, redact=["id"])
    alter = rendered(*forms, redact=["id"]).objects[2]
    assert alter["statement"] == alter["columns"][2]["missing"] == "(redacted)"


def test_what_was_rolled_back_is_not_compared_with() -> None:
    reader = DdlReader()
    for form, aborted in ((CREATE, False), (ALTER, True), (DROP, True)):
        reader.read(LogicalMessage(Transaction(7), None, PREFIX, orjson.dumps(form), True, aborted))
    last = LogicalMessage(Transaction(8), None, PREFIX, orjson.dumps(with_columns(ID)), True)
    assert reader.read(last).texts == ["- total"]


def test_a_streamed_transaction_has_its_schema_changes_in_place() -> None:
    messages = [insert("1", "a", xid=7), ddl(CREATE, xid=7), insert("2", "b", xid=7)]
    found = all_ways(stream_start(), relation(xid=7), *messages, STREAM_STOP, stream_commit())
    assert [one["op"] for one in found.objects] == ["insert", "ddl", "insert"]


def test_what_a_savepoint_rolls_back_in_a_stream_may_be_shown_and_compared_with() -> None:
    """Servers send the transaction's xid in every message, not that of the savepoint."""
    savepoint = [ddl(ALTER, xid=7), insert("2", "b", xid=8)]
    streamed = [relation(xid=7), ddl(CREATE, xid=7), *savepoint, STREAM_STOP, stream_abort(7, 8), stream_commit()]
    after = [begin(9, 0x200), ddl(with_columns(ID, TOTAL)), commit(0x200, 0x208)]
    found = all_ways(stream_start(), *streamed, *after)
    assert [one["op"] for one in found.objects] == ["ddl"] * 3
    assert found.objects[2]["differences"] == ["total numeric(12,2) → numeric(10,2)", "- note"]


def test_a_prepared_transaction_that_is_buffered_has_its_schema_changes() -> None:
    first = [begin(), ddl(CREATE), commit()]
    prepared = [begin_prepare(8), ddl(ALTER), prepare(8), commit_prepared(8)]
    undone = render(*first, relation(), *prepared, output="sql", undo=True)
    assert "-- undo also: public.t ALTER TABLE: total numeric(10,2)" in undone.written.decode()
    read = pgtail.read(lengths(*first, *prepared))
    assert [change.op for transaction in read for change in transaction] == ["ddl", "ddl"]
