"""Snapshots: the events of their rows, their numbers, and inputs that break off inside one."""

from __future__ import annotations

import pytest

from pgtail.changes.assembler import Assembler
from pgtail.changes.commit_range import CommitRange
from pgtail.changes.events import Change, Ended, Event, RowChange, Started, Transaction
from pgtail.changes.filters import Filter
from pgtail.errors import AssemblyError
from pgtail.pgoutput.decoder import AnyFrame, Continued
from pgtail.pgoutput.rows import Delete, Insert
from pgtail.pgoutput.scalars import Point
from pgtail.pgoutput.transaction import Begin, Commit
from pgtail.pgoutput.walsender import Keepalive
from pgtail.values import Types
from tests.support.assembled import RESTART, Collector, T, U, begin, commit, events_of, insert, snapshot, table

BEGIN, COMMIT = Begin(99, 5, 0), Commit(0, 99, 100, 5)


def fed(*messages: AnyFrame) -> list[Event]:
    assembler = Assembler(Types())
    found = [event for message in messages for event in assembler.feed(message, 99)]
    return [*found, *assembler.finish()]


def transactions(*messages: AnyFrame) -> list[Transaction]:
    return [event.transaction for event in fed(*messages) if isinstance(event, Ended)]


def numbers(*messages: AnyFrame) -> list[tuple[str, int | None]]:
    return [(event.op, event.seq) for event in fed(*messages) if isinstance(event, RowChange)]


def test_rows_are_changes_of_their_own_without_an_xid() -> None:
    first, *_ = [event for event in fed(*snapshot(T, b"1", b"2")) if isinstance(event, Started)]
    transaction = first.transaction
    assert (transaction.snapshot, transaction.xid) == (True, None)
    assert transaction.table is not None
    assert transaction.table.name == "t100"
    assert (transaction.commit_lsn, transaction.end_lsn, transaction.commit_ts) == (99, 100, 5)
    assert events_of(*snapshot(T, b"1", b"2"), begin(), insert(b"3"), commit()) == [
        ("started", None),
        ("snapshot", 1, b"1"),
        ("snapshot", 2, b"2"),
        ("ended", None, "complete"),
        ("snapshot ended", True),
        ("started", 7),
        ("insert", 1, b"3"),
        ("ended", 7, "complete"),
    ]


def test_numbers_go_on_in_the_next_table_and_begin_again_in_the_next_snapshot() -> None:
    messages = [*snapshot(T, b"1", b"2"), *snapshot(U), *snapshot(300, b"3"), *snapshot(T, b"1", end_lsn=200)]
    assert numbers(*messages) == [("snapshot", 1), ("snapshot", 2), ("snapshot", 3), ("snapshot", 1)]
    assert [one.count for one in transactions(*messages)] == [2, 0, 1, 1]
    assert [event for event in events_of(*messages) if event[0] == "snapshot ended"] == [("snapshot ended", True)] * 2


def test_numbers_jump_from_part_to_part() -> None:
    parts: list[AnyFrame] = [table(), BEGIN, Continued(10, 0), insert(), Continued(500, 0), insert(), insert(), COMMIT]
    assert numbers(*parts) == [("snapshot", 11), ("snapshot", 501), ("snapshot", 502)]
    [transaction] = transactions(*parts)
    assert (transaction.count, transaction.changes) == (3, 502)
    assert numbers(*parts, *snapshot(U, b"1"))[-1] == ("snapshot", 503)


@pytest.mark.parametrize("table_first", [True, False])
def test_the_table_of_a_snapshot_is_known_also_if_it_is_empty(table_first: bool) -> None:
    start: list[AnyFrame] = [table(U), BEGIN] if table_first else [BEGIN, table(U)]
    [transaction] = transactions(table(T), *start, COMMIT)
    assert transaction.table is not None
    assert transaction.table.oid == U


def test_the_table_is_not_that_of_an_earlier_snapshot() -> None:
    assert [one.table and one.table.oid for one in transactions(*snapshot(T, b"1"), BEGIN)] == [T, None]
    assert [one.table and one.table.oid for one in transactions(*snapshot(T)[:-1], *snapshot(U, b"1"))] == [T, U]


def test_a_snapshot_that_breaks_off_is_incomplete() -> None:
    assert events_of(*snapshot(T, b"1")[:-1]) == [
        ("started", None),
        ("snapshot", 1, b"1"),
        ("ended", None, "broken off"),
        ("snapshot ended", False),
        ("note", "the input ends inside the snapshot of public.t100"),
    ]
    with pytest.raises(AssemblyError, match=r"inside the snapshot of public\.t100"):
        events_of(*snapshot(T, b"1")[:-1], strict=True)


@pytest.mark.parametrize("message", [Delete(None, T, "K", (b"1",)), begin(), BEGIN], ids=lambda one: type(one).__name__)
def test_what_no_snapshot_has_ends_it(message: AnyFrame) -> None:
    started, row, ended, over, note, *_ = events_of(*snapshot(T, b"1")[:-1], message)
    assert (started[0], row, ended) == ("started", ("snapshot", 1, b"1"), ("ended", None, "broken off"))
    assert (over, note[0]) == (("snapshot ended", False), "note")
    assert " inside a snapshot, which ends incomplete" in note[1]


def test_after_a_gap_it_is_not_known_whether_tables_are_missing() -> None:
    collector = Collector().feed(*snapshot(T, b"1"))
    collector.events += collector.assembler.lost()
    assert collector.end()[-1] == ("snapshot ended", False)


def test_a_restart_ends_a_snapshot() -> None:
    assert events_of(*snapshot(T, b"1")[:-1], RESTART, *snapshot(U, b"2"))[2:] == [
        ("ended", None, "broken off"),
        ("snapshot ended", False),
        ("started", None),
        ("snapshot", 2, b"2"),
        ("ended", None, "complete"),
        ("snapshot ended", True),
    ]


def test_the_first_message_after_a_snapshot_says_that_it_ended() -> None:
    collector = Collector().feed(*snapshot(T, b"1"))
    outside = [collector.assembler.outside]
    collector.feed(Keepalive(100, 5, 0))
    assert [*outside, collector.assembler.outside] == [False, True]
    assert collector.end()[-1] == ("snapshot ended", True)


def changes(*messages: AnyFrame) -> list[Change]:
    return [event for event in fed(*messages) if isinstance(event, RowChange)]


MESSAGES = [*snapshot(T, b"1", b"2"), begin(), Insert(None, T, (b"1",)), commit()]


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        (Filter(ops=["snapshot"]), ["snapshot", "snapshot"]),
        (Filter(ops=["insert"]), ["insert"]),
        (Filter(xids=[7]), ["insert"]),
        (Filter(where=["id = 1"]), ["snapshot", "insert"]),
        (Filter(where=["op = snapshot and old.id is null"]), ["snapshot", "snapshot"]),
        (Filter(where=["xid is null"]), ["snapshot", "snapshot"]),
        (Filter(where=["changed(id)"]), []),
        (Filter(tables=["t200"]), []),
        (Filter(commits=CommitRange(until=Point(lsn=99))), ["snapshot", "snapshot"]),
        (Filter(commits=CommitRange(since=Point(lsn=100))), ["insert"]),
    ],
)
def test_rows_pass_filters_as_inserts_without_an_xid_at_their_place(filter_: Filter, expected: list[str]) -> None:
    assert [change.op for change in changes(*MESSAGES) if filter_.passes(change)] == expected


@pytest.mark.parametrize(
    ("filter_", "passes"),
    [
        (Filter(), True),
        (Filter(tables=["t100"]), True),
        (Filter(tables=["t200"]), False),
        (Filter(ops=["insert"]), False),
        (Filter(xids=[7]), False),
        (Filter(where=["id = 9"]), True),
    ],
)
def test_a_snapshot_is_shown_if_its_table_passes(filter_: Filter, passes: bool) -> None:
    [transaction] = transactions(*snapshot(T, b"1"))
    assert filter_.snapshot_passes(transaction) is passes
