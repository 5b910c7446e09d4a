"""`-o json`: tables that are not described, names, values and large rows; the lines are written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.encode import (
    INT4,
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
    text,
    truncate,
    type_,
    update,
)
from tests.support.json_lines import AT, lines
from tests.support.render import all_ways

INT8, BOOL, NUMERIC, FLOAT8, JSON_, TEXTS, OID, INT4S, BYTEA = 20, 16, 1700, 701, 114, 1009, 26, 1007, 17


def test_table_descriptions() -> None:
    columns: list[tuple[str | bytes, int]] = [("id", INT4), ("v", TEXT), ("w", 20000)]
    found = all_ways(
        relation(), begin(), relation(), type_(20000, "mood"), relation(columns=columns), commit(), schema_changes=True
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
