"""Rows of an open transaction are copied for a capture as they are, up to the first other frame."""

from __future__ import annotations

import random

import pytest

from pgtail.capture.format import copy_data
from pgtail.capture.recorder import copied_rows
from pgtail.pgoutput.frames import walk
from tests.support.encode import begin, commit, delete, insert, lengths, update

ROWS = [insert("1", "x" * 50), update(["1", None], ["2", None]), delete("2", None), insert("3", "y")]
FRAMES = lengths(begin(), *ROWS, commit(), *ROWS, commit(), begin())
FIRST = next(walk(FRAMES))[1]
"""Where the first row begins."""


@pytest.mark.parametrize(("room", "rows"), [(0, 0), (1, 1), (99, 1), (100, 2), (10_000, 4)])
def test_until_there_is_no_room(room: int, rows: int) -> None:
    copied, count, pos = copied_rows(FRAMES, FIRST, room)
    bounds = [*walk(FRAMES)][1 : rows + 1]
    assert count == rows
    assert copied == b"".join([copy_data(FRAMES[start:stop]) for start, stop in bounds])
    assert pos == (bounds[-1][1] if bounds else FIRST)


def test_other_messages_and_what_is_too_short_for_a_row_are_left() -> None:
    choose, taken = random.Random(3), 0
    frames = [*walk(FRAMES)]
    for _ in range(3000):
        damaged = bytearray(FRAMES)
        at, stop = choose.choice(frames)
        damaged[choose.randrange(at, stop)] = choose.randrange(256)  # lengths are right: the queue has whole frames
        _, rows, pos = copied_rows(bytes(damaged), FIRST, 10_000)
        assert pos == frames[rows][1]
        assert all(damaged[start] == ord("w") and damaged[start + 25] in b"IUD" for start, _ in frames[1 : rows + 1])
        taken += rows
    assert 3000 < taken < 12_000
    row = lengths(ROWS[0])
    for end in range(30):
        assert copied_rows(row[:end], 0, 10_000) == (b"", 0, 0)
