"""Hex with blanks between the bytes, as `pgtail inspect` prints it, is the form hex."""

from __future__ import annotations

import re

import pytest

from tests.inputs.test_psql import folded
from tests.support.corpus import capture
from tests.support.forms import read_bytes
from tests.support.run import command

CAPTURE = capture("Z_small", "p1")


def inspected() -> bytes:
    """The hex of each message on one line, taken from the rows of `pgtail inspect`."""
    data = CAPTURE.forms["recv.bin"].read_bytes()
    shown = command("inspect", "-", input=data, environment={"COLUMNS": "200"}).stdout.decode()
    messages = re.split(r"^● .*$", shown, flags=re.MULTILINE)[1:]
    return "".join(
        " ".join(re.findall(r"^ +\d+  ((?:[0-9a-f]{2} )*[0-9a-f]{2})  ", message, re.MULTILINE)) + "\n"
        for message in messages
    ).encode()


def test_hex_of_inspect() -> None:
    lines = inspected()
    assert b"42 00 00" in lines
    whole = read_bytes(CAPTURE.forms["recv.bin"].read_bytes())
    reading = read_bytes(lines)
    assert (reading.form, reading.error, reading.messages) == ("hex", None, whole.messages)


@pytest.mark.parametrize("width", [60, 61, 80])
def test_no_message_is_lost_where_a_terminal_broke_it(width: int) -> None:
    """Where the lines into which a terminal broke it cannot be told apart, an error says so."""
    whole = read_bytes(CAPTURE.forms["recv.bin"].read_bytes())
    reading = read_bytes(folded(inspected(), width))
    assert reading.error is not None or reading.messages == whole.messages
