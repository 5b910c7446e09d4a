"""The compiled SQL literals are those of quoted() in terminal/escape.py, or are left to it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgtail.terminal.escape import hides, quoted
from tests.native.conftest import Encode


def test_every_character_is_itself_or_left_to_python(encode: Encode) -> None:
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
    for char in characters:
        for text in (char, f"eight or more {char} around it"):
            assert encode("sql", 0, text.encode()) in ((None,) if hides(text) else (None, quoted(text).encode()))


@pytest.mark.parametrize("text", ["", "it's", "''''''''''", '\\ "', "Zürich „東京“ Ελλάδα Москва हिन्दी العربية €😀"])
def test_common_text_is_quoted_natively(encode: Encode, text: str) -> None:
    assert encode("sql", 0, text.encode()) == quoted(text).encode()


@given(st.binary() | st.text(st.sampled_from("a'\\\n\x7f\u202eé")).map(str.encode))
@example(b"\xed\xa0\x80")
@example(b"\xc0\xa7")
def test_bytes_that_are_not_utf8_are_left_to_python(encode: Encode, data: bytes) -> None:
    found = encode("sql", 0, data)
    assert found is None or found == quoted(data.decode()).encode()
    assert found is not None or not (data.isascii() and data.decode().isprintable())
