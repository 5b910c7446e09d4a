"""Prepared transactions under filters: what is shown of one gets its outcome too, in formats that depend on it."""

from __future__ import annotations

from typing import Any

import pytest

from pgtail.changes.commit_range import CommitRange
from pgtail.pgoutput.scalars import Point
from tests.support.encode import (
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    insert,
    lengths,
    prepare,
    relation,
    rollback_prepared,
)
from tests.support.render import WAYS, Way, render
from tests.support.run import decode

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
    found = render(*MESSAGES, output=output, filters=filters, way=way, tell=reported.append)
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


def test_other_formats_have_no_outcome_where_tables_are_selected() -> None:
    found = render(*MESSAGES, filters=FILTERS["table"])
    assert [one["op"] for one in found.objects] == ["insert", "insert"]
