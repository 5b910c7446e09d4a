"""Where the reading of a capture starts for --since."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtail.capture import reader
from pgtail.capture.reader import segments
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.changes.commit_range import MARGIN
from pgtail.pgoutput.scalars import Point, lsn_text, time_text
from pgtail.storage import Location
from pgtail.storage.local import LocalLocation
from tests.support.captures import read
from tests.support.encode import begin, commit, frame, insert, relation

SECOND = 1_000_000
COUNT = 200


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Transactions a second apart, every fifth of them committed 9 seconds before the one before it by the clock."""
    directory = tmp_path_factory.mktemp("capture")
    recorder = Recorder(directory, {}, rotation=Rotation(size=600))
    recorder.take_frame(frame(relation()))
    for number in range(COUNT):
        lsn, time = 0x1000 * (number + 1), time_of(number)
        rows = [insert(str(number), "x" * 40) for _ in range(number % 4 + 1)]
        for message in (begin(number + 1, lsn, time), *rows, commit(lsn, lsn + 8, time)):
            recorder.take_frame(frame(message, lsn))
    recorder.close()
    return directory


def time_of(number: int) -> int:
    return (number - 9 * (number % 5 == 4)) * SECOND


def shown(capture: Path, *options: str) -> set[int]:
    found = read(capture, options=options)
    assert found.status == 0
    assert found.stderr == "" or (not found.stdout and found.stderr.count("\n") == 1 and "matched" in found.stderr)
    return {line["xid"] - 1 for line in found.objects}


@pytest.mark.parametrize("second", [-5, 0, 1, 20, 57, 58, 59, 100, 190, 195, 199, 500][::2])
def test_what_was_committed_since(capture: Path, second: int) -> None:
    time = second * SECOND
    expected = {number for number in range(COUNT) if time_of(number) >= time}
    assert shown(capture, "--since", time_text(time)) == expected
    assert shown(capture, "--until", time_text(time)) == {*range(COUNT)} - {n for n in expected if time_of(n) > time}
    lsn = 0x1000 * (second + 1)
    if lsn > 0:
        assert shown(capture, "--since", lsn_text(lsn)) == {*range(max(0, second), COUNT)}


def test_few_segments_are_opened(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Location] = []
    usual = reader.first_time

    def first_time(segment: Location) -> int | None:
        opened.append(segment)
        return usual(segment)

    monkeypatch.setattr(reader, "first_time", first_time)
    listed = segments(LocalLocation(capture))
    assert len(listed) > 100
    for second in range(-5, COUNT + 5, 7):
        opened.clear()
        since = Point(time=second * SECOND)
        first = reader.first_segment(listed, since)
        assert len(opened) <= 8, "log2 of the number of segments"
        assert first == 0 or (usual(listed[first].location) or 0) < second * SECOND - MARGIN
        following = [usual(found.location) or 0 for found in listed[first + 1 : first + 30]]
        assert not following or max(following) >= second * SECOND - MARGIN, "it starts no earlier than needed"


def test_a_segment_without_a_begin_is_passed_over(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = segments(LocalLocation(capture))
    usual = reader.first_time
    hidden = {found.location for found in listed[::2]}
    monkeypatch.setattr(reader, "first_time", lambda path: None if path in hidden else usual(path))
    for second in range(20, COUNT, 9):
        first = listed[reader.first_segment(listed, Point(time=second * SECOND))].location
        assert first not in hidden
        assert (usual(first) or 0) < second * SECOND - MARGIN
