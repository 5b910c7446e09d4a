"""Messages larger than what an input holds to find where one ends: their lengths are checked before they are read."""

from __future__ import annotations

from typing import cast

import pytest

from pgtail.pgoutput.rows import Insert
from tests.support.contents import Content
from tests.support.corpus import Capture
from tests.support.encode import begin, commit, insert, relation
from tests.support.forms import FORMS, HEADS, read_bytes, read_pipe

LARGE = 9 << 20
"""Bytes of a value; the text forms have two characters for each."""
VALUE = b"0123456789abcde\n" * (LARGE // 16)
AFTER = 30
"""Rows after it: so many are no coincidence where reading goes on after damage."""
BINARY = [form for form in HEADS if form not in ("pgcap", "raw")]


def written(form: str, value: bytes = VALUE) -> bytes:
    rows = (insert("1", value.decode()), *[insert(str(number), "after") for number in range(AFTER)])
    content = Content((begin(), relation(), *rows, commit()))
    return FORMS[form](cast(Capture, content))


def rows_of(messages: list[object]) -> list[object]:
    return [message.new[1] for message in messages if isinstance(message, Insert)]


@pytest.mark.parametrize("form", [form for form in FORMS if form != "hexdump"])
def test_a_large_value_in_every_form(form: str) -> None:
    for reading in (read_bytes(written(form)), read_pipe(written(form), 1 << 20)):
        assert (reading.form, reading.error) == (form, None)
        assert rows_of([*reading.messages]) == [VALUE, *AFTER * [b"after"]]


@pytest.mark.parametrize("form", BINARY)
def test_the_length_of_a_value_that_goes_beyond_its_message(form: str) -> None:
    whole = written(form)
    at = whole.index(VALUE[:64]) - 4
    damaged = whole[:at] + (LARGE + (1 << 20)).to_bytes(4) + whole[at + 4 :]
    for reading in (read_bytes(damaged, resync=True), read_pipe(damaged, 1 << 20, resync=True)):
        assert reading.error is not None
        assert rows_of([*reading.messages]) == AFTER * [b"after"]


@pytest.mark.parametrize("form", ["hex", "psql", "csv", "copytext"])
def test_a_large_value_with_a_character_that_is_no_digit(form: str) -> None:
    whole = written(form)
    at = whole.index(VALUE[:64].hex().encode()) + LARGE
    damaged = whole[:at] + b"?" + whole[at + 1 :]
    for reading in (read_bytes(damaged, resync=True), read_pipe(damaged, 1 << 20, resync=True)):
        assert reading.error is not None
        assert rows_of([*reading.messages]) == AFTER * [b"after"]


@pytest.mark.parametrize("form", FORMS)
def test_a_large_value_that_is_not_complete(form: str) -> None:
    whole = written(form, VALUE if form != "hexdump" else VALUE[: 1 << 20])
    reading = read_bytes(whole[: len(whole) // 2])
    assert reading.error is not None
    assert rows_of([*reading.messages]) == []
