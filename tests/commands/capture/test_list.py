"""`pgtail capture list`: what it says is what the capture has."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.captures import SMALL, data_frames, record, segments, whole_streams
from tests.support.corpus import capture
from tests.support.object_store import ObjectStore
from tests.support.run import decode, here

OPS = {"insert": "inserts", "update": "updates", "delete": "deletes", "truncate": "truncates"}


def listed(place: str | Path, *options: str, status: int = 0) -> list[dict[str, Any]]:
    ran = here("capture", "list", "-o", "json", *options, place)
    assert (ran.status, ran.stderr) == (status, "")
    return ran.objects


def test_every_change_of_every_stream_is_counted(tmp_path: Path) -> None:
    for number, stream in enumerate(whole_streams()[::15]):
        folder = tmp_path / str(number)
        record(folder, data_frames(stream))
        head, *found = listed(folder)
        assert (head["kind"], head["pruned"]) == ("capture", None)
        assert [one["segment"] for one in found] == [path.stem for path in segments(folder)]
        assert [one["bytes"] for one in found] == [path.stat().st_size for path in segments(folder)]
        assert {one["missing"] for one in found} == {None}
        counted: Counter[tuple[str, str, str]] = Counter()
        for table in (table for one in found for table in one["tables"]):
            counted += Counter({(table["schema"], table["table"], count): table[count] for count in OPS.values()})
        changes = [one for line in decode(folder).lines if (one := json.loads(line))["op"] in OPS]
        assert counted == Counter((one["schema"], one["table"], OPS[one["op"]]) for one in changes)
        assert head["position"] == found[-1]["position"]


def test_what_is_missing_open_or_unknown_is_named(tmp_path: Path) -> None:
    stream = capture("A_dml", "p1")
    record(tmp_path, data_frames(stream))
    _, second, third, *_, last = segments(tmp_path)
    saved = second.read_bytes(), last.read_bytes()
    second.unlink()
    last.rename(last.with_name(f"{last.name}.part"))
    _, one, other, *_, open_ = listed(tmp_path, status=1)
    assert (one["missing"], other["missing"], other["segment"]) == (None, second.stem, third.stem)
    assert (open_["open"], open_["bytes"] > 0, open_["tables"], open_["position"]) == (True, True, None, None)
    text = here("capture", "list", tmp_path, COLUMNS="80")
    assert (text.status, text.stderr) == (1, "")
    lines = text.stdout.decode().splitlines()
    assert max(map(len, lines[1:])) <= 80
    assert f"    segment {second.stem} is missing here" in lines
    assert lines[-1].endswith("1 segment missing")
    assert "complete" not in lines[-2]
    last.with_name(f"{last.name}.part").unlink()
    assert listed(tmp_path, status=1)[0]["missing"] == last.stem
    lines = here("capture", "list", tmp_path, COLUMNS="200").stdout.decode().splitlines()
    assert (lines[-3], lines[-1].endswith("2 segments missing")) == (f"    segment {last.stem} is missing here", True)
    segments(tmp_path)[0].with_name(second.name).write_bytes(saved[0])
    last_only = here("capture", "list", tmp_path)
    assert (last_only.status, here("capture", "verify", tmp_path).status) == (1, 1)
    last.write_bytes(saved[1])
    assert listed(tmp_path)[0]["missing"] is None
    assert "complete up to 0/" in here("capture", "list", tmp_path, COLUMNS="200").stdout.decode().splitlines()[-1]
    last.write_bytes(saved[1][:-100])  # cut off
    lines = here("capture", "list", tmp_path, COLUMNS="200").stdout.decode().splitlines()
    assert ("is cut off" in lines[-3], "complete" in lines[-1]) == (True, False)
    assert lines[-1].endswith(", 1 segment not known")
    plain = tmp_path / "plain"
    record(plain, data_frames(stream), SMALL, compress=False)
    assert {one["tables"] for one in listed(plain)[1:]} == {None}
    assert "its end does not say what it contains" in here("capture", "list", plain).stdout.decode()
    assert max(map(len, here("capture", "ls", tmp_path, COLUMNS="40").stdout.decode().splitlines()[1:])) <= 40


def test_segments_that_were_moved_away_from_the_start_are_a_note(tmp_path: Path) -> None:
    """As capture verify says it, unless the snapshot of a table stands before them."""
    record(tmp_path, data_frames(capture("A_dml", "p1")))
    first, *_ = segments(tmp_path)
    first.unlink()
    assert listed(tmp_path)[1]["missing"] == first.stem
    shown = here("capture", "list", tmp_path)
    words = f"segment {first.stem} came before it and is not here"
    assert (shown.status, f"    {words}\n" in shown.stdout.decode(), b" missing" in shown.stdout) == (0, True, False)
    verified = here("capture", "verify", tmp_path)
    assert (verified.status, words in verified.stderr) == (0, True)


def test_a_gap_and_a_capture_without_anything(tmp_path: Path) -> None:
    (tmp_path / "capture.json").write_text(
        '{"position": "0/10", "last": "", "messages": 0, "head": {}, "gap": ["", "0/10", "0/20"]}'
    )
    [head] = listed(tmp_path)
    assert head["gap"] == ["0/10", "0/20"]
    shown = here("capture", "list", tmp_path).stdout.decode()
    assert "a gap at the end: 0/10 to 0/20" in shown
    assert ("complete up to" in shown, shown.endswith("up to 0/10, 1 gap\n")) == (False, True)


@pytest.mark.parametrize("command", [("list",), ("verify",), ("prune", "--keep", "1h")])
def test_a_place_without_a_capture(command: tuple[str, ...], tmp_path: Path) -> None:
    """All commands say the same, and name a capture in the folder, which was meant."""

    def told(place: Path) -> str:
        ran = here("capture", *command, place)
        assert ran.status == 1
        return ran.stderr.removeprefix(f"pgtail: error: {place}: ").removesuffix("\n")

    assert told(tmp_path / "missing") == "cannot be read: No such file or directory"
    nothing = "holds no capture: there is no segment (*.pgcap) in it"
    assert told(tmp_path) == nothing
    for name in ("shop", "other"):
        record(tmp_path / name, data_frames(capture("A_dml", "p1")))
    assert told(tmp_path) == f"{nothing}, but in {tmp_path / 'other'}"


def test_in_an_object_store(s3: ObjectStore, tmp_path: Path) -> None:
    record(tmp_path / "local", data_frames(capture("A_dml", "p1")))
    place = s3.upload(tmp_path / "local", "listed")
    local, remote = listed(tmp_path / "local"), listed(place, *s3.arguments)
    assert remote[0].pop("capture") == place
    assert local[0].pop("capture") == str(tmp_path / "local")
    assert remote == local
