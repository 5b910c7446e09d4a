"""Rows for a capture are copied in the same way by the scanner and in plain Python, also from damaged frames."""

from __future__ import annotations

import random

import pytest

from pgtail.capture.recorder import copied_rows
from pgtail.native import compiled
from pgtail.pgoutput.frames import walk
from tests.support.encode import begin, commit, delete, insert, lengths, update

fast = compiled()
pytestmark = pytest.mark.skipif(fast is None, reason="the scanner was not built")

ROWS = [insert("1", "x" * 50), update(["1", None], ["2", None]), delete("2", None), insert("3", "y")]
FRAMES = lengths(begin(), *ROWS, commit(), *ROWS, commit(), begin())
"""What follows the rows is long enough for the head of a frame."""


@pytest.mark.parametrize("room", [0, 1, 99, 100, 10_000])
def test_until_there_is_no_room(room: int) -> None:
    assert fast is not None
    for start, _ in walk(FRAMES):
        found = copied_rows(FRAMES, start - 4, room)
        assert fast.copied_rows(FRAMES, start - 4, room) == found
    first = copied_rows(FRAMES, next(walk(FRAMES))[1], room)
    assert first[1] == {0: 0, 1: 1, 99: 1, 100: 2, 10_000: 4}[room]


def test_other_and_damaged_messages_are_left() -> None:
    assert fast is not None
    choose, taken = random.Random(3), 0
    pos = next(walk(FRAMES))[1]
    for _ in range(3000):
        damaged = bytearray(FRAMES)
        at, stop = choose.choice(list(walk(FRAMES)))
        damaged[choose.randrange(at, stop)] = choose.randrange(256)  # lengths are right: the queue has whole frames
        found = copied_rows(bytes(damaged), pos, 10_000)
        assert fast.copied_rows(bytes(damaged), pos, 10_000) == found
        taken += found[1]
    assert 3000 < taken < 12_000


def test_incomplete_and_large_rows_are_left() -> None:
    assert fast is not None
    large = lengths(insert("x" * (1 << 20)), commit(), begin())
    assert fast.copied_rows(large, 0, 10_000_000) == (b"", 0, 0)
    row = lengths(ROWS[0])
    for end in range(len(row)):
        assert fast.copied_rows(row[:end], 0, 10_000) == (b"", 0, 0)
