"""Frames in the framings LENGTHS and COPY_DATA."""

from __future__ import annotations

import pytest

from pgtail.pgoutput.frames import COPY_DATA, LENGTHS, each, head, walk

FRAMES = [b"k" + bytes(17), b"", b"w12"]


@pytest.mark.parametrize(
    ("framing", "data"),
    [
        (LENGTHS, b"".join(len(frame).to_bytes(4, "big") + frame for frame in FRAMES)),
        (COPY_DATA, b"".join(b"d" + (len(frame) + 4).to_bytes(4, "big") + frame for frame in FRAMES)),
    ],
)
def test_walk_finds_every_frame(framing: int, data: bytes) -> None:
    assert [data[start:stop] for start, stop in walk(data, framing=framing)] == FRAMES
    assert b"".join([head(len(frame), framing) + frame for frame in FRAMES]) == data
    assert framing != LENGTHS or [*each(data)] == FRAMES
