"""`-o json`: whole lines, written by hand from the documentation."""

from __future__ import annotations

from typing import Any

import pytest

from pgtail.changes.filters import Filter
from tests.support.encode import (
    INT4,
    STREAM_STOP,
    TEXT,
    UNCHANGED,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    delete,
    insert,
    message,
    origin,
    prepare,
    relation,
    rollback_prepared,
    stream_abort,
    stream_commit,
    stream_start,
    truncate,
    update,
)
from tests.support.json_lines import AT, PREPARED_AT
from tests.support.render import all_ways, render

COMMIT_TIME = 848_527_605_299_778
"""2026-11-20 22:06:45.299778+00, of tests/captures/pg16/Z_small (state.json, commit_timestamps)."""


def row(op: str, seq: int, rest: str, *, at: str = AT, table: str = "t") -> str:
    """The line of a row in transaction 7; `rest` is what follows the commit's position and time."""
    return f'{{"op":"{op}","schema":"public","table":"{table}","xid":7,"seq":{seq},{at},{rest}}}'


FULL, WIDE = relation(identity="f", key=(0, 1)), relation(key=(0, 1))
KEYED = '"identity":"default","key":["id"],'
ROWS: dict[str, tuple[bytes, list[bytes], list[str]]] = {
    "inserts": (
        relation(),
        [insert("1", "one"), insert("2", None)],
        [row("insert", 1, '"new":{"id":1,"v":"one"}'), row("insert", 2, '"new":{"id":2,"v":null}')],
    ),
    "an update of other columns": (
        relation(),
        [update(("1", "uno"))],
        [row("update", 1, KEYED + '"new":{"id":1,"v":"uno"}')],
    ),
    "an update of the key shows the old one and no columns outside of it": (
        relation(),
        [update(("3", None), ("2", None))],
        [row("update", 1, KEYED + '"old":{"id":2},"new":{"id":3,"v":null}')],
    ),
    "a delete": (relation(), [delete("1", None)], [row("delete", 1, KEYED + '"old":{"id":1}')]),
    "the full identity has all old columns and no key": (
        FULL,
        [delete("1", None, kind="O"), update(("1", "b"), ("1", None), "O")],
        [
            row("delete", 1, '"identity":"full","old":{"id":1,"v":null}'),
            row("update", 2, '"identity":"full","old":{"id":1,"v":null},"new":{"id":1,"v":"b"}'),
        ],
    ),
    "without an identity there is no key and no old row": (
        relation(identity="n", key=()),
        [insert("1", "a"), update(("1", "b"))],
        [row("insert", 1, '"new":{"id":1,"v":"a"}'), row("update", 2, '"identity":"nothing","new":{"id":1,"v":"b"}')],
    ),
    "an index as identity may have several columns anywhere": (
        relation(columns=[("a", INT4), ("b", TEXT), ("c", TEXT)], identity="i", key=(1, 2)),
        [delete(None, "x", None)],
        [row("delete", 1, '"identity":"index","key":["b","c"],"old":{"b":"x","c":null}')],
    ),
    "unchanged TOAST is named and not in new": (
        relation(),
        [update(("8", UNCHANGED), ("7", None)), update((UNCHANGED, UNCHANGED))],
        [
            row("update", 1, KEYED + '"old":{"id":7},"new":{"id":8},"unchanged":["v"]'),
            row("update", 2, KEYED + '"new":{},"unchanged":["id","v"]'),
        ],
    ),
}


@pytest.mark.parametrize(("table", "changes", "expected"), ROWS.values(), ids=ROWS)
def test_rows(table: bytes, changes: list[bytes], expected: list[str]) -> None:
    assert all_ways(table, begin(), *changes, commit()).lines == expected


@pytest.mark.parametrize(
    ("table", "change", "fill", "end"),
    [
        (FULL, update(("1", UNCHANGED), ("1", "long"), "O"), False, '"new":{"id":1},"unchanged":["v"]}'),
        (FULL, update(("1", UNCHANGED), ("1", "long"), "O"), True, '"new":{"id":1,"v":"long"},"unchanged":["v"]}'),
        (WIDE, update(("1", UNCHANGED), ("2", "k")), True, '"new":{"id":1,"v":"k"},"unchanged":["v"]}'),
        # A column outside of the identity.
        (relation(), update(("8", UNCHANGED), ("7", None)), True, '"new":{"id":8},"unchanged":["v"]}'),
        (relation(), update(("1", UNCHANGED)), True, '"new":{"id":1},"unchanged":["v"]}'),
    ],
)
def test_unchanged_toast_is_filled_on_request_and_still_named(
    table: bytes, change: bytes, fill: bool, end: str
) -> None:
    [line] = all_ways(table, begin(), change, commit(), fill_unchanged=fill).lines
    assert line.endswith(end)


def test_a_truncate_has_a_line_and_a_seq_for_each_table() -> None:
    other = relation(oid=101, name="u")
    found = all_ways(relation(), other, begin(), truncate(100, 101, options=3), truncate(101), commit()).lines
    assert found == [
        row("truncate", 1, '"cascade":true,"restart_identity":true'),
        row("truncate", 2, '"cascade":true,"restart_identity":true', table="u"),
        row("truncate", 3, '"cascade":false,"restart_identity":false', table="u"),
    ]


def test_messages_have_no_seq_and_no_xid_of_their_own() -> None:
    found = all_ways(
        message(b"alone", transactional=False),
        relation(),
        begin(),
        message('"\u00e9"\n'.encode()),
        insert("1", "a"),
        message(b"\xff\0", prefix=""),
        message(b""),
        commit(),
    )
    assert found.lines == [
        '{"op":"message","prefix":"p","transactional":false,"content":"alone"}',
        f'{{"op":"message","xid":7,{AT},"prefix":"p","transactional":true,"content":"\\"\u00e9\\"\\n"}}',
        row("insert", 1, '"new":{"id":1,"v":"a"}'),
        f'{{"op":"message","xid":7,{AT},"prefix":"","transactional":true,"content_base64":"/wA="}}',
        f'{{"op":"message","xid":7,{AT},"prefix":"p","transactional":true,"content":""}}',
    ]


def test_frame_position_is_shown_if_there_is_one() -> None:
    found = all_ways(
        message(b"alone", transactional=False),
        relation(),
        begin(),
        insert("1", "a"),
        truncate(100),
        message(b"x"),
        commit(),
        lsn=0xAB_0000FFFF,
    ).lines
    assert found == [
        '{"op":"message","lsn":"AB/FFFF","prefix":"p","transactional":false,"content":"alone"}',
        row("insert", 1, '"lsn":"AB/FFFF","new":{"id":1,"v":"a"}'),
        row("truncate", 2, '"lsn":"AB/FFFF","cascade":false,"restart_identity":false'),
        f'{{"op":"message","xid":7,{AT},"lsn":"AB/FFFF","prefix":"p","transactional":true,"content":"x"}}',
    ]


def test_times_and_positions() -> None:
    xid, lsn = 0xFFFFFFFF, 0xFFFFFFFF_00000001
    [line] = all_ways(relation(), begin(xid, lsn, COMMIT_TIME), insert("1", "a"), commit(lsn, 0, COMMIT_TIME)).lines
    assert '"xid":4294967295,"seq":1,"commit_lsn":"FFFFFFFF/1","commit_ts":"2026-11-20T22:06:45.299778Z"' in line
    [line] = all_ways(relation(), begin(time=-1), insert("1", "a"), commit(time=-1)).lines
    assert '"commit_ts":"1999-12-31T23:59:59.999999Z"' in line


def test_an_origin_follows_the_position() -> None:
    found = all_ways(relation(), begin(), origin("node_b"), insert("1", "a"), message(b"x"), commit(), lsn=16).lines
    assert found == [
        row("insert", 1, '"lsn":"0/10","origin":"node_b","new":{"id":1,"v":"a"}'),
        (
            f'{{"op":"message","xid":7,{AT},"lsn":"0/10","origin":"node_b","prefix":"p","transactional":true,'
            '"content":"x"}'
        ),
    ]


def test_a_prepared_transaction_and_its_outcomes() -> None:
    found = all_ways(
        relation(),
        begin_prepare(gid="it's"),
        origin("n"),
        insert("1", "a"),
        update(("1", "b")),
        prepare(gid="it's"),
        commit_prepared(gid="it's", time=COMMIT_TIME),
        rollback_prepared(gid="other", then=COMMIT_TIME),
    )
    assert found.lines == [
        row("insert", 1, '"origin":"n","gid":"it\'s","state":"prepared","new":{"id":1,"v":"a"}', at=PREPARED_AT),
        row(
            "update",
            2,
            '"origin":"n","gid":"it\'s","state":"prepared","identity":"default","key":["id"],"new":{"id":1,"v":"b"}',
            at=PREPARED_AT,
        ),
        (
            '{"op":"commit_prepared","xid":7,"gid":"it\'s","commit_lsn":"0/200","end_lsn":"0/208",'
            '"commit_ts":"2026-11-20T22:06:45.299778Z"}'
        ),
        (
            '{"op":"rollback_prepared","xid":7,"gid":"other","prepare_end_lsn":"0/108","rollback_end_lsn":"0/208",'
            '"prepare_ts":"2000-01-01T00:00:00.000000Z","rollback_ts":"2026-11-20T22:06:45.299778Z"}'
        ),
    ]


def test_a_streamed_transaction_has_the_top_transaction_s_xid() -> None:
    found = all_ways(
        relation(),
        stream_start(),
        insert("1", "a", xid=7),
        insert("2", "b", xid=8),
        message(b"x", xid=7),
        insert("3", "c", xid=9),
        STREAM_STOP,
        stream_abort(7, 9),
        stream_start(first=0),
        insert("4", "d", xid=10),
        STREAM_STOP,
        stream_commit(),
        lsn=16,
    ).lines
    head = '"schema":"public","table":"t","xid":7'
    assert found == [
        f'{{"op":"insert",{head},"seq":1,{AT},"lsn":"0/10","new":{{"id":1,"v":"a"}}}}',
        f'{{"op":"insert",{head},"seq":2,{AT},"lsn":"0/10","new":{{"id":2,"v":"b"}}}}',
        f'{{"op":"message","xid":7,{AT},"lsn":"0/10","prefix":"p","transactional":true,"content":"x"}}',
        f'{{"op":"insert",{head},"seq":3,{AT},"lsn":"0/10","new":{{"id":4,"v":"d"}}}}',
    ]


def test_a_streamed_transaction_that_is_prepared() -> None:
    found = all_ways(relation(), stream_start(), insert("1", "a", xid=7), STREAM_STOP, prepare(tag=b"p")).lines
    assert found == [row("insert", 1, '"gid":"g","state":"prepared","new":{"id":1,"v":"a"}', at=PREPARED_AT)]


def test_transaction_lines() -> None:
    options: dict[str, Any] = {"transactions": True}
    found = all_ways(
        *(relation(), begin(), origin("n"), insert("1", "a"), insert("2", "b"), commit()),
        *(begin(8, 0x300), commit(0x300, 0x308)),
        *(begin_prepare(9), prepare(9)),
        *(stream_start(10), STREAM_STOP, stream_commit(10)),
        lsn=16,
        **options,
    ).lines
    assert [line for line in found if '"insert"' not in line] == [
        f'{{"op":"begin","xid":7,{AT},"origin":"n"}}',
        f'{{"op":"commit","xid":7,{AT},"origin":"n","end_lsn":"0/108","changes":2}}',
        '{"op":"begin","xid":8,"commit_lsn":"0/300","commit_ts":"2000-01-01T00:00:00.000000Z"}',
        (
            '{"op":"commit","xid":8,"commit_lsn":"0/300","commit_ts":"2000-01-01T00:00:00.000000Z","end_lsn":"0/308",'
            '"changes":0}'
        ),
        f'{{"op":"begin","xid":9,{PREPARED_AT},"gid":"g","state":"prepared"}}',
        f'{{"op":"prepare","xid":9,{PREPARED_AT},"gid":"g","state":"prepared","end_lsn":"0/108","changes":0}}',
        f'{{"op":"begin","xid":10,{AT}}}',
        f'{{"op":"commit","xid":10,{AT},"end_lsn":"0/108","changes":0}}',
    ]
    assert '"begin"' in found[0]
    assert '"insert"' in found[1]
    assert '"commit"' in found[3]


def test_number_of_changes_includes_filtered_ones() -> None:
    options: dict[str, Any] = {"transactions": True, "filter_": Filter(where=["id = 2"])}
    found = render(relation(), begin(), insert("1", "a"), insert("2", "b"), insert("3", "c"), commit(), **options)
    assert [(line["op"], line.get("seq"), line.get("changes")) for line in found.objects] == [
        ("begin", None, None),
        ("insert", 2, None),
        ("commit", None, 3),
    ]


def test_a_transaction_that_is_broken_off_has_no_last_line() -> None:
    found = all_ways(relation(), begin(), insert("1", "a"), broken_off=True, transactions=True).objects
    assert [line["op"] for line in found] == ["begin", "insert"]


def test_a_transaction_without_a_beginning_has_no_number_of_changes() -> None:
    found = all_ways(relation(), insert("1", "a"), commit(), transactions=True).objects
    assert "seq" not in found[1]
    assert "changes" not in found[-1]
    assert found[-1]["op"] == "commit"
