"""Reassembly of one direction of a connection from any segments; missing bytes are reported."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pgtail.inputs.pcap.connections import MOST_WAITING, Flow, Missing, Piece

DATA = bytes(range(256)) * 40


def pieces_of(flow: Flow, segments: list[tuple[int, bytes]], *, last: int | None = None) -> list[Piece]:
    pieces: list[Piece] = []
    for number, data in segments:
        pieces += flow.segment(number & 0xFFFFFFFF, data, last=last is not None and number + len(data) == last)
    return [*pieces, *flow.end()]


@settings(max_examples=40)
@given(st.data(), st.integers(0, (1 << 32) - 1), st.integers(1, 900))
def test_every_order_and_every_cut_gives_the_same_bytes(data: st.DataObject, first: int, most: int) -> None:
    """Segments in any order, repeated, and split differently with overlaps."""
    chance = random.Random(data.draw(st.integers()))
    segments, start = [], 0
    while start < len(DATA):
        size = chance.randint(1, most)
        back = chance.randint(0, min(start, size))
        segments.append((first + start - back, DATA[start - back : start + size]))
        start += size
    segments += chance.sample(segments, len(segments) // 3)
    # Packets overtake each other by a few places only. The first one stays: it has the first sequence number.
    segments[1:] = [segment for _, segment in sorted((i + chance.uniform(0, 8), s) for i, s in enumerate(segments[1:]))]
    pieces = pieces_of(Flow(first), segments)
    assert all(isinstance(piece, bytes) for piece in pieces)
    assert b"".join([piece for piece in pieces if isinstance(piece, bytes)]) == DATA


@given(st.lists(st.booleans(), min_size=10, max_size=60), st.booleans())
def test_bytes_that_were_not_captured_are_reported_where_they_are_missing(there: list[bool], reordered: bool) -> None:
    segments = [(7 + 100 * i, DATA[100 * i : 100 * i + 100]) for i, seen in enumerate(there) if seen]
    if reordered:
        segments.sort(key=lambda segment: segment[0] ^ 256)
    end = 7 + 100 * len(there)
    position, missing = 0, 0
    for piece in pieces_of(Flow(7), [*segments, (end, b"")], last=end):
        if isinstance(piece, Missing):
            assert not any(there[position // 100 : (position + piece.size) // 100])
            position += piece.size
            missing += piece.size
        else:
            assert piece == DATA[position : position + len(piece)]
            position += len(piece)
    assert position == 100 * len(there)
    assert missing == 100 * there.count(False)


def test_missing_bytes_are_skipped_when_too_much_is_buffered() -> None:
    flow, megabyte = Flow(0), bytes(1 << 20)
    pieces: list[Piece] = []
    number = 0
    for number in range(1, 40):
        pieces += flow.segment(number << 20, megabyte)
        if pieces:
            break
    assert pieces[0] == Missing(1 << 20)
    assert sum(len(piece) for piece in pieces[1:] if isinstance(piece, bytes)) > MOST_WAITING
    assert [*flow.segment(number + 1 << 20, b"more")] == [b"more"]


def test_fin_marks_the_end() -> None:
    flow = Flow(10)
    assert [*flow.segment(13, b"de", last=True)] == []
    assert [flow.over] == [False]
    assert [*flow.segment(10, b"abc")] == [b"abc", b"de"]
    assert [flow.over] == [True]
    assert [*flow.segment(10, b"abcde")] == []
    assert [*flow.segment(14, b"e")] == []  # a keepalive's byte
