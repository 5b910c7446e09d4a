"""An array's text -> JSON: quoting, dimensions, and that the fast paths agree with the general one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtail.values import Types, Undecoded, arraytext

TEXT_ARRAY, INT4_ARRAY, BOX_ARRAY, FLOAT8_ARRAY = 1009, 1007, 1020, 1022

Nested = list["Nested"] | str | None


def array_out(value: object) -> str:
    """The text that the server prints, with quotes wherever they are allowed."""
    if isinstance(value, list):
        return "{" + ",".join(map(array_out, value)) + "}"
    if value is None:
        return "NULL"
    text = str(value)
    if text and text.upper() != "NULL" and not set(text) & set('{}",\\ \t\n\r\v\f'):
        return text
    return '"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))


elements = st.none() | st.text(st.sampled_from('ab{}",\\ \n\té😀NUL\u00a0'), max_size=6)


@st.composite
def arrays(draw: st.DrawFn) -> list[object]:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))

    def level(left: list[int]) -> object:
        return [level(left[1:]) for _ in range(left[0])] if left else draw(elements)

    value = level(sizes)
    assert isinstance(value, list)
    return value


@given(arrays())
def test_every_array(value: list[object]) -> None:
    text = array_out(value).encode()
    token = Types().codec(TEXT_ARRAY).json_text(text)
    assert json.loads(token) == value
    assert _by_element(TEXT_ARRAY, text) == token


@given(st.lists(st.none() | st.integers() | st.floats(), min_size=1))
def test_arrays_of_numbers(value: list[float | None]) -> None:
    text = array_out(value).encode().replace(b"nan", b"NaN").replace(b"inf", b"Infinity")
    assert _by_element(FLOAT8_ARRAY, text) == Types().codec(FLOAT8_ARRAY).json_text(text)


@given(st.text(st.sampled_from('ab{}",\\ \nNUL[]=:1'), max_size=12))
def test_fast_and_general_path_refuse_the_same(text: str) -> None:
    fast: bytes | str
    general: bytes | str
    try:
        fast = Types().codec(TEXT_ARRAY).json_text(text.encode())
    except Undecoded as undecoded:
        fast = undecoded.text
    try:
        general = _by_element(TEXT_ARRAY, text.encode())
    except Undecoded as undecoded:
        general = undecoded.text
    assert fast == general


def _by_element(oid: int, cell: bytes) -> bytes:
    """The same by the general path, element by element, as for a long text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arraytext, "SHORT", 0)
        return Types().codec(oid).json_text(cell)


@pytest.mark.parametrize(
    ("oid", "text", "token"),
    [
        (TEXT_ARRAY, "{}", "[]"),
        (TEXT_ARRAY, '{NULL,null,"NULL"}', '[null,"null","NULL"]'),
        (TEXT_ARRAY, '{"","a b","q\\"uo\\\\te"}', '["","a b","q\\"uo\\\\te"]'),
        (TEXT_ARRAY, "{{a,b},{NULL,'}}", '[["a","b"],[null,"\'"]]'),
        (TEXT_ARRAY, "[2:3]={a,b}", '"[2:3]={a,b}"'),
        (TEXT_ARRAY, "[0:0][-1:0]={{a,b}}", '"[0:0][-1:0]={{a,b}}"'),
        (TEXT_ARRAY, "{\u00a0}", '["\u00a0"]'),
        (INT4_ARRAY, "{1,-2,NULL}", "[1,-2,null]"),
        (INT4_ARRAY, "{{1},{2}}", "[[1],[2]]"),
        (FLOAT8_ARRAY, "{0.1,NaN,-0,1e+23,-Infinity}", '[0.1,"NaN",-0,1e+23,"-Infinity"]'),
        (BOX_ARRAY, "{(3,4),(1,2);(7,8),(5,6)}", '["(3,4),(1,2)","(7,8),(5,6)"]'),
    ],
)
def test_known_arrays(oid: int, text: str, token: str) -> None:
    assert Types().codec(oid).json_text(text.encode()).decode() == token
    assert _by_element(oid, text.encode()).decode() == token


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "}",
        "{a",
        "a}",
        "{a}}",
        "{{a}",
        "{{}}",
        "{,}",
        "{a,}",
        "{a b}",
        '{"a"b}',
        '{a"b"}',
        "{a\\b}",
        "{{a},b}",
        "{a,{b}}",
        "{{a,b},{c}}",
        "{{{{{{{a}}}}}}}",
        "{a}{b}",
        "{{a}{b}}",
        "[1:2]",
        "[]={a}",
        "[x:y]={a}",
        "{a};",
    ],
)
def test_invalid_arrays_are_strings_or_undecoded(text: str) -> None:
    types = Types()
    types.declare(16400, "public", "_something")
    assert json.loads(types.codec(16400).json_text(text.encode())) == text
    for read in (types.codec(TEXT_ARRAY).json_text, lambda cell: _by_element(TEXT_ARRAY, cell)):
        with pytest.raises(Undecoded):
            read(text.encode())
