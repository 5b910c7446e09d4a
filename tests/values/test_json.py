"""JSON in cells: validity, depth, and that it is left unchanged."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtail.values import Types, Undecoded
from pgtail.values.jsonsyntax import MAX_DEPTH, is_valid

JSON, JSONB = 114, 3802
PIECES = [
    *(piece.encode() for piece in '{}[],:"-0 19.eE\n\r\t\\ab'),
    b'"a"',
    b"true",
    b"false",
    b"null",
    b"\\u12ab",
    b"\\ud800",
    b"\\n",
    b"\x01",
    b"\x7f",
    b"\xc3\xa9",
    b"\xff",
    b"1e999",
    b"NaN",
    b"0" * 30,
    b"1" * 30,
    b"e5",
    b"\\u01e5",
    b"\\u01g5",
    b"\x0b",
    b"\xef\xbb\xbf",
]
VALID = [
    '{"a":[1,2,{"b":null}],"c":"x\\n\\u00e9"}',
    "[]",
    "[1.5e10,-0,0.1,true,false]",
    '  [ { } , [ ] , {"a" : [ 1 ] } ] ',
    '{"a":{"b":{"c":[[]]}},"d":1}',
    '"\\ud800"',
    "1e999",
    "-0.0e-0",
    "[-12345678901234567890123e-5, 0.000000000000000000000012]",
    "1" * 400,
    '[1e400,"\\udc00x"]',
]


def is_json(document: bytes) -> bool:
    """The standard library's opinion, numbers of any size, no NaN, bytes that are UTF-8."""

    def refuse(constant: str) -> object:
        raise ValueError(constant)

    try:
        json.loads(document.decode(), parse_constant=refuse, parse_float=str, parse_int=str)
    except ValueError:
        return False
    return True


def accepted(document: bytes) -> bool:
    try:
        token = Types().codec(JSON).json_text(document)
    except Undecoded:
        return False
    assert token == document.replace(b"\n", b" ").replace(b"\r", b" ")
    return True


def test_agrees_with_the_standard_library() -> None:
    source = random.Random("json")
    valid = 0
    for number in range(15_000):
        if number % 2:
            document = b"".join(source.choices(PIECES, k=source.randint(1, 8)))
        else:
            mutated = bytearray(source.choice(VALID).encode())
            for _ in range(source.randint(1, 2)):
                place = source.randrange(len(mutated) + 1)
                mutated[place : place + source.randrange(2)] = source.choice([b"", *PIECES])
            document = bytes(mutated)
        expected = is_json(document)
        valid += expected
        assert accepted(document) == expected, document
        if expected or _is_utf8(document):
            assert is_valid(document) == expected, document
    assert valid > 500


def _is_utf8(document: bytes) -> bool:
    try:
        document.decode()
    except ValueError:
        return False
    return True


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=200,
    ),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_every_document_is_valid(value: object, ascii_only: bool, indent: int | None) -> None:
    try:
        document = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    except UnicodeEncodeError:
        return
    assert is_valid(document)
    assert accepted(document)
    assert not is_valid(document + b",")
    assert not is_valid(document[:-1]) or isinstance(value, int | float)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), (' [1,{"b":', "}]")])
@pytest.mark.parametrize("rows", [1, 3000])
def test_nesting(opening: str, closing: str, rows: int) -> None:
    levels = opening.count("[") + opening.count("{")

    def document(depth: int) -> bytes:
        deep = opening * depth + "1" + closing * depth
        return deep.encode() if rows == 1 else f"[{deep}{',[[]]' * rows}]".encode()

    deepest = (MAX_DEPTH - (rows > 1)) // levels
    assert accepted(document(deepest))
    assert is_valid(document(deepest))
    assert not accepted(document(deepest + 1))
    assert not is_valid(document(deepest + 1))


def test_many_values() -> None:
    document = b"[" + b'{"a": [1, "x\\n"], "b": {}},' * 100_000 + b"1e999]"
    assert accepted(document)
    assert not accepted(document[:-1])
    assert accepted(b'"' + b"\\n" * 1_000_000 + b'"')
    assert not accepted(b'"' + b"\\n" * 1_000_000)


def test_line_breaks_and_keys() -> None:
    codec = Types().codec(JSONB)
    assert codec.json_text(b'{"b":1,\r\n "a":1.10,\n"a":2}') == b'{"b":1,   "a":1.10, "a":2}'
    assert codec.text_text(b'{"b":1,\n"a":2}') == '{"b":1,\n"a":2}'


def test_json_in_arrays() -> None:
    codec = Types().codec(199)
    assert codec.json_text(b'{"[1,\n2]",NULL,"null","\\"x\\"",1e999}') == b'[[1, 2],null,null,"x",1e999]'
    assert codec.json_text(b'{"{\\"a\\": [1, 2.50]}",NULL,"null"}') == b'[{"a": [1, 2.50]},null,null]'
    deep = "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)
    with pytest.raises(Undecoded) as undecoded:
        codec.json_text(f"{{1,{deep}}}".encode())
    assert undecoded.value.text == f"{{1,{deep}}}"
