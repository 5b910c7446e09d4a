"""Rows of COPY as Insert messages: the compiled way and plain Python give the same bytes."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable, Iterator
from typing import cast

import psycopg
import pytest
from psycopg.pq.abc import PGconn

from pgtail.pgoutput.frames import COPY_DATA, LENGTHS, bounds, walk
from pgtail.pgoutput.walsender import XLogData
from pgtail.postgres import copy_rows
from pgtail.postgres.copy_rows import RowFrames, kinds_of
from tests.support import encode
from tests.support.libpq import CopyOut
from tests.support.render import WAYS, Way, rows_by

HEADER = XLogData(0x1FF, 0x200, -5)
SIGNATURE = b"PGCOPY\n\xff\r\n\0" + struct.pack(">II", 0, 0)
ESCAPES = {8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 92: b"\\\\"}


@contextlib.contextmanager
def received_by(way: Way, source: CopyOut) -> Iterator[Callable[[RowFrames, int], tuple[bytes, int, int]]]:
    """What RowFrames.receive() does with rows of this source, by compiled code or by psycopg's functions."""
    with rows_by(way), pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy_rows, "copy_functions", lambda: source.functions)
        yield lambda frames, limit: frames.receive(cast(PGconn, source), limit, 0)


def text_row(cells: list[bytes | None]) -> bytes:
    escaped = [b"\\N" if cell is None else b"".join(ESCAPES.get(one, bytes((one,))) for one in cell) for cell in cells]
    return b"\t".join(escaped) + b"\n"


def binary_row(cells: list[bytes | None]) -> bytes:
    values = [struct.pack(">i", -1) if cell is None else struct.pack(">i", len(cell)) + cell for cell in cells]
    return struct.pack(">H", len(cells)) + b"".join(values)


def insert(cells: list[bytes | None], kinds: bytes | None) -> bytes:
    """The frame, by the helper of the tests that knows the protocol's manual alone."""
    values = [
        b"n" if cell is None else (b"t" if kinds is None else kinds[at : at + 1]) + struct.pack(">I", len(cell)) + cell
        for at, cell in enumerate(cells)
    ]
    message = b"I" + struct.pack(">I", 77) + b"N" + struct.pack(">H", len(cells)) + b"".join(values)
    return b"w" + struct.pack(">QQq", *HEADER) + message


def random_cell(rng: random.Random) -> bytes | None:
    alphabet = rng.choice([b"abc", b"\\Nnt\t", bytes(range(1, 256)), bytes(range(256))])
    size = rng.choice([0, 1, 2, 7, 15, 16, 17, 33, 200])
    return None if rng.random() < 0.15 else bytes(rng.choices(alphabet, k=size))


@pytest.mark.parametrize("framing", [LENGTHS, COPY_DATA])
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_random_rows(seed: int, binary: bool, framing: int) -> None:
    rng = random.Random(seed)
    columns = rng.choice([0, 1, 2, 3, 20])
    kinds = kinds_of([rng.random() < 0.8 for _ in range(columns)]) if binary else None
    table = [[random_cell(rng) for _ in range(columns)] for _ in range(rng.choice([0, 1, 100]))]
    lines = [binary_row(cells) if binary else text_row(cells) for cells in table]
    if binary:
        lines.append(b"\xff\xff")
        lines[0] = SIGNATURE + lines[0]
    expected = [insert(cells, kinds) for cells in table]
    for way in WAYS:
        for limit in (1, 500, 1 << 20):
            with received_by(way, CopyOut(lines)) as receive:
                frames, length, count = b"", 0, 0
                while length >= 0:
                    taken, rows, length = receive(RowFrames(77, columns, kinds, HEADER, framing), limit)
                    found = [taken[start:end] for start, end in walk(taken, 0, framing)]
                    assert len(found) == rows
                    assert len(b"".join(found[:-1])) < limit
                    frames, count = frames + taken, count + rows
                assert [frames[start:end] for start, end in walk(frames, 0, framing)] == expected
                assert count == len(table)


@pytest.mark.parametrize("way", WAYS)
def test_rows_so_far(way: Way) -> None:
    """Without a row, libpq says 0: what came before is returned."""
    with received_by(way, CopyOut([b"a\n"], 0)) as receive:
        frames, rows, length = receive(RowFrames(77, 1, None, HEADER, LENGTHS), 1000)
        assert (rows, length) == (1, 0)
        assert receive(RowFrames(77, 1, None, HEADER, LENGTHS), 1000) == (b"", 0, 0)
    start, end = bounds(frames, 0)
    assert frames[start:end] == insert([b"a"], None)


@pytest.mark.parametrize("way", WAYS)
def test_the_head_of_the_binary_form_may_come_alone(way: Way) -> None:
    with received_by(way, CopyOut([SIGNATURE, binary_row([b"a"])])) as receive:
        frames, rows, _ = receive(RowFrames(77, 1, b"t", HEADER, LENGTHS), 1000)
    start, end = bounds(frames, 0)
    assert (frames[start:end], rows) == (insert([b"a"], b"t"), 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_connection_that_breaks(way: Way) -> None:
    with (
        received_by(way, CopyOut([b"a\n"], 0, broken=True)) as receive,
        pytest.raises(psycopg.OperationalError, match=r"^the connection broke$"),
    ):
        receive(RowFrames(77, 1, None, HEADER, LENGTHS), 1000)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("row", "kinds"),
    [
        (b"a\tb", None),
        (b"a\n", None),
        (b"a\tb\tc\n", None),
        (b"\\N\n", None),
        (b"\\Nx\tb\n", None),
        (b"\x00\x02\xff\xff\xff\xff\xff\xff\xff\xff", b"b"),
        (b"\x00\x02\xff\xff\xff\xff", b"bb"),
        (b"\x00\x02\xff\xff\xff\xff\x00\x00\x00\x05abcd", b"bb"),
        (b"\x00\x02\xff\xff\xff\xff\xff\xff\xff\xff\x00", b"bb"),
        (b"\x00\x02\x80\x00\x00\x00\xff\xff\xff\xff", b"bb"),
        (b"\x00", b"bb"),
        (SIGNATURE[:15], b"bb"),
    ],
)
def test_other_rows_are_errors(way: Way, row: bytes, kinds: bytes | None) -> None:
    columns = 2 if kinds is None else len(kinds)
    match = f"a row of COPY that does not have {columns} columns"
    with received_by(way, CopyOut([row])) as receive, pytest.raises(ValueError, match=match):
        receive(RowFrames(77, columns, kinds, HEADER, LENGTHS), 1000)


@pytest.mark.parametrize("way", WAYS)
def test_the_frame_is_that_of_the_protocol(way: Way) -> None:
    """The same as tests/support/encode.py has for a text row."""
    with received_by(way, CopyOut([b"x\t\\N\n"])) as receive:
        frames, _, _ = receive(RowFrames(77, 2, None, XLogData(9, 9, 0), LENGTHS), 1000)
    assert frames == encode.lengths(encode.insert("x", None, oid=77), lsn=9)
