"""Captures in bad condition: full disks, segments that were moved or copied, or belong to another capture."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from click.testing import CliRunner

from pgtail.capture.format import CLOSED, COPY_DATA, HEAD, OPEN
from pgtail.capture.lock import open_directory
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.capture.recovery import Recovered, recover
from pgtail.capture.segment import SegmentFrames
from pgtail.capture.state import FILE, NO_STATE, read_state
from pgtail.capture.verify import CaptureVerifier
from pgtail.cli import main
from pgtail.errors import InputError, OutputError, Truncated
from pgtail.storage.local import LocalLocation
from tests.capture.test_recovery import end_of, transactions
from tests.support import encode
from tests.support.captures import SMALL, data_frames, lengths, read, read_frames, record, segments, take
from tests.support.corpus import capture
from tests.support.run import here

STREAM = capture("A_dml", "p1")


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    record(tmp_path / "capture", data_frames(STREAM))
    return tmp_path / "capture"


def said(capture_: Path, status: int = 1) -> str:
    """What is said when the capture is read."""
    result = read(capture_)
    assert result.status == status
    return result.stderr


def test_an_open_segment_without_a_byte(recorded: Path) -> None:
    """A recorder that has just begun it has written nothing that could be without a checksum."""
    (recorded / f"0000000099999999-0000000000{OPEN}").touch()
    assert said(recorded, 0) == ""


@pytest.mark.usefixtures("gzip_library")
def test_nothing_is_written_after_a_failed_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed write nothing more is written, even if there is room again: a part before it is missing."""
    groups = transactions(STREAM)
    recorder = Recorder(tmp_path, {}, rotation=Rotation())
    take(recorder, groups[0])
    recorder.sync()
    safe = recorder.safe
    take(recorder, groups[1])
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fails_with(errno.ENOSPC))
        with pytest.raises(OutputError, match="No space left"):
            recorder.sync()
    with pytest.raises(OutputError, match="No space left"):
        recorder.close()
    assert recorder.safe == safe == end_of(groups[0])
    assert not segments(tmp_path)
    [part] = tmp_path.glob(f"*{OPEN}")
    part.write_bytes(part.read_bytes()[:-20])  # and the disk does not have all of it
    assert recover(tmp_path, compress=True).position == safe
    assert read(tmp_path).stdout == read_frames(groups[0], tmp_path).stdout


def fails_with(number: int) -> Callable[[int], None]:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_names_are_in_order_where_a_prepared_transaction_is_rolled_back(tmp_path: Path) -> None:
    one = [encode.begin(1, 0x200), encode.relation(), encode.insert("1", "a"), encode.commit(0x200, 0x208)]
    outcome = encode.rollback_prepared(9, prepare_end=0x108, end=0x300)
    two = [encode.begin(2, 0x400), encode.insert("2", "a"), encode.commit(0x400, 0x408)]
    recorder = record(tmp_path, map(encode.frame, [*one, outcome, *two]), Rotation(size=1))
    result = read(tmp_path)
    assert (result.status, "damage" in result.stderr) == (0, False)
    assert [line["op"] for line in result.objects] == ["insert", "rollback_prepared", "insert"]
    assert recover(tmp_path, compress=True).position == recorder.safe == 0x408


def test_recording_continues_without_the_last_segment(recorded: Path) -> None:
    last = segments(recorded)[-1]
    last.unlink()
    assert f"{last.stem} is missing at the end" in read(recorded).stderr
    record(recorded, map(encode.frame, [encode.begin(1, 1 << 40), encode.commit(1 << 40, (1 << 40) + 8)]))
    assert f"{last.stem} is missing before" in said(recorded)


def test_all_segments_were_moved_away(recorded: Path) -> None:
    position = recover(recorded, compress=True).position
    last = segments(recorded)[-1].stem
    for path in segments(recorded):
        path.unlink()
    assert recover(recorded, compress=True) == Recovered(last, position)


def test_a_copy_under_another_name(recorded: Path) -> None:
    first, second, *_ = segments(recorded)
    shutil.copy(first, recorded / f"{second.stem[:-1]}E{CLOSED}")
    assert f"this is segment {first.stem} under another name" in said(recorded)


def test_a_segment_of_another_capture(recorded: Path, tmp_path: Path) -> None:
    frames = map(encode.frame, [encode.begin(1, 1 << 40), encode.commit(1 << 40, (1 << 40) + 8)])
    record(tmp_path / "other", frames)
    shutil.copy(segments(tmp_path / "other")[0], recorded)
    assert "the first segment of another capture" in said(recorded)


def test_closed_segment_next_to_its_open_one(recorded: Path) -> None:
    lines = read(recorded).stdout
    last = segments(recorded)[-1]
    shutil.copy(last, last.with_name(f"{last.stem}{OPEN}"))
    result = read(recorded)
    assert (result.status, result.stdout) == (0, lines)


def test_growing_capture_is_read(tmp_path: Path) -> None:
    """While a reader runs, segments are closed and started; it gets those that existed when it started."""
    frames = list(data_frames(STREAM))
    recorder = Recorder(tmp_path, {}, rotation=SMALL)
    take(recorder, frames[: len(frames) // 2])
    recorder.sync()
    look = CaptureVerifier()
    listed = look.capture(LocalLocation(tmp_path))
    found = [next(listed)]
    take(recorder, frames[len(frames) // 2 :])
    recorder.close()
    found += listed
    assert (look.damaged, look.problems, look.notes) == (False, 0, 0)
    assert all(one.head() is not None for one in found)
    assert len(found) < len(segments(tmp_path))


def test_the_state_during_a_transaction(tmp_path: Path) -> None:
    """Recovery drops its segment, which must not count as missing."""
    recorder = Recorder(tmp_path, {}, rotation=Rotation(sync_interval=0, state_interval=0))
    recorder.reached(0x80)
    for message in (encode.begin(1, 0x100), encode.relation(), encode.insert("1", "a")):
        recorder.take_frame(encode.frame(message))
        recorder.tick()
    recover(tmp_path, compress=True)
    assert said(tmp_path, 0) == ""


def test_a_stray_message_before_the_first_transaction(tmp_path: Path) -> None:
    """As PostgreSQL 18.0 to 18.6 send Stream Abort: it survives a crash, and the capture continues after it."""
    recorder = Recorder(tmp_path, {}, rotation=Rotation())
    recorder.take_frame(encode.frame(encode.stream_abort(5, 5)))
    recorder.sync()
    assert recover(tmp_path, compress=True).last == recover(tmp_path, compress=True).last != ""
    record(tmp_path, map(encode.frame, [encode.begin(1, 0x100), encode.commit(0x100, 0x108)]))
    assert "damage" not in said(tmp_path, 0)


def test_large_messages_are_split_in_linear_time() -> None:
    """Each piece of a message of 64 MB is copied once; joining them again and again would copy gigabytes."""
    size = 64 << 20
    data = HEAD.pack(COPY_DATA, size + 4) + bytes(size)

    class InPieces(BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 0, 1 << 12))

    frames = SegmentFrames(InPieces(data), "a segment")
    found = iter(frames)
    start, stop = next(found)
    assert (stop - start, frames.offset_of(stop)) == (size, len(data))
    with pytest.raises(Truncated, match="the end is missing"):
        next(found)


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """The error comes before a slot is created."""
    root = os.geteuid() == 0
    tmp_path.chmod(0o555)
    if root:
        os.setresuid(65534, 65534, 0)
    try:
        with pytest.raises(OutputError, match="cannot write to .*: it is read-only"), open_directory(tmp_path):
            pass
    finally:
        if root:
            os.setresuid(0, 0, 0)
        tmp_path.chmod(0o755)


@pytest.mark.parametrize("left", [OPEN, FILE])
def test_dumps_are_not_added_to_a_crashed_capture(left: str, recorded: Path, tmp_path: Path) -> None:
    last = segments(recorded)[-1]
    if left == OPEN:
        last.rename(last.with_name(f"{last.stem}{OPEN}"))
        (recorded / FILE).unlink()
    for path in segments(recorded):
        path.unlink()
    dump = tmp_path / "dump"
    dump.write_bytes(lengths(data_frames(STREAM)))
    result = CliRunner().invoke(main, ["record", "-D", str(recorded), "--from", str(dump)])
    assert (result.exit_code, "holds a capture already" in result.stderr) == (2, True)


def test_dumps_may_be_given_again_if_nothing_was_recorded(tmp_path: Path) -> None:
    arguments = ["record", "-D", str(tmp_path / "capture"), "--from"]
    assert CliRunner().invoke(main, [*arguments, str(tmp_path / "mistyped")]).exit_code == 1
    dump = tmp_path / "dump"
    dump.write_bytes(lengths(data_frames(STREAM)))
    assert CliRunner().invoke(main, [*arguments, str(dump)]).exit_code == 0
    assert read(tmp_path / "capture").stdout == read(dump).stdout


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"position": 5, "last": "", "messages": 0, "head": {}}', '{"position": "0/1"}', "\xff"]
)
def test_a_damaged_state(text: str, recorded: Path) -> None:
    (recorded / FILE).write_text(text, "latin-1")
    assert f"{FILE}: is damaged: name the segments (*.pgcap) to read them without it; pgtail rec" in said(recorded)
    named = here("decode", *sorted(recorded.glob("*.pgcap")))
    assert named.status == 0
    (recorded / FILE).unlink()
    assert read_state(LocalLocation(recorded)) is NO_STATE
    assert (read(recorded).status, read(recorded).stdout) == (0, named.stdout)


def test_open_segment_without_acknowledged_data_is_an_error(tmp_path: Path) -> None:
    """The idle position after it is in the state: truncating the segment would silently lose changes."""
    recorder = Recorder(tmp_path, {}, rotation=Rotation(sync_interval=0, state_interval=0), compress=False)
    take(recorder, data_frames(STREAM))
    recorder.sync()
    recorder.reached(recorder.whole + 100)
    recorder.tick()
    [part] = tmp_path.glob(f"*{OPEN}")
    data = bytearray(part.read_bytes())
    data[len(data) // 2 :] = b""
    part.write_bytes(data)
    for _ in range(2):
        with pytest.raises(InputError, match="was acknowledged; move the segment away"):
            recover(tmp_path, compress=True)
    part.rename(tmp_path / "elsewhere")
    assert recover(tmp_path, compress=True).last == part.name.removesuffix(OPEN)


def test_damage_in_an_open_segment_that_others_follow(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, {}, rotation=SMALL)
    frames = iter(data_frames(capture("A_big", "p1_msg")))
    while len(list(tmp_path.glob(f"*{OPEN}"))) < 2:
        recorder.take_frame(next(frames))
    recorder.sync()
    assert read(tmp_path).status == 0
    first = min(tmp_path.glob(f"*{OPEN}"))
    data = first.read_bytes()
    middle = len(data) // 2
    for damaged, says in (
        (data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], "error"),
        (data[:-60], "damage"),  # the segments after it are read
    ):
        first.write_bytes(damaged)
        result = read(tmp_path)
        named = [line for line in result.stderr.splitlines() if str(first) in line]
        assert (result.status, len(named)) == (1, 1)
        assert f"{says}: {first}" in named[0]


@pytest.mark.usefixtures("gzip_library")
@pytest.mark.parametrize("compress", [True, False], ids=["gzip", "plain"])
def test_the_last_segment_is_damaged(compress: bool, tmp_path: Path) -> None:
    record(tmp_path, data_frames(STREAM), compress=compress)
    last = segments(tmp_path)[-1]
    data = last.read_bytes()
    for place in random.Random(4).sample(range(len(data)), 40):
        last.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        try:
            assert str(recover(tmp_path, compress=compress).last) == last.stem
        except InputError as error:
            assert str(last) in str(error)
            assert "move it away to continue without it" in str(error)
    last.unlink()
    assert recover(tmp_path, compress=compress).last == last.stem
