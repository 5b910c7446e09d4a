"""Prepared transactions under filters: what is shown of one gets its outcome too, in formats that depend on it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pgtail.changes.commit_range import CommitRange
from pgtail.pgoutput.scalars import Point
from tests.support.corpus import Capture, captures
from tests.support.encode import (
    STREAM_STOP,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    insert,
    lengths,
    prepare,
    relation,
    rollback_prepared,
    stream_start,
)
from tests.support.render import WAYS, Way, render
from tests.support.run import command, decode
from tests.support.servers import Database
from tests.support.two_phase import CREATE_SLOT

MESSAGES = (
    *(relation(), relation(oid=101, name="u")),
    *(begin_prepare(7, "of t"), insert("1", "ann"), insert("9", "xen", oid=101), prepare(7, "of t")),
    *(begin_prepare(8, "of u"), insert("2", "bob", oid=101), prepare(8, "of u")),
    *(begin_prepare(9, "back"), insert("3", "cid"), prepare(9, "back")),
    *(commit_prepared(7, "of t"), commit_prepared(8, "of u"), rollback_prepared(9, "back")),
)
FILTERS: dict[str, dict[str, Any]] = {"table": {"tables": ["t"]}, "where": {"where": ["id in (1, 3)"]}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("output", ["wal2json", "wal2json-v1", "debezium", "csv", "sql"])
def test_a_filter_does_not_lose_committed_rows(output: str, filters: dict[str, Any], way: Way) -> None:
    reported: list[str] = []
    found = render(*MESSAGES, output=output, filters=filters, way=way, report=reported.append)
    assert reported == []
    if output == "sql":
        ends = [line for line in found.lines if "PREPARED" in line or line.startswith("PREPARE")]
        assert ends == [
            *("PREPARE TRANSACTION 'of t';", "PREPARE TRANSACTION 'back';"),
            *("COMMIT PREPARED 'of t';", "ROLLBACK PREPARED 'back';"),
        ]
    else:
        assert [name for name in (b"ann", b"bob", b"cid", b"xen") if name in found.written] == [b"ann"]


def test_a_filter_does_not_lose_what_can_be_undone() -> None:
    found = render(*MESSAGES, output="sql", filters=FILTERS["table"], undo=True)
    assert b"DELETE FROM" in found.written
    assert b"'1'" in found.written
    assert b"'3'" not in found.written


def test_operations_of_rows_keep_the_outcome() -> None:
    found = render(*MESSAGES, output="sql", filters={"ops": ["insert"]})
    assert "COMMIT PREPARED 'of u';" in found.lines


def test_the_outcome_of_a_transaction_prepared_earlier_is_written() -> None:
    found = render(*MESSAGES[2:], output="sql", filters={"commits": CommitRange(Point(lsn=0x180))})
    assert [line for line in found.lines if "PREPARED" in line] == [
        *("COMMIT PREPARED 'of t';", "COMMIT PREPARED 'of u';", "ROLLBACK PREPARED 'back';"),
    ]
    assert "COMMIT PREPARED 'g';" in render(commit_prepared(7), output="sql", filters=FILTERS["table"]).lines


@pytest.mark.parametrize("output", ["wal2json", "debezium", "csv", "sql"])
def test_a_prepared_transaction_counts_when_it_is_committed(output: str) -> None:
    dump = lengths(*MESSAGES, begin(10), insert("4", "dan"), commit())
    one, two, three = (decode("-o", output, "-t", "t", "-n", count, input=dump) for count in "123")
    assert [b"ann" in one.stdout, b"dan" in one.stdout] == [True, False]
    assert [b"ann" in two.stdout, b"dan" in two.stdout] == [True, True]
    assert three.stdout == two.stdout if output != "debezium" else len(three.lines) == len(two.lines)
    assert "not shown" not in two.stderr


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "filters",
    [*FILTERS.values(), {"tables": ["t"], "ops": ["insert"]}, {"exclude": ["u"]}, {"xids": [7, 9]}],
    ids=[*FILTERS, "operation", "exclude", "xid"],
)
@pytest.mark.parametrize("output", ["json", "json-tx", "table", "line", "--format-string"])
def test_what_is_shown_of_one_gets_its_outcome_and_nothing_else(output: str, filters: dict[str, Any], way: Way) -> None:
    shown = render(*MESSAGES, output=output, filters=filters, way=way, format_string="%o %x %g %{v}").written.decode()
    end = shown.index("\n", shown.rindex("cid"))
    rows, outcomes = shown[:end], shown[end:]
    assert [name for name in ("ann", "of t", "back", "of u") if name in rows] == ["ann", "of t", "back"]
    assert [name for name in ("of t", "back", "of u") if name in outcomes] == ["of t", "back"]


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
def test_of_one_that_was_prepared_earlier_no_outcome_is_shown(filters: dict[str, Any]) -> None:
    assert render(commit_prepared(7), filters=filters).objects == []


def test_outcomes_that_are_asked_for_are_shown_by_themselves() -> None:
    found = render(*MESSAGES, filters={"ops": ["commit_prepared"]}).objects
    assert [(one["op"], one["xid"]) for one in found] == [("commit_prepared", 7), ("commit_prepared", 8)]
    found = render(*MESSAGES[-3:], filters={"xids": [9]}).objects
    assert [(one["op"], one["xid"]) for one in found] == [("rollback_prepared", 9)]


def test_a_streamed_one_and_a_reused_gid() -> None:
    ended = prepare(7, "g", tag=b"p")
    streamed = [stream_start(7), insert("1", "ann", xid=7), STREAM_STOP, ended, commit_prepared(7, "g")]
    again = [begin_prepare(8, "g"), insert("2", "bob"), prepare(8, "g"), rollback_prepared(8, "g")]
    found = render(relation(), *streamed, *again, filters={"where": ["id = 1"]}).objects
    assert [(one["op"], one["xid"]) for one in found] == [("insert", 7), ("commit_prepared", 7)]


def test_the_oldest_ones_are_forgotten_where_outcomes_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgtail.pipeline.pipeline.MOST_PREPARED", 2)
    prepared = [(begin_prepare(xid, f"g{xid}"), insert("1", "v"), prepare(xid, f"g{xid}")) for xid in (7, 8, 9)]
    outcomes = [commit_prepared(xid, f"g{xid}") for xid in (7, 8, 9)]
    found = render(relation(), *itertools.chain(*prepared), *outcomes, filters={"tables": ["t"]}).objects
    assert [one["xid"] for one in found] == [7, 8, 9, 8, 9]


@pytest.mark.parametrize("one", [one for one in captures() if one.scenario.name == "D_twophase"], ids=str)
@pytest.mark.parametrize("options", [("-t", "pt"), ("--op", "insert"), ("--where", "id in (1, 3)")], ids=" ".join)
def test_every_outcome_in_a_capture_belongs_to_something_that_was_shown(one: Capture, options: tuple[str, ...]) -> None:
    whole, found = (decode(*given, one.forms["walsender.bin"]).objects for given in ((), options))
    shown = {row["xid"] for row in found if row.get("state") == "prepared"}
    outcomes = [row for row in whole if row["op"].endswith("_prepared")]
    assert [row for row in found if row["op"].endswith("_prepared")] == [row for row in outcomes if row["xid"] in shown]
    if one.name == "p3_2pc":
        assert 0 < len(shown) < len({row["xid"] for row in outcomes}) or options[0] == "--op"


@pytest.mark.parametrize("output", ["json", "line"])
def test_what_a_server_sends_before_and_after_the_outcome(output: str, newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (id int)", "CREATE TABLE u ()", "CREATE PUBLICATION p FOR ALL TABLES")
    newest_database.query(CREATE_SLOT.format("s", "true"))
    newest_database.execute("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'of t'")
    newest_database.execute("BEGIN; INSERT INTO u DEFAULT VALUES; PREPARE TRANSACTION 'of u'")
    given = ("stream", newest_database.conninfo(), "-S", "s", "--until", "now", "-t", "t", "-o", output)
    (row,) = command(*given).lines
    newest_database.execute("COMMIT PREPARED 'of t'", "ROLLBACK PREPARED 'of u'")
    again, outcome = command(*given).lines
    assert again == row
    assert b"of t" in outcome
    assert b"COMMIT" in outcome.upper()
