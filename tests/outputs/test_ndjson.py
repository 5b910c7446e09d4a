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
    text,
    truncate,
    type_,
    update,
)
from tests.support.render import all_ways, render

INT8, BOOL, NUMERIC, FLOAT8, JSON_, TEXTS, OID, INT4S, BYTEA = 20, 16, 1700, 701, 114, 1009, 26, 1007, 17

AT = '"commit_lsn":"0/100","commit_ts":"2000-01-01T00:00:00.000000Z"'
PREPARED_AT = '"prepare_lsn":"0/100","prepare_ts":"2000-01-01T00:00:00.000000Z"'
COMMIT_TIME = 848_527_605_299_778
"""2026-11-20 22:06:45.299778+00, of tests/captures/pg16/Z_small (state.json, commit_timestamps)."""


def lines(*messages: bytes, **options: Any) -> list[str]:
    """The lines of changes of the table t(id, v) in a transaction."""
    return all_ways(relation(), begin(), *messages, commit(), **options).lines


def test_an_insert() -> None:
    assert lines(insert("1", "one"), insert("2", None)) == [
        f'{{"op":"insert","schema":"public","table":"t","xid":7,"seq":1,{AT},"new":{{"id":1,"v":"one"}}}}',
        f'{{"op":"insert","schema":"public","table":"t","xid":7,"seq":2,{AT},"new":{{"id":2,"v":null}}}}',
    ]


def test_an_update_of_other_columns() -> None:
    assert lines(update(("1", "uno"))) == [
        (
            f'{{"op":"update","schema":"public","table":"t","xid":7,"seq":1,{AT},"identity":"default","key":["id"],'
            '"new":{"id":1,"v":"uno"}}'
        )
    ]


def test_an_update_of_the_key_shows_the_old_one_and_no_columns_outside_of_it() -> None:
    assert lines(update(("3", None), ("2", None))) == [
        (
            f'{{"op":"update","schema":"public","table":"t","xid":7,"seq":1,{AT},"identity":"default","key":["id"],'
            '"old":{"id":2},"new":{"id":3,"v":null}}'
        )
    ]


def test_a_delete() -> None:
    assert lines(delete("1", None)) == [
        (
            f'{{"op":"delete","schema":"public","table":"t","xid":7,"seq":1,{AT},"identity":"default","key":["id"],'
            '"old":{"id":1}}'
        )
    ]


def test_the_full_identity_has_all_old_columns_and_no_key() -> None:
    full = relation(identity="f", key=(0, 1))
    found = all_ways(full, begin(), delete("1", None, kind="O"), update(("1", "b"), ("1", None), "O"), commit()).lines
    assert found == [
        (
            f'{{"op":"delete","schema":"public","table":"t","xid":7,"seq":1,{AT},"identity":"full",'
            '"old":{"id":1,"v":null}}'
        ),
        (
            f'{{"op":"update","schema":"public","table":"t","xid":7,"seq":2,{AT},"identity":"full",'
            '"old":{"id":1,"v":null},"new":{"id":1,"v":"b"}}'
        ),
    ]


def test_without_an_identity_there_is_no_key_and_no_old_row() -> None:
    nothing = relation(identity="n", key=())
    assert all_ways(nothing, begin(), insert("1", "a"), update(("1", "b")), commit()).lines == [
        f'{{"op":"insert","schema":"public","table":"t","xid":7,"seq":1,{AT},"new":{{"id":1,"v":"a"}}}}',
        (
            f'{{"op":"update","schema":"public","table":"t","xid":7,"seq":2,{AT},"identity":"nothing",'
            '"new":{"id":1,"v":"b"}}'
        ),
    ]


def test_an_index_as_identity_may_have_several_columns_anywhere() -> None:
    columns = [("a", INT4), ("b", TEXT), ("c", TEXT)]
    index = relation(columns=columns, identity="i", key=(1, 2))
    assert all_ways(index, begin(), delete(None, "x", None), commit()).lines == [
        (
            f'{{"op":"delete","schema":"public","table":"t","xid":7,"seq":1,{AT},"identity":"index","key":["b","c"],'
            '"old":{"b":"x","c":null}}'
        )
    ]


def test_unchanged_toast_is_named_and_not_in_new() -> None:
    assert lines(update(("8", UNCHANGED), ("7", None))) == [
        (
            f'{{"op":"update","schema":"public","table":"t","xid":7,"seq":1,{AT},"identity":"default","key":["id"],'
            '"old":{"id":7},"new":{"id":8},"unchanged":["v"]}'
        )
    ]
    assert lines(update((UNCHANGED, UNCHANGED)))[0].endswith('"new":{},"unchanged":["id","v"]}')


def test_unchanged_toast_is_filled_on_request_and_still_named() -> None:
    full = relation(identity="f", key=(0, 1))
    change = update(("1", UNCHANGED), ("1", "long"), "O")
    assert (
        all_ways(full, begin(), change, commit())
        .lines[0]
        .endswith('"old":{"id":1,"v":"long"},"new":{"id":1},"unchanged":["v"]}')
    )
    assert (
        all_ways(full, begin(), change, commit(), fill_unchanged=True)
        .lines[0]
        .endswith('"old":{"id":1,"v":"long"},"new":{"id":1,"v":"long"},"unchanged":["v"]}')
    )


def test_filling_never_takes_a_column_that_is_outside_of_the_identity() -> None:
    [line] = lines(update(("8", UNCHANGED), ("7", None)), fill_unchanged=True)
    assert line.endswith('"new":{"id":8},"unchanged":["v"]}')
    [line] = lines(update(("1", UNCHANGED)), fill_unchanged=True)
    assert line.endswith('"new":{"id":1},"unchanged":["v"]}')


def test_an_unchanged_key_is_filled_from_the_key() -> None:
    wide = relation(key=(0, 1))
    [line] = all_ways(wide, begin(), update(("1", UNCHANGED), ("2", "k")), commit(), fill_unchanged=True).lines
    assert line.endswith('"old":{"id":2,"v":"k"},"new":{"id":1,"v":"k"},"unchanged":["v"]}')


def test_a_truncate_has_a_line_and_a_seq_for_each_table() -> None:
    other = relation(oid=101, name="u")
    found = all_ways(relation(), other, begin(), truncate(100, 101, options=3), truncate(101), commit()).lines
    assert found == [
        (
            f'{{"op":"truncate","schema":"public","table":"t","xid":7,"seq":1,{AT},'
            '"cascade":true,"restart_identity":true}'
        ),
        (
            f'{{"op":"truncate","schema":"public","table":"u","xid":7,"seq":2,{AT},'
            '"cascade":true,"restart_identity":true}'
        ),
        (
            f'{{"op":"truncate","schema":"public","table":"u","xid":7,"seq":3,{AT},'
            '"cascade":false,"restart_identity":false}'
        ),
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
        f'{{"op":"insert","schema":"public","table":"t","xid":7,"seq":1,{AT},"new":{{"id":1,"v":"a"}}}}',
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
        (
            f'{{"op":"insert","schema":"public","table":"t","xid":7,"seq":1,{AT},"lsn":"AB/FFFF",'
            '"new":{"id":1,"v":"a"}}'
        ),
        (
            f'{{"op":"truncate","schema":"public","table":"t","xid":7,"seq":2,{AT},"lsn":"AB/FFFF",'
            '"cascade":false,"restart_identity":false}'
        ),
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
        (
            f'{{"op":"insert","schema":"public","table":"t","xid":7,"seq":1,{AT},"lsn":"0/10","origin":"node_b",'
            '"new":{"id":1,"v":"a"}}'
        ),
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
        (
            f'{{"op":"insert","schema":"public","table":"t","xid":7,"seq":1,{PREPARED_AT},"origin":"n","gid":"it\'s",'
            '"state":"prepared","new":{"id":1,"v":"a"}}'
        ),
        (
            f'{{"op":"update","schema":"public","table":"t","xid":7,"seq":2,{PREPARED_AT},"origin":"n","gid":"it\'s",'
            '"state":"prepared","identity":"default","key":["id"],"new":{"id":1,"v":"b"}}'
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
    assert found == [
        (
            f'{{"op":"insert","schema":"public","table":"t","xid":7,"seq":1,{PREPARED_AT},"gid":"g","state":"prepared",'
            '"new":{"id":1,"v":"a"}}'
        )
    ]


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


def test_table_descriptions() -> None:
    columns: list[tuple[str | bytes, int]] = [("id", INT4), ("v", TEXT), ("w", 20000)]
    found = all_ways(
        relation(),
        begin(),
        relation(),
        type_(20000, "mood"),
        relation(columns=columns),
        commit(),
        schema_changes=True,
    ).lines
    first = '{"name":"id","type":"integer","typmod":-1,"key":true},{"name":"v","type":"text","typmod":-1,"key":false}'
    head = '"op":"relation","schema":"public","table":"t","relid":100,"identity":"default"'
    assert found == [
        f'{{{head},"columns":[{first}]}}',
        (
            f'{{{head},"columns":[{first},{{"name":"w","type":"public.mood","typmod":-1,"key":false}}],'
            '"differences":["column w added"]}'
        ),
    ]


def test_a_table_that_was_never_described() -> None:
    found = all_ways(
        begin(),
        insert("1", None, b"\0\1", UNCHANGED),
        delete("1", None),
        delete("1", None, kind="O"),
        update(("1",), ("2", None)),
        truncate(100),
        commit(),
    )
    assert found.lines == [
        (
            f'{{"op":"insert","relid":100,"xid":7,"seq":1,{AT},"new":{{"?1":"1","?2":null,"?3":"\\\\x0001"}},'
            '"unchanged":["?4"],"undecoded":["?3"]}'
        ),
        f'{{"op":"delete","relid":100,"xid":7,"seq":2,{AT},"old":{{"?1":"1"}}}}',
        f'{{"op":"delete","relid":100,"xid":7,"seq":3,{AT},"old":{{"?1":"1"}}}}',
        f'{{"op":"update","relid":100,"xid":7,"seq":4,{AT},"old":{{"?1":"2"}},"new":{{"?1":"1"}}}}',
        f'{{"op":"truncate","relid":100,"xid":7,"seq":5,{AT},"cascade":false,"restart_identity":false}}',
    ]
    assert found.notes == ["relation 100 was never described: its columns are shown as ?1, ?2, ..."]


def test_cells_beyond_the_relation_s_columns() -> None:
    found = all_ways(relation(), begin(), insert("1", "a", "extra", None, b"\1"), insert("2", "b"), commit())
    assert [line.partition('"new":')[2] for line in found.lines] == [
        '{"id":1,"v":"a","?3":"extra","?4":null,"?5":"\\\\x01"},"undecoded":["?5"]}',
        '{"id":2,"v":"b"}}',
    ]
    assert found.notes == ["a row of public.t has 5 columns, its Relation 2"]


def test_a_row_that_is_too_short() -> None:
    found = all_ways(relation(), begin(), insert("1"), delete(), commit())
    assert [line.partition(AT)[2] for line in found.lines] == [
        ',"new":{"id":1}}',
        ',"identity":"default","key":["id"],"old":{}}',
    ]
    assert found.notes == ["a row of public.t has only 1 of 2 columns"]


def test_changes_without_a_begin_have_neither_xid_nor_seq() -> None:
    found = all_ways(relation(), insert("1", "a"), commit())
    assert found.lines == ['{"op":"insert","schema":"public","table":"t","new":{"id":1,"v":"a"}}']
    assert len(found.notes) == 1


def test_bytes_that_are_not_text_are_shown_as_bytes_and_named() -> None:
    raw = b"I\0\0\0\x64N\0\2" + text(b"1") + text(b"caf\xe9 \xff")
    assert lines(raw, insert("2", "fine")) == [
        (
            f'{{"op":"insert","schema":"public","table":"t","xid":7,"seq":1,{AT},'
            '"new":{"id":1,"v":"\\\\x636166e920ff"},"undecoded":["v"]}'
        ),
        f'{{"op":"insert","schema":"public","table":"t","xid":7,"seq":2,{AT},"new":{{"id":2,"v":"fine"}}}}',
    ]
    [line] = all_ways(relation(), begin(), raw, commit(), encoding="latin1").lines
    assert line.endswith('"new":{"id":1,"v":"caf\u00e9 \u00ff"}}')


def test_undecoded_names_a_column_once() -> None:
    wide = relation(identity="f", key=(0, 1))
    raw = b"U\0\0\0\x64O\0\2" + text(b"1") + text(b"\xff") + b"N\0\2" + text(b"x") + text(b"\xfe")
    [line] = all_ways(wide, begin(), raw, commit()).lines
    assert line.endswith('"old":{"id":1,"v":"\\\\xff"},"new":{"id":"x","v":"\\\\xfe"},"undecoded":["v","id"]}')


def test_bytes_that_are_not_text_in_names_show_as_escapes() -> None:
    table = relation(name=b"t\xe9", schema=b"s\xff", columns=[(b"c\x80", TEXT)])
    found = all_ways(
        message(b"x", prefix=b"p\xff", transactional=False),
        table,
        begin(),
        origin(b"n\xfe"),
        insert("1"),
        commit(),
        begin_prepare(gid=b"g\xfd"),
        prepare(gid=b"g\xfd"),
        commit_prepared(gid=b"g\xfd"),
    ).lines
    assert found[0] == '{"op":"message","prefix":"p\\\\xff","transactional":false,"content":"x"}'
    assert found[1] == (
        f'{{"op":"insert","schema":"s\\\\xff","table":"t\\\\xe9","xid":7,"seq":1,{AT},"origin":"n\\\\xfe",'
        '"new":{"c\\\\x80":"1"}}'
    )
    assert '"gid":"g\\\\xfd"' in found[2]


def test_names_are_escaped_as_json_requires() -> None:
    table = relation(name='we"ird\n\t\x01\u202e', columns=[("%d %s {}", TEXT), ("\U0001f600", TEXT)])
    [line] = all_ways(table, begin(), insert("100%", "\x00\x1f\x7f\u2028\\"), commit(), lsn=1).lines
    assert '"table":"we\\"ird\\n\\t\\u0001\u202e"' in line
    assert line.endswith('"new":{"%d %s {}":"100%","\U0001f600":"\\u0000\\u001f\x7f\u2028\\\\"}}')


KINDS: list[tuple[str | bytes, int]] = [
    ("b", BOOL),
    ("i", INT8),
    ("n", NUMERIC),
    ("f", FLOAT8),
    ("o", OID),
    ("j", JSON_),
    ("a", TEXTS),
    ("l", INT4S),
    ("x", BYTEA),
]


def values(*cells: Any, **options: Any) -> str:
    [line] = all_ways(relation(columns=KINDS), begin(), insert(*cells), commit(), **options).lines
    return line.partition('"new":')[2][:-1]


def test_values_are_json_of_their_kind_with_every_digit() -> None:
    numeric = "123456789012345678901234567890.10"
    cells = ("t", "9007199254740993", numeric, "1e+20", "4294967295", '{"b":1.10,"a":\n[1, 1]}', '{a,NULL,"b c"}',
             "{{1,2},{3,4}}", "\\xff00")  # fmt: skip
    assert values(*cells) == (
        f'{{"b":true,"i":9007199254740993,"n":{numeric},"f":1e+20,"o":4294967295,"j":{{"b":1.10,"a": [1, 1]}},'
        '"a":["a",null,"b c"],"l":[[1,2],[3,4]],"x":"\\\\xff00"}'
    )


def test_nan_infinity_and_arrays_with_other_bounds_are_strings() -> None:
    assert values("f", "0", "NaN", "-Infinity", "0", "null", "{}", "[0:1]={1,2}", "") == (
        '{"b":false,"i":0,"n":"NaN","f":"-Infinity","o":0,"j":null,"a":[],"l":"[0:1]={1,2}","x":""}'
    )


def test_numbers_as_strings_for_readers_that_keep_53_bits() -> None:
    assert values("t", "5", "1.50", "1.5", "5", "[5]", "{}", "{5}", "", numbers="string") == (
        '{"b":true,"i":"5","n":"1.50","f":1.5,"o":5,"j":[5],"a":[],"l":[5],"x":""}'
    )


def test_invalid_value_of_its_type_is_a_string_and_named() -> None:
    assert values("maybe", "five", "1,5", "0x1", "-", "{", "{a", "{1", "\\x") == (
        '{"b":"maybe","i":"five","n":"1,5","f":"0x1","o":"-","j":"{","a":"{a","l":"{1","x":"\\\\x"},'
        '"undecoded":["b","i","n","f","o","j","a","l"]'
    )


def test_binary_and_text_cells_give_the_same_line() -> None:
    binary = (b"\1", (5).to_bytes(8), bytes.fromhex("0001000000000000 0005"), bytes.fromhex("3ff8000000000000"),
              (5).to_bytes(4), b'{"a":1}', bytes.fromhex("00000001 00000000 00000019 00000001 00000001 00000001 61"),
              bytes.fromhex("00000000 00000000 00000017"), b"\xff\0")  # fmt: skip
    assert values(*binary) == values("t", "5", "5", "1.5", "5", '{"a":1}', "{a}", "{}", "\\xff00")


def test_a_large_row_is_the_same_line_as_a_small_one() -> None:
    large = "x" * 3_000_000 + '\u00e9"'
    found = all_ways(relation(), begin(), insert("1", large), update(("1", large), ("2", None)), commit(), lsn=16)
    shown = large.replace('"', '\\"')
    assert found.lines == [
        (
            f'{{"op":"insert","schema":"public","table":"t","xid":7,"seq":1,{AT},"lsn":"0/10",'
            f'"new":{{"id":1,"v":"{shown}"}}}}'
        ),
        (
            f'{{"op":"update","schema":"public","table":"t","xid":7,"seq":2,{AT},"lsn":"0/10","identity":"default",'
            f'"key":["id"],"old":{{"id":2}},"new":{{"id":1,"v":"{shown}"}}}}'
        ),
    ]


@pytest.mark.parametrize("size", [10, 2_000_000])
def test_a_large_message(size: int) -> None:
    content = b'"\xf0\x9f\x98\x80' * (size // 5)
    found = all_ways(begin(), message(content), message(content + b"\xff"), commit()).objects
    assert found[0]["content"] == content.decode()
    assert "content" not in found[1]
    assert len(found[1]["content_base64"]) == 4 * ((len(content) + 3) // 3)


def test_a_table_changes_in_the_middle_of_a_transaction() -> None:
    wider = relation(columns=[("id", INT4), ("v", TEXT), ("w", TEXT)])
    found = all_ways(
        relation(), begin(), insert("1", "a"), wider, insert("1", "a", "b"), relation(), insert("2", "c"), commit()
    )
    assert [line.partition('"new":')[2] for line in found.lines] == [
        '{"id":1,"v":"a"}}',
        '{"id":1,"v":"a","w":"b"}}',
        '{"id":2,"v":"c"}}',
    ]
