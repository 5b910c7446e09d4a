"""`-o json-tx`: one line per transaction, always valid JSON."""

from __future__ import annotations

from typing import Any

from pgtail.changes.filters import Filter
from tests.support.encode import (
    STREAM_STOP,
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
    recvlogical,
    relation,
    stream_commit,
    stream_start,
    truncate,
    update,
)
from tests.support.json_lines import AT, PREPARED_AT
from tests.support.render import Rendered, all_ways
from tests.support.run import decode

HEAD = '"schema":"public","table":"t"'
KEY = '"identity":"default","key":["id"]'


def rendered(*messages: bytes, **options: Any) -> Rendered:
    return all_ways(*messages, output="json-tx", **options)


def test_a_transaction_is_one_line() -> None:
    found = rendered(
        relation(),
        begin(),
        insert("1", "one"),
        update(("2", UNCHANGED), ("1", None)),
        delete("2", None),
        truncate(100, options=1),
        message(b"x"),
        commit(),
    )
    assert found.lines == [
        (
            f'{{"xid":7,{AT},"changes":['
            f'{{"op":"insert",{HEAD},"seq":1,"new":{{"id":1,"v":"one"}}}},'
            f'{{"op":"update",{HEAD},"seq":2,{KEY},"old":{{"id":1}},"new":{{"id":2}},"unchanged":["v"]}},'
            f'{{"op":"delete",{HEAD},"seq":3,{KEY},"old":{{"id":2}}}},'
            f'{{"op":"truncate",{HEAD},"seq":4,"cascade":true,"restart_identity":false}},'
            '{"op":"message","prefix":"p","transactional":true,"content":"x"}'
            '],"end_lsn":"0/108"}'
        )
    ]


def test_each_change_has_its_position() -> None:
    [line] = rendered(relation(), begin(), insert("1", "a"), message(b"x"), truncate(100), commit(), lsn=16).lines
    assert line == (
        f'{{"xid":7,{AT},"changes":['
        f'{{"op":"insert",{HEAD},"seq":1,"lsn":"0/10","new":{{"id":1,"v":"a"}}}},'
        '{"op":"message","lsn":"0/10","prefix":"p","transactional":true,"content":"x"},'
        f'{{"op":"truncate",{HEAD},"seq":2,"lsn":"0/10","cascade":false,"restart_identity":false}}'
        '],"end_lsn":"0/108"}'
    )


def test_every_transaction_has_a_line_even_if_empty() -> None:
    assert rendered(relation(), begin(), commit(), begin(8), insert("1", "a"), commit()).lines == [
        f'{{"xid":7,{AT},"changes":[],"end_lsn":"0/108"}}',
        f'{{"xid":8,{AT},"changes":[{{"op":"insert",{HEAD},"seq":1,"new":{{"id":1,"v":"a"}}}}],"end_lsn":"0/108"}}',
    ]


def test_prepared_transactions_with_origin_and_gid() -> None:
    found = rendered(begin_prepare(), origin("n"), prepare(), commit_prepared()).lines
    assert found == [
        f'{{"xid":7,{PREPARED_AT},"origin":"n","gid":"g","state":"prepared","changes":[],"end_lsn":"0/108"}}',
        (
            '{"op":"commit_prepared","xid":7,"gid":"g","commit_lsn":"0/200","end_lsn":"0/208",'
            '"commit_ts":"2000-01-01T00:00:00.000000Z"}'
        ),
    ]


def test_streamed_transaction_is_one_line_too() -> None:
    found = rendered(
        relation(), stream_start(), insert("1", "a", xid=7), STREAM_STOP, begin(8), commit(), stream_commit()
    ).lines
    assert [line.split(",")[0] for line in found] == ['{"xid":8', '{"xid":7']
    assert found[1].endswith(
        f'"changes":[{{"op":"insert",{HEAD},"seq":1,"new":{{"id":1,"v":"a"}}}}],"end_lsn":"0/108"}}'
    )


def test_events_without_a_transaction_have_their_own_line() -> None:
    alone = message(b"alone", transactional=False)
    line = '{"op":"message","prefix":"p","transactional":false,"content":"alone"}'
    found = rendered(alone, begin(), message(b"x"), alone, message(b"y"), commit(), alone).lines
    inside = '{"op":"message","prefix":"p","transactional":true,"content":"%s"}'
    assert found == [line, f'{{"xid":7,{AT},"changes":[{inside % "x"},{inside % "y"}],"end_lsn":"0/108"}}', line, line]


def test_events_inside_a_transaction_follow_it_in_order() -> None:
    """-o json writes it in order."""
    first, second = (message(content, transactional=False) for content in (b"first", b"second"))
    sent = (relation(), begin(), insert("1", "a"), first, relation(key=()), second, insert("2", "b"), commit())
    found = rendered(*sent, schema_changes=True).objects
    assert [line.get("content", line.get("op")) for line in found] == ["relation", None, "first", "relation", "second"]
    assert [change["seq"] for change in found[1]["changes"]] == [1, 2]
    in_place = decode("--schema-changes", input=recvlogical(*sent)).objects
    assert [line.get("content", line["op"]) for line in in_place] == [
        *("relation", "insert", "first", "relation", "second", "insert")
    ]


def test_a_transaction_that_is_cut_off_is_closed() -> None:
    for broken_off in (False, True):
        found = rendered(relation(), begin(), insert("1", "a"), broken_off=broken_off).lines
        assert found == [
            f'{{"xid":7,{AT},"changes":[{{"op":"insert",{HEAD},"seq":1,"new":{{"id":1,"v":"a"}}}}],"incomplete":true}}'
        ]
    assert rendered(begin(), broken_off=True).lines == [f'{{"xid":7,{AT},"changes":[],"incomplete":true}}']


def test_restarted_reader_closes_the_line() -> None:
    found = rendered(relation(), begin(), insert("1", "a"), begin(), insert("1", "a"), commit()).objects
    assert [(line.get("incomplete"), line.get("end_lsn"), len(line["changes"])) for line in found] == [
        (True, None, 1),
        (None, "0/108", 1),
    ]


def test_a_transaction_without_a_beginning() -> None:
    assert rendered(relation(), insert("1", "a"), commit()).lines == [
        f'{{"changes":[{{"op":"insert",{HEAD},"new":{{"id":1,"v":"a"}}}}],"end_lsn":"0/108"}}'
    ]


def test_a_filter_leaves_out_changes_and_whole_transactions() -> None:
    filter_ = Filter(where=["id = 2"])
    found = rendered(
        *(relation(), begin(), insert("1", "a"), insert("2", "b"), insert("3", "c"), commit()),
        *(begin(8), insert("1", "a"), commit()),
        filter_=filter_,
    ).objects
    assert [(line["xid"], [change["seq"] for change in line["changes"]]) for line in found] == [(7, [2])]


def test_table_descriptions() -> None:
    found = rendered(relation(), begin(), relation(oid=101, name="u"), insert("1", "a"), commit(), schema_changes=True)
    assert [line.get("op", "transaction") for line in found.objects] == ["relation", "relation", "transaction"]
