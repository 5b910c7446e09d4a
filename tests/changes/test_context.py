"""--context: each change has the content of the logical message that its transaction sent before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pgtail.changes.ddl import PREFIX
from pgtail.outputs import OUTPUTS
from tests.support.encode import (
    INT4,
    STREAM_STOP,
    TEXT,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    insert,
    lengths,
    message,
    prepare,
    relation,
    snapshot,
    stream_abort,
    stream_commit,
    stream_start,
    truncate,
    update,
)
from tests.support.render import WAYS, Rendered, all_ways, render
from tests.support.run import Result, decode
from tests.support.servers import Database, since
from tests.support.tail import stream, tailing

ADA, BOB = b'{"user": "ada",\n "app": "psql", "level": 7}', b'{"user": "bob"}'
MESSAGES = (
    relation(),
    *[begin(5), insert("1", "before"), message(ADA, "who"), insert("2", "a"), message(b"hi", "other")],
    *[
        insert("3", "b"),
        message(ADA, "who", transactional=False),
        update(("3", "c")),
        message(BOB, "who"),
        truncate(100),
        commit(),
    ],
    *[begin(6), insert("4", "d"), insert("5", "e"), commit()],
    *[begin(7), message(b"it's\n\x1bme", "who"), insert("6", "f"), commit()],
    *[begin(8), message(b"\xff\x00", "who"), insert("7", "g"), insert("8", "h"), commit()],
)
DUMP = lengths(*MESSAGES, lsn=0x90)


def rendered(*messages: bytes, output: str = "json", **options: Any) -> Rendered:
    return all_ways(*(messages or MESSAGES), output=output, context="who", **options)


def texts(*messages: bytes, output: str, context: str | None = "who", **options: Any) -> list[str]:
    """The lines of an output, the same by scanner and decoder."""
    decoded, compiled = [render(*messages, output=output, context=context, way=way, **options) for way in WAYS]
    assert decoded.written == compiled.written
    return decoded.written.decode().splitlines()


def contexts(found: Rendered) -> list[tuple[str, Any]]:
    """The id of each row, or what else a line is of, and its context."""
    return [
        (str(line["new"]["id"]) if "new" in line else line.get("prefix", line["op"]), line.get("context"))
        for line in found.objects
    ]


def shown(*options: str, data: bytes = DUMP) -> Result:
    return decode("--context", "who", *options, input=data)


def test_each_change_has_the_last_context_before_it() -> None:
    ada = {"user": "ada", "app": "psql", "level": 7}
    assert contexts(rendered()) == [
        *[("1", None), ("who", None), ("2", ada), ("other", ada), ("3", ada), ("who", None), ("3", ada)],
        *[("who", ada), ("truncate", {"user": "bob"}), ("4", None), ("5", None)],
        *[("who", None), ("6", "it's\n\x1bme"), ("who", None), ("7", None), ("8", None)],
    ]


def test_bytes_that_are_no_text_are_base64() -> None:
    assert [line.get("context_base64") for line in rendered().objects][-2:] == ["/wA="] * 2


def test_the_object_is_as_it_was_sent_on_one_line() -> None:
    assert b'"lsn":"0/0"' not in DUMP
    assert b',"context":{"user": "ada",  "app": "psql", "level": 7},"new":{' in rendered().written


def test_json_tx() -> None:
    first, *_, last = rendered(output="json-tx").objects
    users = [change.get("context", {}).get("user") for change in first["changes"]]
    assert users == [None, None, "ada", "ada", "ada", "ada", "ada", "bob"]
    assert [change.get("context_base64") for change in last["changes"]] == [None, "/wA=", "/wA="]


def test_without_the_option_nothing_is_added() -> None:
    for output in ("json", "json-tx", "line", "table"):
        assert "context" not in "".join(texts(*MESSAGES, output=output, context=None)).lower()


@pytest.mark.parametrize("output", [name for name in OUTPUTS if name != "debezium"])  # which has the time
def test_rows_are_the_same_by_scanner_and_decoder(output: str) -> None:
    rows = [insert(str(number), "x") for number in range(20)]
    messages = (relation(), begin(), message(ADA, "who"), *rows, message(BOB, "who"), *rows, commit())
    found, plain = (texts(*messages, output=output, context=context) for context in ("who", None))
    if output in ("json", "json-tx", "line"):
        assert "".join(found).count("bob") == "".join(plain).count("bob") + 20
    else:
        assert found == plain


def test_schema_changes_have_it() -> None:
    drop = {"version": 1, "tag": "DROP TABLE", "oid": 100, "schema": "public", "name": "t", "dropped": True}
    messages = (relation(), begin(), message(BOB, "who"), message(json.dumps(drop).encode(), PREFIX), commit())
    assert contexts(rendered(*messages)) == [("who", None), ("ddl", {"user": "bob"})]
    [transaction] = rendered(*messages, output="json-tx").objects
    ops = [(change["op"], change.get("context")) for change in transaction["changes"]]
    assert ops == [("message", None), ("ddl", {"user": "bob"})]
    assert texts(*messages, output="line")[1].endswith('context={"user": "bob"}')


# -- conditions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("context.user = 'ada'", "2 other 3 3 who"),
        ("context->>'user' = bob", "truncate"),
        ("context.level > 6.5 and id = 3", "3 3"),
        ("context.level = 10", ""),
        ("context like 'it''s%'", "6"),
        ("context is null", "1 who who 4 5 who who"),
        ("context is not null and op = truncate", "truncate"),
        ("context.app is null and context is not null and op = truncate", "truncate"),
        ("context.user in (bob, 'eve') or id = 5", "truncate 5"),
        ("not context.user = ada", "truncate"),
        ("context.user is distinct from ada and id < 5", "1 4"),
    ],
)
def test_conditions(condition: str, expected: str) -> None:
    found = rendered(filters={"where": [condition]})
    assert " ".join([name for name, _ in contexts(found)]) == expected


def test_a_column_of_this_name_is_quoted_or_read_without_the_option() -> None:
    table = relation(columns=(("context", INT4), ("v", TEXT)))
    dump = lengths(table, begin(), message(ADA, "who"), insert("1", "x"), commit())
    for condition in ('"context" = 1', "new.context = 1"):
        result = shown("--where", condition, data=dump)
        assert (len(result.lines), result.stderr) == (1, "")
    assert len(decode("--where", "context = 1", input=dump).lines) == 1
    result = shown("--where", "context = 1", data=dump)
    assert result.lines == []
    assert 'context in --where is not the column context of public.t, which is written "context"' in result.stderr


def test_a_context_that_cannot_be_tested_is_counted() -> None:
    assert "--where could not be tested on 2 rows" in shown("--where", "context.user = ada", "--xid", "8").stderr


# -- filters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filters", [("-t", "t"), ("--op", "insert"), ("--exclude", "nosuch", "--op", "insert")])
def test_filters_do_not_hide_the_message_from_the_context(filters: tuple[str, ...]) -> None:
    result = shown(*filters)
    assert [line["context"]["user"] for line in result.objects if line.get("seq") == 2 and line["xid"] == 5] == ["ada"]
    assert "no transaction sent" not in result.stderr


def test_a_prefix_that_never_comes_is_noted() -> None:
    words = "pgtail: note: no transaction sent a message with the prefix Who (--context)\n"
    assert decode("--context", "Who", input=DUMP).stderr == words
    alone = lengths(relation(), begin(), insert("1", "x"), commit(), message(ADA, "Who", transactional=False))
    assert decode("--context", "Who", input=alone).stderr == words
    assert shown("-t", "t").stderr == ""


# -- masks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "row", "text"),
    [
        ("user", '{"user":"(redacted)","app":"psql","level":7}', "it's\\n\\u001bme"),
        ("context.LEVEL", '{"user":"ada","app":"psql","level":"(redacted)"}', "(redacted)"),
        ("con*.*", '{"user":"(redacted)","app":"(redacted)","level":"(redacted)"}', "(redacted)"),
        ("context", '"(redacted)"', "(redacted)"),
        ("other.user", '{"user": "ada",  "app": "psql", "level": 7}', "it's\\n\\u001bme"),
        ("public.context.user", '{"user": "ada",  "app": "psql", "level": 7}', "it's\\n\\u001bme"),
    ],
)
def test_masks(rule: str, row: str, text: str) -> None:
    """The changes and the message itself show the same; conditions test the true value."""
    found = rendered(redact=[rule])
    assert f',"context":{row},"new":'.encode() in found.written
    assert f',"context":"{text}","new":'.encode() in found.written
    content = next(line["content"] for line in found.objects if line["op"] == "message")
    assert content.replace("\n", " ") == (json.loads(row) if row.startswith('"') else row)
    filtered = rendered(redact=[rule], filters={"where": ["context.user = ada"]})
    assert [name for name, _ in contexts(filtered)] == ["2", "other", "3", "3", "who"]


def test_masks_that_match_the_context_alone_are_no_mistake() -> None:
    result = shown("--redact", "context.user")
    assert (result.status, result.stderr) == (0, "")
    result = shown("--redact", "context.usr")
    assert result.status == 0  # it masked the contexts that are no objects
    result = decode("--context", "who", "--redact", "context.usr", input=lengths(*MESSAGES[:12], commit()))
    assert (result.status, "masked nothing" in result.stderr) == (1, True)


def test_equal_members_have_equal_hashes(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"k" * 16)
    dump = lengths(relation(), begin(), message(b'{"v": "x\\u00e9"}', "who"), insert("1", "x\u00e9"), commit())
    found = shown("--redact", "v", "--redact-hash", "--redact-key-file", str(tmp_path / "key"), data=dump).objects[1]
    assert found["context"]["v"] == found["new"]["v"]
    assert found["new"]["v"].startswith("hmac:")


def test_errors_about_conditions_do_not_quote_masked_members() -> None:
    result = shown("--redact", "user", "--where", "context.user = ada &&")
    assert (result.status, "ada" in result.stderr) == (2, False)


# -- other outputs ---------------------------------------------------------------------------------------------------


def test_line() -> None:
    lines = texts(*MESSAGES, output="line")
    assert [" context=" in line for line in lines] == [
        *[False, False, True, True, True, False, True, True, True],
        *[False, False, False, True, False, True, True],
    ]
    assert lines[2].endswith(
        r"v='a' context={\"user\": \"ada\",\n \"app\": \"psql\", \"level\": 7}".replace('\\"', '"')
    )
    assert lines[12].endswith(r"context=E'it''s\n\x1bme'")
    assert lines[15].endswith(r"context=\xff00")


def test_table() -> None:
    assert "CONTEXT" not in "".join(texts(*MESSAGES, output="table"))  # the messages show it
    lines = texts(*MESSAGES, output="table", filters={"tables": ["t"]})
    assert [line.split()[0] for line in lines if line.strip()] == [
        *["●", "INSERT", "CONTEXT", "INSERT", "INSERT", "UPDATE", "CONTEXT", "TRUNC", "5"],
        *["●", "INSERT", "INSERT", "2", "●", "CONTEXT", "INSERT", "1", "●", "CONTEXT", "INSERT", "INSERT", "2"],
    ]


def test_format_strings() -> None:
    result = shown("--op", "insert", "--format-string", "%{id} %{context} %{context.user}")
    assert [line.decode() for line in result.lines] == [
        "1  ",
        r'2 {"user": "ada",\n "app": "psql", "level": 7} ada',
        r'3 {"user": "ada",\n "app": "psql", "level": 7} ada',
        *["4  ", "5  ", r"6 it's\n\x1bme ", r"7 \xff00 ", r"8 \xff00 "],
    ]
    assert result.stderr == ""
    plain = decode("--format-string", "%{context}", input=DUMP)
    assert set(plain.lines) == {b""}
    assert "no table had a column context" in plain.stderr


# -- streamed and prepared transactions ------------------------------------------------------------------------------


def test_streamed_transactions_have_the_context_of_the_place() -> None:
    messages = (
        *[relation(), stream_start(5), insert("1", "x", xid=5), message(ADA, "who", xid=5), insert("2", "x", xid=6)],
        *[message(b"7", "who", xid=5), insert("3", "x", xid=6), STREAM_STOP, stream_abort(5, 6)],
        *[stream_start(9), insert("9", "x", xid=9), STREAM_STOP],
        *[stream_start(5, first=0), insert("4", "x", xid=5), message(BOB, "who", xid=5), insert("5", "x", xid=5)],
        *[STREAM_STOP, stream_commit(5, lsn=0x200, end=0x208), stream_commit(9)],
    )
    ada, bob = {"user": "ada", "app": "psql", "level": 7}, {"user": "bob"}
    rows = [("1", None), ("4", ada), ("5", bob), ("9", None)]
    assert [one for one in contexts(rendered(*messages)) if one[0].isdigit()] == rows
    whole = [("1", None), ("2", ada), ("3", ada), ("4", ada), ("5", bob), ("9", None)]
    for options in ("--show-aborted",), ("--show-aborted", "--show-uncommitted"):
        found = shown("--op", "insert", *options, data=lengths(*messages)).objects
        pairs = [(str(line["new"]["id"]), line.get("context")) for line in found]
        assert pairs[-6:] == whole
        assert pairs[:-6] in ([], [("1", None), ("2", ada), ("3", "7"), ("9", None), ("4", "7"), ("5", bob)])


def test_prepared_transactions() -> None:
    rows = [begin_prepare(5), message(BOB, "who"), insert("1", "x"), insert("2", "x"), prepare(5), commit_prepared(5)]
    found = contexts(rendered(relation(), *rows))
    assert found == [("who", None), *[(id_, {"user": "bob"}) for id_ in "12"], ("commit_prepared", None)]


def test_snapshots_have_none() -> None:
    found = contexts(rendered(*snapshot(("1", "x")), begin(), message(BOB, "who"), insert("2", "y"), commit()))
    assert found == [("1", None), ("who", None), ("2", {"user": "bob"})]


# -- servers ---------------------------------------------------------------------------------------------------------

EMIT = "SELECT pg_logical_emit_message(true, 'context', json_build_object('user', '{}')::text)"


@since(14)
def test_a_stream_has_it(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR TABLE t")
    database.execute(f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'")
    database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    fill = "INSERT INTO t SELECT i, repeat('x', 300) FROM generate_series({}, {}) i"
    database.execute(
        *["BEGIN", EMIT.format("ada"), "INSERT INTO t VALUES (1)", "SAVEPOINT a", "INSERT INTO t VALUES (2)"],
        *[EMIT.format("bob"), "ROLLBACK TO a", "INSERT INTO t VALUES (3)", "COMMIT", "INSERT INTO t VALUES (4)"],
        *["BEGIN", EMIT.format("ada"), fill.format(1001, 3000), "SAVEPOINT a", fill.format(3001, 3009)],
        *[EMIT.format("bob"), fill.format(3010, 4000), "ROLLBACK TO a", "INSERT INTO t VALUES (5)"],
        *["SAVEPOINT a", EMIT.format("eve"), fill.format(4001, 5000), "ROLLBACK TO a"],
        *["INSERT INTO t VALUES (6)", "COMMIT"],
    )
    lines, _ = stream(database, "-S", "s", "--context", "context", "-t", "t", "--ack", "none", "--until", "now")
    users = {int(line["new"]["id"]): line.get("context", {}).get("user") for line in lines}
    # In a streamed transaction the message before the first row of a savepoint that is rolled back is seen.
    assert users == {1: "ada", 3: "ada", 4: None, 5: "ada", 6: "eve", **dict.fromkeys(range(1001, 3001), "ada")}
    where = ("--where", "context.user = ada and id < 1001", "--until", "now")
    lines, said = stream(database, "-S", "s", "--context", "context", "--ack", "none", *where)
    assert [line["new"]["id"] for line in lines] == ["1", "3", "5"]
    more = ("--streaming", "off", "--op", "insert", "--where", "id = 6", "--until", "now")
    lines, said = stream(database, "-S", "s", "--context", "context", "--ack", "none", *more)
    assert [line["context"]["user"] for line in lines] == ["ada"]
    _, said = stream(database, "-S", "s", "--context", "no", "--ack", "none", "--until", "now")
    assert "no transaction sent a message with the prefix no (--context)" in said
    words = "--context needs logical messages: PostgreSQL 14 or later, without --no-messages"
    assert words in stream(database, "-S", "s", "--context", "context", "--no-messages", status=2)[1]


def test_old_servers_send_no_messages(database: Database) -> None:
    if database.version >= 14:
        pytest.skip("this server sends logical messages")
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    assert "--context needs logical messages" in stream(database, "--context", "context", status=2)[1]


@since(14)
def test_expect_waits_for_it(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    where = ("--context", "context", "--where", "context.user = bob", "-t", "t")
    with tailing(database, *where, command="expect") as running:
        running.wait_for_words("ready")
        database.execute("INSERT INTO t VALUES (1)")
        database.execute("BEGIN", EMIT.format("bob"), "INSERT INTO t VALUES (2)", "COMMIT")
        running.end(status=0)
        assert [line["new"]["id"] for line in running.changes] == ["2"]
