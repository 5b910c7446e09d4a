"""Known cells without a server: binary form, text and JSON; and damaged ones, which are shown as bytes."""

from __future__ import annotations

import pytest

from pgtail.values import Types, Undecoded, ValueKind
from pgtail.values.oids import OIDS

GOLDEN = [
    ("bool", "01", "t", "true"),
    ("bool", "00", "f", "false"),
    ("int2", "8000", "-32768", "-32768"),
    ("int4", "7fffffff", "2147483647", "2147483647"),
    ("int8", "8000000000000000", "-9223372036854775808", "-9223372036854775808"),
    ("oid", "ffffffff", "4294967295", "4294967295"),
    ("xid", "ffffffff", "4294967295", "4294967295"),
    ("cid", "00000007", "7", '"7"'),
    ("xid8", "ffffffffffffffff", "18446744073709551615", '"18446744073709551615"'),
    ("oid8", "ffffffffffffffff", "18446744073709551615", '"18446744073709551615"'),
    ("float4", "3dcccccd", "0.1", "0.1"),
    ("float8", "7ff8000000000000", "NaN", '"NaN"'),
    ("float8", "fff0000000000000", "-Infinity", '"-Infinity"'),
    ("float8", "44b52d02c7e14af6", "9.999999999999999e+22", "9.999999999999999e+22"),
    ("numeric", "0003000140000004000109291a85", "-12345.6789", "-12345.6789"),
    ("numeric", "0000000000000003", "0.000", "0.000"),
    ("numeric", "0001ffff000000040001", "0.0001", "0.0001"),
    ("numeric", "00000000c0000000", "NaN", '"NaN"'),
    ("numeric", "00000000f0000020", "-Infinity", '"-Infinity"'),
    ("money", "8000000000000000", "-$92,233,720,368,547,758.08", '"-$92,233,720,368,547,758.08"'),
    ("text", "22c3a95c0a", '"é\\\n', '"\\"é\\\\\\n"'),
    ("char", "ff", "\\377", '"\\\\377"'),
    ("char", "00", "", '""'),
    ("bytea", "00ff", "\\x00ff", '"\\\\x00ff"'),
    ("uuid", "a0eebc999c0b4ef8bb6d6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", None),
    ("date", "fff49d7b", "0044-03-15 BC", None),
    ("date", "7fffffff", "infinity", None),
    ("time", "000000141dd76000", "24:00:00", None),
    ("timetz", "0000000a8be62608ffffb2a8", "12:34:56.789+05:30", None),
    ("timestamp", "fffffffffffe7960", "1999-12-31 23:59:59.9", None),
    ("timestamptz", "ff1af9deec5b2000", "0044-03-15 00:00:00+00 BC", None),
    ("timestamptz", "8000000000000000", "-infinity", None),
    ("interval", "fffffffc93743f7900000003fffffff2", "-1 years -2 mons +3 days -04:05:06.000007", None),
    ("interval", "7fffffffffffffff7fffffff7fffffff", "infinity", None),
    ("json", "7b2261223a312c2022612220203a312e30307d", '{"a":1, "a"  :1.00}', '{"a":1, "a"  :1.00}'),
    ("jsonb", "015b0a312c0d0a32205d", "[\n1,\r\n2 ]", "[ 1,  2 ]"),
    ("jsonpath", "017374726963742024", "strict $", None),
    ("inet", "02180004c0a80001", "192.168.0.1/24", None),
    ("cidr", "0320011020010db8000000000000000000000000", "2001:db8::/32", None),
    ("macaddr", "08002b010203", "08:00:2b:01:02:03", None),
    ("varbit", "00000009aa80", "101010101", None),
    ("pg_lsn", "00000016b374d848", "16/B374D848", None),
    ("tid", "ffffffffffff", "(4294967295,65535)", None),
    ("pg_snapshot", "00000001000000000000000a0000000000000014000000000000000e", "10:20:14", None),
    ("int2vector", "0000000100000000000000150000000200000000000000020001000000020002", "1 2", '"1 2"'),
    ("tsquery", "0000000302040001010000630001000061206200", "'a b' <-> 'c'", None),
    ("tsvector", "000000016361740000020003" + "8005", "'cat':3,5B", None),
    ("int4range", "0200000004000000010000000400000005", "[1,5)", None),
    ("int4range", "01", "empty", None),
    ("int4multirange", "000000010000000118", "{(,)}", None),
    ("_int4", "00000001000000010000001700000002000000010000000400000001ffffffff", "{1,NULL}", "[1,null]"),
    ("_int4", "000000000000000000000017", "{}", "[]"),
    ("_int4", "00000001000000000000001700000001000000020000000400000007", "[2:2]={7}", '"[2:2]={7}"'),
    ("_bool", "0000000100000000000000100000000100000001" + "0000000101", "{t}", "[true]"),
    ("_jsonb", "000000010000000000000eda0000000100000001" + "00000003015b5d", "{[]}", "[[]]"),
    ("_numeric", "0000000100000000000006a40000000100000001" + "0000000800000000c0000000", "{NaN}", '["NaN"]'),
]
"""Type, binary cell in hexadecimal, text, JSON (None: the text as a string)."""

DAMAGED = {
    "bool": "- 02 0101",
    "int4": "- 000000 0000000000",
    "float8": "- 00000000",
    "text": "ff c3 610062",
    "char": "- 6161",
    "numeric": """
        - 0000 0001000000000000 000100000000000027ff 0000000000004000 0000000020000000 00000000400000ff
        0001000000000000000100 00010000c00000000001 0001ffff000000000001
    """,
    "uuid": "- 000000000000000000000000000000 0000000000000000000000000000000000",
    "date": "7ffffffe 80000001 000000",
    "time": "ffffffffffffffff 000000141dd76001",
    "timetz": "00000000000000000000e100 0000000000000000ffff1f00",
    "timestamp": "8000000000000001 7ffffffffffffffe 00",
    "interval": "000000000000000000000000000000",
    "jsonb": "- 00 027b7d 01ff",
    "inet": "- 0420000401020304 0221000401020304 0220010401020304 0220000501020304 02200004010203 0120000401020304",
    "cidr": "0208010401020304 0220000401020304",
    "macaddr": "0011223344 00112233445566",
    "varbit": "- ffffffff 0000000900 0000000101 00000001ff 7fffffff00",
    "tid": "0000000000",
    "pg_snapshot": "ffffffff00000000000000010000000000000001 7fffffff00000000000000010000000000000001",
    "int2vector": """
        0000000100000000000000170000000100000000000000020001 0000000100000000000000150000000100000000ffffffff
    """,
    "point": "000000000000000000000000000000 0000000000000000000000000000000000",
    "path": """
        - 020000000100000000000000000000000000000000 0000000000 00ffffffff 007fffffff00000000000000000000000000000000
    """,
    "polygon": "00000000 0000000200000000000000000000000000000000",
    "circle": "00000000000000000000000000000000bff0000000000000",
    "tsvector": "- 7fffffff ffffffff 0000000161 000000016100 00000001610000 0000000161000001 0000000161000000ff",
    "tsquery": """
        00000001 7fffffff 000000010201 0000000202010201 0000000201000061000100006200 0000000103000000
        000000010110006100 000000010100026100 00000001020500000001
    """,
    "int4range": "- 00 20 81 0101 0a0000000400000001 02ffffffff0000000400000005 12000000050000000001",
    "int4multirange": "- ffffffff 7fffffff 00000001ffffffff 0000000000 00000001000000020118",
    "_int4": """
        - 0000000000000000000000 000000070000000000000017 ffffffff0000000000000017 000000000000000200000017
        000000000000000000000014 000000010000000000000017ffffffff00000001 0000000100000000000000177fffffff00000001
        0000000600000000000000177fffffff000000017fffffff000000017fffffff000000017fffffff000000017fffffff000000017fffffff00000001
        00000001000000000000001700000001000000010000000400000001ff
        000000010000000000000017000000010000000100000003000001 000000010000000000000017000000010000000100000004000000
        0000000100000000000000170000000100000001fffffffe 000000000000000000000017ff
    """,
}
"""By type, cells that are no values of it, in hexadecimal; - is an empty one."""


@pytest.mark.parametrize(("name", "cell", "text", "token"), GOLDEN)
def test_known_cells(name: str, cell: str, text: str, token: str | None) -> None:
    codec = Types().codec(OIDS[name])
    expected = f'"{text}"' if token is None else token
    assert codec.text_binary(bytes.fromhex(cell)) == text
    assert codec.text_text(text.encode()) == text
    assert codec.json_binary(bytes.fromhex(cell)).decode() == expected
    assert codec.json_text(text.encode()).decode() == expected


@pytest.mark.parametrize(
    ("name", "cell"),
    [(name, cell.strip("-")) for name, cells in DAMAGED.items() for cell in cells.split()],
)
def test_damaged_cells_are_shown_as_bytes(name: str, cell: str) -> None:
    codec = Types().codec(OIDS[name])
    for read in (codec.text_binary, codec.json_binary):
        with pytest.raises(Undecoded) as undecoded:
            read(bytes.fromhex(cell))
        assert undecoded.value.text == "\\x" + cell


INVALID = {
    "bool": ["true", ""],
    "int4": ["abc", "", "007", "+1", "1 "],
    "int8": ["١٢"],
    "float8": [".5", "1.", "nan"],
    "numeric": ["1,5", "0x10"],
    "json": ["{", "01"],
    "jsonb": ["NaN"],
    "_int4": ["{1,}", "{1,x}", "1", "{1"],
    "_bool": ["{true}"],
    "_text": ['{"a}', "{{a},{b,c}}"],
    "_jsonb": ['{"{"}'],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in INVALID.items() for text in texts])
def test_text_that_is_not_of_its_type(name: str, text: str) -> None:
    codec = Types().codec(OIDS[name])
    with pytest.raises(Undecoded) as undecoded:
        codec.json_text(text.encode())
    assert undecoded.value.text == text
    assert codec.text_text(text.encode()) == text


@pytest.mark.parametrize("name", ["bool", "int4", "numeric", "text", "json", "_int4", "_text", "timestamp"])
def test_text_that_is_not_in_the_encoding(name: str) -> None:
    codec = Types().codec(OIDS[name])
    for read in (codec.json_text, codec.text_text):
        with pytest.raises(Undecoded) as undecoded:
            read(b"a\xff")
        assert undecoded.value.text == "\\x61ff"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bool", ValueKind.BOOL),
        ("int8", ValueKind.NUMBER),
        ("xid8", ValueKind.TEXT),
        ("jsonb", ValueKind.JSON),
        ("_numeric", ValueKind.ARRAY),
        ("int2vector", ValueKind.TEXT),
        ("regclass", ValueKind.TEXT),
        ("int4range", ValueKind.TEXT),
    ],
)
def test_kinds(name: str, kind: ValueKind) -> None:
    assert Types().codec(OIDS[name]).kind is kind
