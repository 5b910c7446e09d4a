"""decode and stats --jobs N of captures do what --jobs 1 does, whoever recorded them, and damaged or not."""

from __future__ import annotations

import itertools
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
from tests.support.encode import INT4, TEXT, begin, commit, frame, insert, relation
from tests.support.object_store import ObjectStore
from tests.support.run import Result, command, here
from tests.support.snapshots import HEAD

SECONDS = 3
_WHY = "pgtail: decoded in one process"
_KEPT = (
    "1023525662-13",  # with -n, segments that begin inside of transactions
    "612261633-439",  # --since leaves out the first segment of a snapshot
)
"""Captures that were read wrongly by several processes, by what they are made from."""


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


def test_random_captures(
    divided: list[Part], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: random.Random
) -> None:
    start, end, several, inside = seed.randrange(1 << 30), time.monotonic() + SECONDS, 0, 0
    for number in itertools.count(1):
        if time.monotonic() > end and several >= 3 and inside >= 3:
            break
        name = _KEPT[number - 1] if number <= len(_KEPT) else f"{start}-{number}"
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
            inside += any(part.begins_in for part in divided)
            assert found[0] == found[1], f"{name}: {' '.join(words)} {names}"


def test_of_any_number_of_segments_few_contents_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recorded(tmp_path / "c", Random(1, two_phase=False, count=150), random.Random(1), compress=True)
    monkeypatch.setattr(capture_parts, "SIZE", 1 << 30)
    monkeypatch.setattr(capture_parts, "KEPT", 3)
    walk = capture_parts.CaptureWalk([LocalLocation(tmp_path / "c")], None, "utf-8")
    *_, last = [part for part in walk.parts(divides=False) if part is not None]
    found = walk.segments_of(last)
    assert found is not None
    known = [one.name for one in found.segments if one.contents is not None]
    assert 0 < len(known) <= 3 < len(found.segments)


def test_a_table_that_was_described_in_a_segment_that_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its last description is known also in the process that left that segment out.

    No description is repeated where a part begins with a snapshot.
    """
    monkeypatch.setattr(capture_parts, "SIZE", 1)
    new(tmp_path / "c", 0x5800, count=1)
    recorder = Recorder(tmp_path / "c", HEAD, rotation=Rotation(size=1 << 30))
    described = {
        1: [relation(columns=[("id", INT4)])],
        4: [relation(columns=[("id", INT4), ("v", TEXT)])],
        6: [relation(200, "shown"), insert("6", "y", oid=200)],
    }
    for xid in range(1, 9):
        lsn, row = 0x1000 * xid, insert("1") if xid < 4 else insert("1", "x")
        messages = [begin(xid, lsn), *described.get(xid, []), row, commit(lsn, lsn + 8)]
        take(recorder, [frame(message, lsn) for message in messages])
        recorder.follow({"pgtail.options": f"of segment {xid}"})
    recorder.close()
    for jobs in (1, 2, 3, 2, 2):
        found = with_jobs(jobs, ["decode", "-o", "json", "-t", "shown"], [tmp_path / "c"])
        assert (found.status, found.stderr) == (0, "")
        assert [one["new"] for one in found.objects] == [{"id": 6, "v": "y"}]


def test_a_snapshot_that_lacks_a_segment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is told at its place."""
    monkeypatch.setattr(capture_parts, "SIZE", 1)
    new(tmp_path / "c", 0x1800, count=3)
    recorder = Recorder(tmp_path / "c", HEAD, rotation=Rotation(size=1 << 30))
    for xid in range(1, 5):
        lsn = 0x1000 * xid
        take(recorder, [frame(message, lsn) for message in (begin(xid, lsn), commit(lsn, lsn + 8))])
        recorder.follow({"pgtail.options": f"of segment {xid}"})
    recorder.close()
    of_snapshots = sorted((tmp_path / "c").glob("*.snapshot.pgcap"))
    of_snapshots[len(of_snapshots) // 2].unlink()
    one, *others = [with_jobs(jobs, ["decode", "-o", "json", "-v"], [tmp_path / "c"]) for jobs in (1, 2, 3)]
    before, told, _ = one.stderr.partition(f"damage: {of_snapshots[len(of_snapshots) // 2]}: missing, a part of ")
    assert (one.status, told != "", f"{of_snapshots[0]}: pgcap" in before) == (1, True, True)
    assert others == [one, one]


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
