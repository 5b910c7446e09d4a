"""The native encoders of `-o debezium` write what its converters in Python write, or decline."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtail.outputs.debezium.values import Converter
from pgtail.values import Undecoded
from tests.native.conftest import Encode
from tests.support.debezium import made_for, numeric
from tests.support.samples import SAMPLES

COLUMNS: list[tuple[str, int, str]] = [
    *[(name, -1, "exact") for name in ("bool", "int2", "int8", "oid", "float4", "float8", "text", "bpchar", "jsonb")],
    *[(name, -1, "exact") for name in ("uuid", "bytea", "date", "inet", "_bool", "_int4", "_float8", "_text", "_uuid")],
    *[("numeric", typmod, "exact") for typmod in (-1, numeric(20, 0), numeric(14, 4), numeric(40, 30))],
    *[("numeric", typmod, "string") for typmod in (-1, numeric(14, 4))],
    *[(name, typmod, "exact") for name in ("time", "timestamp", "timestamptz") for typmod in (-1, 0, 3, 5, 99)],
]
"""Types with a native encoder: name, typmod and the option --numbers."""

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
    "time": ["00:00:00", "23:59:59.999999", "24:00:00"],
    "timestamp": ["2026-01-31 12:00:00.5", "1969-12-31 23:59:59.999999", "0001-01-01 00:00:00"],
    "timestamptz": ["2026-01-31 12:00:00.123456+00", "2026-01-31 12:00:00+05:30", "1969-12-31 23:59:59.9-02:30:15"],
}
"""Texts that must not be declined."""


def in_python(made: Converter, text: str) -> bytes | None:
    try:
        return made.encode(text)
    except Undecoded:
        return None


@pytest.mark.parametrize(("name", "typmod", "numbers"), COLUMNS)
def test_usual_values_are_encoded_natively(encode: Encode, name: str, typmod: int, numbers: str) -> None:
    made = made_for(name, typmod, numbers)
    assert made.form is not None
    for text in USUAL[name]:
        expected = in_python(made, text)
        if expected is None:
            assert (name, typmod) == ("numeric", numeric(20, 0))
            assert "." in text
        elif typmod != numeric(40, 30):  # that many digits are for Python
            assert encode(*made.form, text.encode()) == expected, text


@pytest.mark.parametrize(("name", "typmod", "numbers"), COLUMNS)
def test_all_other_values_are_as_in_python_or_declined(encode: Encode, name: str, typmod: int, numbers: str) -> None:
    made = made_for(name, typmod, numbers)
    assert made.form is not None
    for samples in SAMPLES.values():
        for text in samples:
            assert encode(*made.form, text.encode()) in (None, in_python(made, text)), text


@given(st.data())
def test_changed_texts_are_as_in_python_or_declined(encode: Encode, data: st.DataObject) -> None:
    name, typmod, numbers = data.draw(st.sampled_from(COLUMNS))
    made = made_for(name, typmod, numbers)
    assert made.form is not None
    text = data.draw(st.sampled_from(USUAL[name]))
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(text)))
        new = data.draw(st.text("0123456789.-+:eENaUL {},\\\"'xfT\n\0é", max_size=2))
        text = text[:place] + new + text[place + data.draw(st.integers(0, 2)) :]
    assert encode(*made.form, text.encode()) in (None, in_python(made, text))


@given(st.integers(-(10**18) + 1, 10**18 - 1), st.integers(0, 18), st.integers(0, 3))
def test_numerics_of_up_to_18_digits(encode: Encode, unscaled: int, scale: int, zeros: int) -> None:
    digits = f"{abs(unscaled):0{scale + 1}d}"
    text = digits[: len(digits) - scale] + (f".{digits[len(digits) - scale :]}" if scale else "")
    text = f"-{text}" if unscaled < 0 else text
    for made, number in (
        (made_for("numeric", numeric(18, scale)), text + ("0" * zeros if scale else "")),
        (made_for("numeric"), text + ("0" * zeros if scale else "")),
        (made_for("numeric", -1, "string"), text),
    ):
        assert made.form is not None
        assert encode(*made.form, number.encode()) == made.encode(number)


@given(
    st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29)),  # noqa: DTZ001 -- without a zone
    st.sampled_from(["+00", "-11:30", "+05:30", "+14", "-00:00:01"]),
    st.integers(-1, 6),
)
def test_dates_and_times(encode: Encode, when: datetime, zone: str, typmod: int) -> None:
    text = when.isoformat(" ")
    text = text.rstrip("0") if "." in text else text
    for name, value in (
        ("date", text[:10]),
        ("time", text[11:]),
        ("timestamp", text),
        ("timestamptz", text + zone),
    ):
        made = made_for(name, typmod)
        assert made.form is not None
        assert encode(*made.form, value.encode()) == made.encode(value)


@given(st.binary(max_size=40))
def test_bytes(encode: Encode, data: bytes) -> None:
    made = made_for("bytea")
    assert made.form is not None
    text = "\\x" + data.hex()
    assert encode(*made.form, text.encode()) == made.encode(text)
    for name in ("text", "_text", "date"):
        form = made_for(name).form
        assert form is not None
        found = encode(*form, data)
        assert found is None or found.decode()
