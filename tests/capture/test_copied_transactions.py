"""Transactions are recorded in the same way by the scanner, in decoded Python and message by message."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import pytest

from pgtail.capture.recorder import Recorder
from pgtail.native import compiled
from pgtail.pgoutput.frames import each, walk
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
    for number, buffer in enumerate(buffers):
        pos = 0
        while True:
            if not one_by_one:
                pos = recorder.take_transactions(buffer, pos, until, time)
            if pos >= len(buffer) or (recorder.whole >= until and not recorder.inside):
                break
            start, stop = next(walk(buffer, pos))
            one = buffer[start:stop]
            later = time is not None and (recorder.time_of(one) or 0) > time
            if not recorder.inside and (recorder.begins_at(one) > until or later):  # as RecordThread does
                declined += (number, pos)
                break
            recorder.take(one)
            pos = stop
    counts = (recorder.messages, recorder.bytes, recorder.transactions, recorder.rows, recorder.whole)
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


def test_damaged_frames_are_left() -> None:
    fast = compiled()
    if fast is None:
        need_compiled()
    assert fast is not None
    choose, frames, taken = random.Random(3), with_lengths(transactions(1, 6)[1:]), 0
    for _ in range(3000):
        damaged = bytearray(frames)
        start, stop = choose.choice([*walk(frames)])
        damaged[choose.randrange(start, stop)] = choose.randrange(256)
        data, transactions_, rows, _, pos = fast.copied_transactions(bytes(damaged), 0, 1 << 20, NEVER, NEVER >> 1)
        copied = [*each(bytes(damaged[:pos]))]
        assert data == b"".join(b"d" + (len(one) + 4).to_bytes(4, "big") + one for one in copied)
        tags = bytes(one[25] for one in copied)
        assert (tags.count(b"B"), tags.count(b"C"), len(tags)) == (
            transactions_,
            transactions_,
            rows + 2 * transactions_,
        )
        taken += transactions_
    for end in range(200):
        assert fast.copied_transactions(frames[:end], 0, 1 << 20, NEVER, NEVER >> 1)[4] <= end
    assert taken > 3000
