"""`record --from` copies exactly the row messages that the decoder accepts."""

from __future__ import annotations

import random

import pytest

from pgtail.capture.row_frames import row_frame
from pgtail.errors import DecodeError
from pgtail.pgoutput.decoder import Decoder
from pgtail.pgoutput.frames import COPY_DATA, LENGTHS
from pgtail.pgoutput.rows import Delete, Insert, Update
from tests.support.captures import data_frames, whole_streams
from tests.support.corpus import Capture

HEADS = {LENGTHS: (b"", 0), COPY_DATA: (b"d", 4)}


def framed(frame: bytes, framing: int) -> bytes:
    start, more = HEADS[framing]
    return start + (len(frame) + more).to_bytes(4, "big") + frame


def is_row(frame: bytes) -> bool:
    """Whether the decoder reads a row message."""
    decoder = Decoder()
    decoder.in_stream = False
    try:
        return isinstance(decoder.frame(frame, 0, len(frame))[0], Insert | Update | Delete)
    except DecodeError:
        return False


@pytest.mark.parametrize("framing", HEADS)
@pytest.mark.parametrize("found", whole_streams()[::5], ids=str)
def test_rows_are_those_of_the_decoder(found: Capture, framing: int) -> None:
    rng = random.Random(6)
    for frame in list(data_frames(found))[:400]:
        same = frame[1:9] == frame[9:17]
        data = framed(frame, framing)
        assert (row_frame(data, 0, len(data), framing) is not None) == (is_row(frame) and same)
        assert row_frame(data, 0, len(data) - 1, framing) is None
        for _ in range(3):
            damaged = bytearray(frame)
            damaged[rng.randrange(25, min(len(frame), 60))] = rng.randrange(256)
            data = framed(bytes(damaged), framing)
            assert (row_frame(data, 0, len(data), framing) is not None) == (is_row(bytes(damaged)) and same)


def test_noise() -> None:
    rng = random.Random(7)
    for _ in range(20_000):
        data = rng.randbytes(rng.randrange(80))
        for framing in HEADS:
            assert row_frame(data, 0, len(data), framing) is None
