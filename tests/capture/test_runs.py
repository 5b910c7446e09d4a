"""Transactions are recorded in the same way by the scanner, in decoded Python and message by message."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import pytest

from pgtail.capture.format import copy_data
from pgtail.capture.recorder import NO_LIMITS, Recorder, RunLimits
from pgtail.native import compiled
from pgtail.native.batch import Copied
from pgtail.pgoutput.frames import LENGTHS, each, walk
from tests.support.captures import SMALL, data_frames, whole_streams
from tests.support.captures import lengths as with_lengths
from tests.support.corpus import Capture
from tests.support.encode import begin, commit, delete, frame, insert, message, origin, relation, update
from tests.support.render import Way, need_compiled, rows_by

NEVER = (1 << 64) - 1
Found: TypeAlias = tuple[dict[str, bytes], tuple[int, ...], list[int]]


def transactions(seed: int, count: int = 120) -> list[bytes]:
    """Frames of transactions with few or many rows, some with another message in between, some damaged."""
    choose = random.Random(seed)
    frames = [frame(relation(), 0)]
    for number in range(1, count + 1):
        lsn = 100 * number
        rows = [insert("1", "x" * choose.choice([3, 50, 800])), update(["1", None], ["2", None]), delete("2", None)]
        between = choose.choices([b"", origin("o"), message(b"x")], [9, 1, 1])[0]
        messages = [begin(xid=number, lsn=lsn, time=number), *rows * choose.choice([0, 1, 1, 5]), between]
        frames += [frame(one, lsn) for one in [*messages, commit(lsn=lsn, end=lsn + 8, time=number)] if one]
    return frames


def recorded(
    directory: Path, buffers: Iterable[bytes], *, one_by_one: bool = False, until: int = NEVER, time: int | None = None
) -> Found:
    """The files of a capture, the recorder's counts, and where it declined."""
    directory.mkdir()
    recorder, declined = Recorder(directory, {}, rotation=SMALL, compress=False), list[int]()
    latest = NO_LIMITS.latest if time is None else time
    for number, buffer in enumerate(buffers):
        pos = 0
        while True:
            if not one_by_one:
                pos = recorder.take_run(buffer, pos, len(buffer), LENGTHS, RunLimits(0, until, latest))[0]
            if pos >= len(buffer) or (recorder.whole >= until and not recorder.stream.inside):
                break
            start, stop = next(walk(buffer, pos))
            one = buffer[start:stop]
            later = time is not None and (recorder.time_of(one) or 0) > time
            if not recorder.stream.inside and (recorder.begins_at(one) > until or later):  # as RecordThread does
                declined += (number, pos)
                break
            recorder.take_frame(one)
            pos = stop
    counts = (recorder.messages, recorder.bytes, recorder.transactions, recorder.stream.rows, recorder.whole)
    recorder.close()
    return {path.name: path.read_bytes() for path in directory.iterdir()}, counts, declined


def cut(frames: list[bytes], seed: int) -> list[bytes]:
    """Buffers of whole frames, as the queue has them."""
    choose, buffers = random.Random(seed), list[bytes]()
    while frames:
        count = choose.choice([1, 2, 7, 40])
        buffers.append(with_lengths(frames[:count]))
        frames = frames[count:]
    return buffers


def in_every_way(tmp_path: Path, buffers: list[bytes]) -> None:
    decoded = recorded_by("decoder", tmp_path, buffers)
    assert recorded(tmp_path / "single", buffers, one_by_one=True)[1] == decoded[1]
    assert recorded_by("compiled", tmp_path, buffers) == decoded


def recorded_by(
    way: Way, tmp_path: Path, buffers: list[bytes], *, until: int = NEVER, time: int | None = None
) -> Found:
    with rows_by(way):
        return recorded(tmp_path / way, buffers, until=until, time=time)


@pytest.mark.parametrize("seed", range(8))
def test_generated_transactions(tmp_path: Path, seed: int) -> None:
    in_every_way(tmp_path, cut(transactions(seed), seed))


@pytest.mark.parametrize("capture", whole_streams(), ids=str)
def test_recorded_streams(tmp_path: Path, capture: Capture) -> None:
    in_every_way(tmp_path, cut([*data_frames(capture)], 5))


@pytest.mark.parametrize("seed", range(8))
def test_until_a_position_or_a_time(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    until = NEVER if seed % 2 else 100 * choose.randrange(20, 100) + choose.choice([-1, 0, 8, 9])
    time = choose.randrange(20, 100) if seed % 2 else None
    buffers = cut(transactions(seed), seed)
    decoded = recorded_by("decoder", tmp_path, buffers, until=until, time=time)
    assert decoded[2] or decoded[1][-1] >= until
    assert recorded_by("compiled", tmp_path, buffers, until=until, time=time) == decoded


def copied(data: bytes, pos: int = 0, *, inside: bool = False, room: int = 1 << 20) -> tuple[bytes, int, int, int]:
    """What the scanner copies of frames from a server: the messages, transactions, rows, and where it stops."""
    fast = compiled()
    if fast is None:
        need_compiled()
    assert fast is not None
    batch = fast.index(data, pos, len(data), LENGTHS)
    found: Copied | None = fast.copied_messages(batch, pos, False, inside, room, *NO_LIMITS)
    return (b"", 0, 0, pos) if found is None else (found.messages, found.transactions, found.rows, found.stop)


def test_damaged_frames_are_left() -> None:
    choose, frames, taken = random.Random(3), with_lengths(transactions(1, 6)[1:]), 0
    for _ in range(3000):
        damaged = bytearray(frames)
        start, stop = choose.choice([*walk(frames)])
        damaged[choose.randrange(start, stop)] = choose.randrange(256)
        data, count, rows, pos = copied(bytes(damaged))
        whole = [*each(bytes(damaged[:pos]))]
        assert data == b"".join(map(copy_data, whole))
        tags = bytes(one[25] for one in whole)
        assert (tags.count(b"B"), tags.count(b"C"), len(tags)) == (count, count, rows + 2 * count)
        taken += count
    for end in range(200):
        assert copied(frames[:end])[3] <= end
    assert taken > 3000


ROWS = [insert("1", "x" * 50), update(["1", None], ["2", None]), delete("2", None), insert("3", "y")]
FRAMES = with_lengths(map(frame, [begin(), *ROWS, commit(), *ROWS, commit(), begin()]))
FIRST = next(walk(FRAMES))[1]
"""Where the first row begins."""


@pytest.mark.parametrize(("room", "rows"), [(0, 0), (1, 1), (99, 1), (100, 2), (10_000, 4)])
def test_rows_of_an_open_transaction_until_there_is_no_room(room: int, rows: int) -> None:
    bounds = [*walk(FRAMES)][1 : rows + 1]
    expected = b"".join([copy_data(FRAMES[start:stop]) for start, stop in bounds])
    assert copied(FRAMES, FIRST, inside=True, room=room) == (expected, 0, rows, bounds[-1][1] if bounds else FIRST)
