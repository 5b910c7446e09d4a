"""decode and stats --jobs N of captures do what --jobs 1 does, whoever recorded them, and damaged or not."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pgtail.capture.recorder import Recorder, Rotation
from pgtail.pipeline import capture_parts
from pgtail.pipeline.parts import Part
from pgtail.storage.local import LocalLocation
from tests.capture.test_contents import OUTPUTS, Random, options_of
from tests.capture.test_snapshots import new
from tests.support.captures import segments, take
from tests.support.every import ALL, new_seed
from tests.support.object_store import ObjectStore
from tests.support.run import Result, command, here
from tests.support.snapshots import HEAD

SECONDS = 300 if ALL else 3
_WHY = "pgtail: decoded in one process"


def recorded(folder: Path, made: Random, choose: random.Random, *, compress: bool) -> None:
    """Record a stream by one recorder after another, with or without snapshots of tables."""
    folder.mkdir()
    if choose.random() < 0.3:
        new(folder, choose.randrange(0x1000, 0xC000), count=2)
    rotation = Rotation(size=choose.choice((800, 3000)), sync_size=700)
    for start, stop in zip([0, *made.sessions], [*made.sessions, len(made.frames)], strict=True):
        recorder = Recorder(folder, HEAD, rotation=rotation, compress=compress)
        take(recorder, made.frames[start:stop])
        recorder.close()


def with_jobs(jobs: int, words: Sequence[str], names: Sequence[Path]) -> Result:
    """Without the lines that say why there is one process."""
    done = here(*words, "--jobs", str(jobs), *names)
    lines = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith(_WHY)]
    return replace(done, stderr="".join(lines))


@pytest.mark.in_one_run_of(6)
def test_random_captures(divided: list[Part], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seed, end, several, number = new_seed(), time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < end or several < 3:
        number += 1
        name = f"{seed}-{number}"
        choose, folder = random.Random(name), tmp_path / str(number)
        made = Random(
            choose.randrange(1 << 30),
            two_phase=choose.random() < 0.5,
            count=choose.choice((20, 60)),
            sessions=choose.random() < 0.5,
        )
        recorded(folder, made, choose, compress=choose.random() < 0.9)
        names = harmed(folder, choose)
        monkeypatch.setattr(capture_parts, "SIZE", choose.choice((1, 600)))
        for _ in range(2):
            options = [*options_of(choose, made.xids), *choose.choice(((), ("-v",), ("--resync",), ("--strict",)))]
            if choose.random() < 0.3:
                options.append(f"--limit={choose.randrange(1, 30)}")
            if choose.random() < 0.1:
                options += ["--redact", choose.choice(("c1", "a.c0"))]
            words = ["decode", *options]
            if choose.random() < 0.4:
                others = ("-o", "--schema-changes", "--strict", *OUTPUTS)
                words = ["stats", "-o", "json", *[word for word in options if word not in others]]
            divided.clear()
            found = [with_jobs(jobs, words, names) for jobs in (1, choose.choice((2, 3)))]
            several += len(divided) > 1
            assert found[0] == found[1], f"{name}: {' '.join(words)} {names}"


def test_of_any_number_of_segments_few_contents_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recorded(tmp_path / "c", Random(1, two_phase=False, count=150), random.Random(1), compress=True)
    monkeypatch.setattr(capture_parts, "SIZE", 1 << 30)
    monkeypatch.setattr(capture_parts, "KEPT", 3)
    walk = capture_parts.CaptureWalk([LocalLocation(tmp_path / "c")], None, "utf-8")
    *_, last = [part for part in walk.parts() if part is not None]
    found = walk.segments_of(last)
    assert found is not None
    known = [one.name for one in found.segments if one.contents is not None]
    assert 0 < len(known) <= 3 < len(found.segments)


@pytest.mark.in_one_run_of(6)
def test_in_an_object_store(s3: ObjectStore, tmp_path: Path) -> None:
    made = Random(1, two_phase=False)
    recorded(tmp_path / "capture", made, random.Random(1), compress=True)
    s3.upload(tmp_path / "capture", "jobs")
    words = ["decode", "-o", "json", "-v", *s3.arguments, s3.uri("jobs")]
    one, two = [command(*words, "--jobs", jobs) for jobs in ("1", "2")]
    assert one == two
    assert len(one.lines) > 500


def harmed(folder: Path, choose: random.Random) -> list[Path]:
    """What to read of a capture: all of it, or some segments, of which one may be damaged or missing."""
    files = segments(folder)
    if choose.random() < 0.2:
        one = choose.choice(files)
        kind = choose.random()
        if kind < 0.3 and len(files) > 1:
            one.unlink()
            files.remove(one)
        else:
            data = bytearray(one.read_bytes())
            place = choose.randrange(len(data))
            if kind < 0.5:
                del data[place:]
            else:
                data[place] ^= 1 << choose.randrange(8)
            one.write_bytes(data)
    if choose.random() < 0.3 and len(files) > 1:
        start = choose.randrange(len(files) - 1)
        return files[start : start + choose.randrange(2, len(files) + 1)]
    return [folder]
