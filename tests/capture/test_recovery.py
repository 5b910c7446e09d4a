"""After a crash at any moment a capture continues: it has every complete and synced transaction exactly once."""

from __future__ import annotations

import gzip
import random
import re
import shutil
import zlib
from pathlib import Path

import pytest

from pgtail.capture.format import GAP, OPEN
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.capture.recovery import recover
from pgtail.errors import InputError
from tests.support import encode
from tests.support.captures import SMALL, data_frames, head, read, read_frames, record, segments, take
from tests.support.corpus import Capture, capture

STREAMS = [capture("A_dml", "p1"), capture("A_big", "p1_msg"), capture("D_twophase", "p3_2pc")]
ENDS = b"CPKr"


def transactions(found: Capture) -> list[list[bytes]]:
    """The frames up to each end of a transaction or outcome."""
    groups: list[list[bytes]] = [[]]
    for frame in data_frames(found):
        groups[-1].append(frame)
        if frame[25] in ENDS or (frame[25] == ord("M") and not frame[26] & 1):
            groups.append([])
    return groups[:-1]


def end_of(frames: list[bytes]) -> int:
    """The end position of the last frame."""
    last = frames[-1]
    start = 27 if last[25] == ord("M") else 35
    return int.from_bytes(last[start : start + 8])


@pytest.mark.parametrize("found", STREAMS, ids=str)
def test_killed_at_random_moments(found: Capture, tmp_path: Path) -> None:
    rng, whole = random.Random(str(found)), [frame for group in transactions(found) for frame in group]
    directory = tmp_path / "capture"
    directory.mkdir()
    crashes = 0
    while True:
        recorder = Recorder(directory, {}, rotation=SMALL)
        acknowledged = recorder.safe
        rest = [frame for group in transactions(found) if end_of(group) > acknowledged for frame in group]
        if not rest:
            break
        stop = rng.randrange(1, 2 + len(rest))
        take(recorder, rest[:stop])
        assert recorder.safe >= acknowledged
        if rng.random() < 0.5:
            recorder.sync()
        before = recorder.safe
        crash(recorder, directory, rng)
        crashes += 1
        assert recover(directory, compress=True).position >= before
    assert crashes > 2
    again = read(directory)
    assert again.stdout == read_frames(whole, tmp_path).stdout
    assert again.status == 0


def crash(recorder: Recorder, directory: Path, rng: random.Random) -> None:
    """Simulate a crash: drop what was not synced, except perhaps a part of the last member."""
    recorder.leave()
    parts = sorted(directory.glob(f"*{OPEN}"))
    if parts and rng.random() < 0.7:
        with parts[-1].open("ab") as file:
            file.write(rng.choice([b"\x1f\x8b\x08\0\0\0", bytes(40), parts[-1].read_bytes()[:60]]))


@pytest.mark.parametrize("whole", [False, True])
def test_the_segment_after_a_gap_records_it_however_often_it_crashes(tmp_path: Path, whole: bool) -> None:
    first, *groups = [group for group in transactions(STREAMS[0]) if len(group) > 3][:4]
    record(tmp_path / "capture", first)
    recorder = Recorder(tmp_path / "capture", {}, rotation=SMALL, gap=(5, 9))
    for group in groups[:-1]:
        take(recorder, [*(group if whole else ()), *groups[-1][:-1]])
        recorder.sync()
        crash(recorder, tmp_path / "capture", random.Random(1))
        recorder = Recorder(tmp_path / "capture", {}, rotation=SMALL)
    take(recorder, groups[-1])
    recorder.close()
    gaps = [head(path).get(GAP) for path in segments(tmp_path / "capture")]
    assert len(gaps) == (4 if whole else 2)
    assert gaps == [None, "0/5 0/9", *[None] * (len(gaps) - 2)]


def test_an_open_segment_cut_anywhere_keeps_its_whole_transactions(tmp_path: Path) -> None:
    found = capture("A_dml", "p1")
    directory = tmp_path / "capture"
    directory.mkdir()
    recorder = Recorder(directory, {}, rotation=Rotation(sync_size=500))
    take(recorder, data_frames(found))
    recorder.sync()
    [part] = directory.glob(f"*{OPEN}")
    data = part.read_bytes()
    lines = read_frames(data_frames(found), tmp_path).stdout
    ends = {end_of(group) for group in transactions(found)}
    for size in random.Random(5).sample(range(len(data)), 40):
        shutil.rmtree(directory)
        directory.mkdir()
        part.write_bytes(data[:size])
        position = recover(directory, compress=True).position
        assert position == 0 or position in ends
        assert not list(directory.glob(f"*{OPEN}"))
        if segments(directory):
            again = read(directory)
            assert again.status == 0
            assert lines.startswith(again.stdout)


def test_a_crash_in_a_member_with_gzip_files_as_values(tmp_path: Path) -> None:
    """They stand in it as they are, and are not taken for members after damage."""
    rng, directory = random.Random(1), tmp_path / "capture"
    directory.mkdir()
    recorder = Recorder(directory, {}, rotation=Rotation(), compress=True)
    for number in (1, 2):
        place = number << 12
        files = [encode.insert("1", gzip.compress(rng.randbytes(9000))) for _ in range(3)]
        for message in (encode.begin(number, place), encode.relation(), *files, encode.commit(place, place + 8)):
            recorder.take_frame(encode.frame(message, place))
        recorder.sync()
    [path] = directory.glob(f"*{OPEN}")
    data, first = path.read_bytes(), zlib.decompressobj(31)
    first.decompress(data)
    whole = data[: len(data) - len(first.unused_data)]
    recorder.close()
    second = gzip.compress(gzip.decompress(first.unused_data), 0)  # in stored blocks
    values = [found.start() for found in re.finditer(b"\x1f\x8b\x08", second)][1:]
    assert len(values) == 3
    for size in (at + more for at in values for more in (0, 1000, 9005)):
        shutil.rmtree(directory)
        directory.mkdir()
        path.write_bytes(whole + second[:size])
        assert recover(directory, compress=True).position == (1 << 12) + 8


def test_a_crash_between_closing_and_removal(tmp_path: Path) -> None:
    record(tmp_path, data_frames(capture("A_dml", "p1")))
    lines = read(tmp_path).stdout
    last = segments(tmp_path)[-1]
    shutil.copy(last, last.with_name(last.name + ".part"))
    shutil.copy(last, last.with_name(last.name + ".draft"))
    recover(tmp_path, compress=True)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json"] + [".pgcap"] * len(segments(tmp_path))
    assert read(tmp_path).stdout == lines


def test_missing_end_in_the_middle_is_not_a_crash(tmp_path: Path) -> None:
    record(tmp_path, data_frames(capture("A_big", "p1_msg")))
    first, second, *_ = segments(tmp_path)[-2:]
    first.with_name(first.name + ".part").write_bytes(first.read_bytes()[:-10])
    second.rename(second.with_name(second.name + ".part"))
    first.unlink()
    with pytest.raises(InputError, match="has no end, and others follow it"):
        recover(tmp_path, compress=True)
