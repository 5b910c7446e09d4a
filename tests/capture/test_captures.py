"""A capture decodes to what was recorded, whole and each segment alone; damage anywhere is reported."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pgtail.capture.recorder import Rotation
from tests.support.captures import data_frames, read, read_frames, record, segments, whole_streams
from tests.support.corpus import Capture, capture

STREAMS = [found for found in whole_streams() if found.scenario.version in ("pg14", "pg16", "pg18")]
LARGE = [capture("A_big", "p1_msg"), capture("D_twophase", "p3_2pc")]
"""Transactions over many segments; two-phase commit."""


def options(found: Capture) -> tuple[str, ...]:
    return ("--encoding", found.encoding)


@pytest.mark.parametrize("found", STREAMS, ids=str)
def test_a_capture_gives_the_lines_of_its_frames(found: Capture, tmp_path: Path) -> None:
    record(tmp_path / "capture", data_frames(found))
    again = read(tmp_path / "capture", options=options(found))
    assert again.stdout == read_frames(data_frames(found), tmp_path, options(found)).stdout
    assert "damage" not in again.stderr
    assert again.status == 0


@pytest.fixture(scope="module", params=LARGE, ids=str)
def recorded(request: pytest.FixtureRequest, module_path: Path) -> tuple[Capture, Path]:
    directory = module_path / str(request.param)
    record(directory, data_frames(request.param))
    return request.param, directory


def test_every_segment_decodes_by_itself(recorded: tuple[Capture, Path]) -> None:
    found, directory = recorded
    paths = segments(directory)
    assert len(paths) > 3
    alone = [read(path, options=options(found)) for path in paths]
    assert b"".join(one.stdout for one in alone) == read(directory, options=options(found)).stdout
    assert {one.status for one in alone} == {0}


def test_segments_given_in_any_order_and_twice(recorded: tuple[Capture, Path]) -> None:
    found, directory = recorded
    paths = segments(directory) * 2
    random.Random(7).shuffle(paths)
    lines = read(*paths, options=options(found)).lines
    assert set(lines) == set(read(directory, options=options(found)).lines)


@pytest.mark.usefixtures("gzip_library")
def test_gunzipped_segments_hold_the_recorded_frames(recorded: tuple[Capture, Path]) -> None:
    found, directory = recorded
    raw = subprocess.run(["gzip", "-dc", *segments(directory)], check=True, capture_output=True).stdout
    rest = raw
    for frame in data_frames(found):
        _, message, rest = rest.partition(b"d" + (len(frame) + 4).to_bytes(4) + frame)
        assert message
    assert raw.count(b"pgtail.end\0") == len(segments(directory))


def test_names_are_in_the_order_of_the_stream(tmp_path: Path) -> None:
    record(tmp_path, data_frames(capture("A_msgs", "p1_msg")), Rotation(size=1, sync_size=1))
    names = [path.name.removesuffix(".pgcap") for path in segments(tmp_path)]
    lines = [json.loads(read(path).lines[0]) for path in segments(tmp_path) if read(path).lines]
    assert len(set(names)) == len(names) > 10
    assert [position(line) for line in lines] == sorted(position(line) for line in lines)


def position(line: dict[str, Any]) -> int:
    high, low = line.get("commit_lsn", line["lsn"]).split("/")
    return int(high, 16) << 32 | int(low, 16)


@pytest.fixture(scope="module", params=[True, False], ids=["gzip", "plain"])
def capture_of_dml(request: pytest.FixtureRequest, module_path: Path) -> Path:
    directory = module_path / f"dml-{request.param}"
    rotation = Rotation(size=20_000, sync_size=4000)
    record(directory, data_frames(capture("A_dml", "p1")), rotation, compress=request.param)
    return directory


def test_a_removed_segment_is_reported(capture_of_dml: Path, tmp_path: Path) -> None:
    paths = segments(capture_of_dml)
    for index, gone in enumerate(paths):
        broken = tmp_path / str(index)
        broken.mkdir()
        for other in [*capture_of_dml.iterdir()]:
            if other != gone:
                (broken / other.name).write_bytes(other.read_bytes())
        result = read(broken)
        if index == 0:
            # A missing first segment cannot be noticed: a capture may begin anywhere.
            continue
        assert result.status == 1
        assert gone.name.removesuffix(".pgcap") in result.stderr


@pytest.mark.usefixtures("gzip_library")
def test_a_segment_cut_anywhere_gives_a_prefix(capture_of_dml: Path, tmp_path: Path) -> None:
    path = segments(capture_of_dml)[0]
    whole, data = read(path), path.read_bytes()
    cut = tmp_path / path.name
    for size in random.Random(3).sample(range(len(data)), 60):
        cut.write_bytes(data[:size])
        result = read(cut)
        assert whole.stdout.startswith(result.stdout)
        assert result.status == 1 or size == 0
        assert (result.stderr.count(path.name) == 1) == (size > 0), "the damage is reported once"
