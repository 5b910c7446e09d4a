"""The native encoders write what the encodings of the outputs write in Python, or decline."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgtail.changes.relations import Column
from pgtail.native import compiled
from pgtail.native.plan import Encoding, Form
from pgtail.outputs.csv import field_of_text
from pgtail.outputs.sql.statements import literal
from pgtail.outputs.values import shown_encoding
from pgtail.outputs.wal2json import base as wal2json
from pgtail.terminal.escape import escape, hides
from pgtail.terminal.values import BARE, ValueStyle
from pgtail.values import Types, Undecoded
from pgtail.values.oids import OIDS
from tests.support.render import need_compiled
from tests.support.samples import SAMPLES


class Case(NamedTuple):
    """How a text is encoded: natively, and in Python."""

    form: Form | None
    python: Callable[[bytes], bytes]


Native: TypeAlias = Callable[[Case, bytes], bytes | None]


@pytest.fixture(scope="module")
def native() -> Native:
    """What a form writes for a text; None if it declines. Compared with what Python writes."""
    module = compiled("pgtail.native._scanner")
    if module is None:
        need_compiled()
    assert module is not None

    def checked(case: Case, text: bytes) -> bytes | None:
        assert case.form is not None
        found: bytes | None = module.encode(*case.form, text)
        try:
            assert found in (None, case.python(text)), text
        except (Undecoded, UnicodeDecodeError):
            assert found is None, text
        return found

    return checked


def column(name: str) -> Column:
    oid, types = OIDS[name], Types()
    return Column("c", oid, -1, False, types.type_name(oid, -1), types.codec(oid))


def json_case(name: str) -> Case:
    """How `-o json` writes a type."""
    codec = column(name).codec
    assert codec.native is not None
    return Case(Form(codec.native.json, codec.native.quoted), codec.json_text)


SQL = Case(Form("sql"), lambda cell: literal(cell.decode()))
CSV = Case(Form("csv"), lambda cell: field_of_text(cell.decode()))
TEXTS = (json_case("text"), SQL, CSV, Case(Form("bare"), lambda cell: escape(cell.decode()).encode()))
"""Encodings of text that compare blocks of bytes."""
TYPES = ("bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric", "text", "varchar", "bpchar", "bytea",
         "timestamptz", "timestamp", "date", "jsonb", "uuid", "_text")  # fmt: skip
"""Types with a native encoder in wal2json, --format-string and lines."""


def encodings(name: str) -> list[Case]:
    """The other encodings of a type. The fourth has no quotes and marks."""
    one = column(name)
    bare = one.type_oid in BARE
    found: list[Encoding] = [
        wal2json.encoding_of(one, as_string=False),
        wal2json.encoding_of(one, as_string=True),
        shown_encoding(one.codec, ValueStyle(None), bare=bare),
        shown_encoding(one.codec, ValueStyle(None), alone=True),
    ]
    return [Case(encoding.form, encoding.text) for encoding in found]


USUAL = {
    "bool": ["t", "f"],
    "int2": ["0", "-32768"],
    "int8": ["9223372036854775807", "-9223372036854775808"],
    "oid": ["4294967295"],
    "float4": ["1.5", "1e+30"],
    "float8": ["-0", "123456.789", "1e-300", "NaN", "-Infinity"],
    "text": ["", 'quoted "text"', "Zoë\t\\"],
    "bpchar": ["x   "],
    "jsonb": ['{"a": "b"}'],
    "uuid": ["c4ca4238-a0b9-2382-0dcc-509a6f75849b"],
    "bytea": ["\\x", "\\x00", "\\xffee", "\\x0102FF", "\\xdeadbeef"],
    "date": ["1970-01-01", "2026-02-28", "0001-01-01", "9999-12-31"],
    "inet": ["10.0.0.0/8"],
    "_bool": ["{t,f,NULL}"],
    "_int4": ["{}", "{1,-2,NULL}"],
    "_float8": ["{1.5,NaN,1e-07}"],
    "_text": ["{}", '{red,"green \\"x\\"","b,1",NULL,"NULL","",Zoë}'],
    "_uuid": ["{c4ca4238-a0b9-2382-0dcc-509a6f75849b}"],
    "numeric": ["0", "-1", "127", "128", "-128", "-129", "12345.6789", "-0.5", "1200.00", "999999999.12"],
}
"""Texts that the encoders of `-o json` must not decline."""
MORE = {"text": ["it's", "Zürich, 東京"], "_text": ["{}", '{a,"b \\"c",NULL}'], "jsonb": ['{"a": [1, "é"]}']}


@pytest.mark.parametrize("name", USUAL)
def test_values_in_json(native: Native, name: str) -> None:
    case = json_case(name)
    assert [text for text in USUAL[name] if native(case, text.encode()) is None] == []
    for samples in SAMPLES.values():
        for text in samples:
            native(case, text.encode())


@pytest.mark.parametrize("name", TYPES)
def test_usual_values(native: Native, name: str) -> None:
    samples = [text for text in SAMPLES.get(name, ()) if text and text.isascii() and text.isprintable()]
    samples += MORE.get(name, ())
    assert samples
    assert [text for text in samples for case in encodings(name) if native(case, text.encode()) is None] == []


@pytest.mark.parametrize("name", TYPES)
def test_empty_text_by_itself_is_encoded_as_nothing(native: Native, name: str) -> None:
    found = [native(case, b"") for case in encodings(name)]
    assert found[3] == (None if name == "bool" else b"")


def test_no_sql_literal_has_a_nul(native: Native) -> None:
    assert [native(SQL, text) for text in (b"\0", b"\t\0", b"eight or more \0 around it")] == [None] * 3


@given(st.characters())
def test_any_character_in_sql_literals(native: Native, char: str) -> None:
    for text in (char, f"eight or more {char} around it"):
        assert native(SQL, text.encode()) is None or char.isascii() or not hides(text)


SYNTAX = st.text("0123456789eE+-.NaInfity tfx\\'\"{}[],:\n\x7f\u202eé", max_size=20).map(str.encode)


@given(st.sampled_from(TYPES), st.binary() | st.text().map(str.encode) | SYNTAX)
@example("text", b"\xed\xa0\x80")
@example("text", b"\xc0\xa7")
@example("float8", b"-Infinity")
@example("numeric", b"01")
@example("bytea", b"\\x\xff")
def test_any_bytes(native: Native, name: str, text: bytes) -> None:
    for case in (*encodings(name), json_case("_text")):
        native(case, text)
    assert native(SQL, text) is not None or not (text.isascii() and text.decode().isprintable())


@given(st.data())
def test_changed_texts(native: Native, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*USUAL]))
    text = data.draw(st.sampled_from(USUAL[name]))
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(text)))
        new = data.draw(st.text("0123456789.-+:eENaUL {},\\\"'xfT\n\0é", max_size=2))
        text = text[:place] + new + text[place + data.draw(st.integers(0, 2)) :]
    native(json_case(name), text.encode())


BLOCKS = 71
"""Lengths of texts: more than four of the blocks that are compared at once."""


@pytest.mark.parametrize("special", ['"', "\\", "\n", "\x1f", "\x7f", "'", ",", "é", "€", "😀", "x"])
def test_a_character_at_every_place_of_a_block(native: Native, special: str) -> None:
    for size in range(1, BLOCKS):
        for place in range(size):
            text = ("a" * place + special + "b" * (size - place - 1)).encode()
            for case in TEXTS:
                found = native(case, text)
                assert found is not None or case.form != Form("string")


def test_invalid_utf8_at_every_place_of_a_block(native: Native) -> None:
    for size in range(1, BLOCKS):
        for place in range(size):
            for invalid in (b"\x80", b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x9f\x98"):
                text = b"a" * place + invalid + b"b" * (size - place - 1)
                assert [native(case, text) for case in TEXTS] == [None] * len(TEXTS)


@pytest.mark.parametrize("special", [".", "-", "e", "+", "x", ",", "0"])
def test_numbers_of_every_length(native: Native, special: str) -> None:
    number = json_case("numeric")
    for size in range(1, BLOCKS):
        assert native(number, b"9" * size) == b"9" * size
        assert native(number, b"0" * size) == (b"0" if size == 1 else None)
        for place in range(size):
            native(number, b"1" * place + special.encode() + b"2" * (size - place - 1))
