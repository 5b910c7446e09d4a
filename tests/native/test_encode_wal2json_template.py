"""The native encoders of wal2json, --format-string and lines write what their encodings in Python write, or decline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgtail.changes.relations import Column
from pgtail.native.plan import Encoding
from pgtail.outputs.values import shown_encoding
from pgtail.outputs.wal2json import values
from pgtail.terminal.values import BARE, ValueStyle
from pgtail.values import Types, Undecoded
from pgtail.values.oids import OIDS
from tests.native.conftest import Encode
from tests.support.samples import SAMPLES

Native: TypeAlias = Callable[[Encoding, bytes], bytes | None]

TYPES = ("bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric", "text", "varchar", "bpchar", "bytea",
         "timestamptz", "timestamp", "date", "jsonb", "uuid", "_text")  # fmt: skip
MORE = {"text": ["it's", "Zürich, 東京"], "_text": ["{}", '{a,"b \\"c",NULL}'], "jsonb": ['{"a": [1, "é"]}']}


def column(name: str) -> Column:
    oid, types = OIDS[name], Types()
    return Column("c", oid, -1, False, types.type_name(oid, -1), types.codec(oid))


def encodings(name: str) -> list[Encoding]:
    """The encodings of a type."""
    one = column(name)
    return [
        values.encoding_of(one, as_string=False),
        values.encoding_of(one, as_string=True),
        shown_encoding(one.codec, ValueStyle(None), bare=one.type_oid in BARE),
        shown_encoding(one.codec, ValueStyle(None), alone=True),
        shown_encoding(one.codec, ValueStyle(9), bare=one.type_oid in BARE),
    ]


@pytest.fixture(scope="module")
def native(encode: Encode) -> Native:
    """What the form of an encoding writes for a text; None if it declines. Checked against the encoding."""

    def checked(encoding: Encoding, text: bytes) -> bytes | None:
        assert encoding.form is not None
        found = encode(*encoding.form, text)
        try:
            assert found in (None, encoding.text(text))
        except Undecoded:
            assert found is None
        return found

    return checked


@pytest.mark.parametrize("name", TYPES)
def test_usual_values_are_encoded_natively(native: Native, name: str) -> None:
    samples = [text for text in SAMPLES.get(name, ()) if text and text.isascii() and text.isprintable()]
    samples += MORE.get(name, ())
    declined = [
        (text, number)
        for text in samples
        for number, encoding in enumerate(encodings(name)[:4])  # the last one cuts
        if native(encoding, text.encode()) is None
    ]
    assert samples
    assert declined == []


@pytest.mark.parametrize("name", TYPES)
def test_empty_text_by_itself_is_encoded_as_nothing(native: Native, name: str) -> None:
    found = [native(encoding, b"") for encoding in encodings(name)]
    assert found[3] == (None if name == "bool" else b"")


SYNTAX = st.text("0123456789eE+-.NaInfity tfx\\'\"{}[],:\n\x7f\u202eé", max_size=20).map(str.encode)


@given(st.sampled_from(TYPES), st.binary() | st.text().map(str.encode) | SYNTAX)
@example("text", b"\xed\xa0\x80")
@example("float8", b"-Infinity")
@example("numeric", b"01")
@example("bytea", b"\\x\xff")
def test_any_bytes_are_written_as_in_python_or_declined(native: Native, name: str, text: bytes) -> None:
    for encoding in encodings(name):
        native(encoding, text)
