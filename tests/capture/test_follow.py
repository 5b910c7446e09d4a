"""A capture continues on another server or timeline, and the next segment records it. Names of segments are unique."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgtail.capture.recorder import Recorder, Rotation
from pgtail.capture.recovery import recover
from pgtail.capture.state import FILE
from tests.support import encode
from tests.support.captures import head, read, segments

NAME = "pgtail.timeline"


def timelines(directory: Path) -> list[str]:
    return [head(path)[NAME] for path in segments(directory)]


def read_state(directory: Path) -> str:
    return str(json.loads((directory / FILE).read_text())["parameters"][NAME])


def take(recorder: Recorder, *messages: bytes) -> None:
    for message in messages:
        recorder.take_frame(encode.frame(message))


def test_between_transactions(tmp_path: Path) -> None:
    """The open segment is closed at once; without one, the state is written at once."""
    recorder = Recorder(tmp_path, {NAME: "1"}, rotation=Rotation())
    take(recorder, encode.begin(1, 0x100), encode.relation(), encode.insert("1", "a"), encode.commit(0x100, 0x108))
    recorder.follow({NAME: "1"})
    assert recorder.name
    recorder.follow({NAME: "2"})
    assert (recorder.name, recorder.safe, read_state(tmp_path)) == ("", 0x108, "2")
    recorder.follow({NAME: "3"})
    assert read_state(tmp_path) == "3"
    take(recorder, encode.begin(2, 0x200), encode.insert("2", "b"), encode.commit(0x200, 0x208))
    recorder.close()
    assert timelines(tmp_path) == ["1", "3"]
    result = read(tmp_path)
    assert (result.status, result.stderr, len(result.lines)) == (0, "", 2)


@pytest.mark.parametrize("crash", [False, True])
def test_inside_a_transaction(tmp_path: Path, crash: bool) -> None:
    """The change is made at its end: a crash before that drops the incomplete transaction."""
    recorder = Recorder(tmp_path, {NAME: "1"}, rotation=Rotation())
    take(recorder, encode.begin(1, 0x100), encode.relation(), encode.insert("1", "a"))
    recorder.follow({NAME: "2"})
    recorder.sync()
    assert (bool(recorder.name), read_state(tmp_path)) == (True, "1")
    if crash:
        assert recover(tmp_path, compress=True).position == 0
        return
    take(recorder, encode.commit(0x100, 0x108))
    assert (recorder.name, read_state(tmp_path), timelines(tmp_path)) == ("", "2", ["1"])
    take(recorder, encode.begin(2, 0x200), encode.insert("2", "b"))
    recorder.follow({NAME: "3"})
    recorder.restart()
    assert read_state(tmp_path) == "3"
    take(recorder, encode.begin(2, 0x200), encode.insert("2", "b"), encode.commit(0x200, 0x208))
    recorder.close()
    assert timelines(tmp_path) == ["1", "3"]
    assert [line["new"]["id"] for line in read(tmp_path).objects] == [1, 2]


def test_a_message_outside_of_transactions_after_a_closed_segment(tmp_path: Path) -> None:
    """It has no position of its own: its segment must not get the name of the closed one."""
    recorder = Recorder(tmp_path, {NAME: "1"}, rotation=Rotation())
    take(recorder, encode.message(b"kept", lsn=0x100, transactional=False))
    recorder.follow({NAME: "2"})
    take(recorder, encode.stream_abort(5, 5))
    recorder.follow({NAME: "3"})
    take(recorder, encode.begin(1, 0x100), encode.relation(), encode.insert("1", "a"), encode.commit(0x100, 0x108))
    recorder.close()
    assert timelines(tmp_path) == ["1", "2", "3"]
    result = read(tmp_path)
    assert [line["op"] for line in result.objects] == ["message", "insert"]
    assert "missing" not in result.stderr
