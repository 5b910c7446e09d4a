"""Formats for other programs, on the command line: their options, and slots of a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.corpus import capture
from tests.support.encode import begin, begin_prepare, commit, insert, lengths, prepare, recvlogical, relation
from tests.support.run import decode
from tests.support.servers import Database
from tests.support.tail import tailing

CHANGES = recvlogical(relation(), begin(), insert("1", "a"), commit())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--undo"], "--undo belongs to -o sql, not to json"),
        (["-o", "csv", "--wal2json", "include-xids"], "--wal2json belongs to -o wal2json and wal2json-v1, not to csv"),
        (["-o", "wal2json", "--wal2json", "include-pk"], "--wal2json include-pk: pgoutput does not send this"),
        (["-o", "sql", "--source-name", "shop"], "--source-name belongs to -o debezium, not to sql"),
        (["--schema"], "--schema belongs to -o debezium, not to json"),
    ],
)
def test_an_option_of_another_format_is_refused(options: list[str], why: str) -> None:
    found = decode(*options, input=CHANGES)
    assert found.status == 2
    assert why in found.stderr


def test_a_directory_is_for_csv(tmp_path: Path) -> None:
    found = decode("-o", "sql", "-f", str(tmp_path), input=CHANGES)
    assert (found.status, f"-f {tmp_path} is a directory: only csv" in found.stderr) == (2, True)


def test_options_reach_their_formats() -> None:
    [line, _] = decode("-o", "wal2json", "--wal2json", "include-transaction=off", input=CHANGES * 2).objects
    assert line["action"] == "I"
    [event] = decode("-o", "debezium", "--source-name", "shop/orders", "--schema", input=CHANGES).objects
    source = event["payload"]["source"]
    assert (source["name"], source["db"], event["schema"]["name"]) == ("shop", "orders", "shop.public.t.Envelope")
    numeric = recvlogical(relation(columns=(("n", 1700),)), begin(), insert("1.50"), commit())
    for numbers, shown in (("exact", {"scale": 1, "value": "Dw=="}), ("string", "1.50")):
        [event] = decode("-o", "debezium", "--numbers", numbers, input=numeric).objects
        assert event["after"] == {"n": shown}
    assert b"DELETE FROM" in decode("-o", "sql", "--undo", input=CHANGES).stdout


def test_messages_of_an_output_go_to_standard_error() -> None:
    found = decode("-o", "sql", "--undo", capture("Z_small", "p1").forms["walsender.bin"])
    assert found.status == 1
    assert "pgtail: 4 changes cannot be undone; each is replaced by a comment" in found.stderr
    gid = lengths(relation(), begin_prepare(7, "\x1b[31m"), insert("1", "a"), prepare(7, "\x1b[31m"))
    found = decode("-o", "wal2json", "--input-format", "lengths", input=gid)
    assert "prepared transaction" in found.stderr
    assert "\x1b" not in found.stderr


@pytest.fixture
def shop(newest_database: Database) -> Database:
    newest_database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v text)",
        "CREATE TABLE b (id int PRIMARY KEY, v text)",
        "CREATE PUBLICATION p FOR ALL TABLES",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        "INSERT INTO a VALUES (1, 'one'), (2, 'two')",
        "INSERT INTO b VALUES (3, 'three')",
    )
    return newest_database


def test_debezium_events_of_a_slot_name_the_database(shop: Database) -> None:
    with tailing(shop, "-S", "s", "-P", "p", "--until", "now", "-o", "debezium", "--source-name", "x") as started:
        started.end()
        events = [json.loads(line) for line in started.out]
    assert [event["after"]["id"] for event in events] == [1, 2, 3]
    assert {(event["source"]["name"], event["source"]["db"]) for event in events} == {("x", shop.name)}


def test_two_tables_in_one_csv_end_the_stream_with_the_reason(shop: Database) -> None:
    with tailing(shop, "-S", "s", "-P", "p", "--until", "now", "-o", "csv") as started:
        assert "-o csv writes one table, not both public.a and public.b" in started.end(status=2)
    with tailing(shop, "-S", "s", "-P", "p", "--until", "now", "-o", "csv", "-t", "b") as started:
        started.end()
        assert [line.decode().rstrip().split(",")[-2:] for line in started.out[1:]] == [["3", "three"]]


def test_undo_acknowledges_only_at_exit(shop: Database) -> None:
    undo = ("-S", "s", "-P", "p", "--until", "now", "-o", "sql", "--undo")
    with tailing(shop, *undo, "--ack", "commit") as started:
        assert "would be acknowledged; use --ack exit or --ack none" in started.end(status=2)
    with tailing(shop, "-P", "p", "-o", "sql", "--undo", "--reconnect") as started:
        assert "a temporary slot misses some" in started.end(status=2)
    confirmed = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 's'"
    before = shop.value(confirmed)
    with tailing(shop, *undo, "--ack", "exit") as started:
        started.end()
        calls = [line.decode().strip() for line in started.out if line.startswith(b"CALL")]
    assert calls == [
        f"""CALL pg_temp.one_row('DELETE FROM', '"public"."{name}"', NULL, $$"id" = '{id_}'$$);"""
        for name, id_ in (("b", 3), ("a", 2), ("a", 1))
    ]
    assert shop.value(confirmed) > before
    shop.execute("SELECT pg_create_logical_replication_slot('t', 'pgoutput', false, true)")
    prepared = ("-S", "t", "-P", "p", "--until", "now", "-o", "wal2json")
    with tailing(shop, *prepared, "--ack", "commit") as started:
        assert "shows a prepared transaction when it is committed" in started.end(status=2)
    with tailing(shop, *prepared) as started:
        started.end()
