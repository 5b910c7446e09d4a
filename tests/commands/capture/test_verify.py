"""`pgtail capture verify`: every changed byte is found, and what is missing; a pass that was stopped goes on."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.captures import SMALL, data_frames, record, segments
from tests.support.corpus import capture
from tests.support.object_store import ObjectStore
from tests.support.run import Result, here
from tests.support.run_process import PROGRAM, started
from tests.support.tail import wait_for

STREAM = capture("A_dml", "p1")


def verify(place: str | Path, *options: str) -> Result:
    return here("capture", "verify", *options, place)


@pytest.mark.parametrize("compress", [True, False])
def test_any_changed_byte_is_found(tmp_path: Path, seed: random.Random, *, compress: bool) -> None:
    record(tmp_path, data_frames(STREAM), SMALL, compress=compress)
    files = segments(tmp_path)
    whole = verify(tmp_path)
    size = sum(path.stat().st_size for path in files)
    assert (whole.status, whole.stderr) == (0, "")
    assert whole.stdout.decode() == f"{tmp_path}: {len(files)} segments, {size / 1024:.1f} kB: whole\n"
    for _ in range(25):
        path = seed.choice(files)
        data = bytearray(path.read_bytes())
        place, before = seed.randrange(len(data)), bytes(data)
        data[place] ^= 1 << seed.randrange(8)
        path.write_bytes(data)
        found = verify(tmp_path)
        if found.status == 0:  # a bit that is not used, as the time in a gzip header
            assert compress
            assert gzip.decompress(data) == gzip.decompress(before), (path, place)
        assert found.status == 0 or str(path) in found.stderr
        path.write_bytes(before)


def test_a_missing_segment_is_named_and_a_pass_can_begin_in_the_middle(tmp_path: Path) -> None:
    record(tmp_path, data_frames(STREAM))
    files = segments(tmp_path)
    files[3].unlink()
    found = verify(tmp_path)
    assert (found.status, found.stdout.decode().endswith("1 problem\n")) == (1, True)
    assert f"segment {files[3].stem} is missing before this one" in found.stderr
    for first in (files[4].stem, str(files[4]), files[3].stem):
        assert verify(tmp_path, "--from", first).status == 1
    assert verify(tmp_path, "--from", files[5].name).status == 0
    files[-1].unlink()
    assert "is missing at the end" in verify(tmp_path, "--from", files[5].stem).stderr
    assert verify(tmp_path, "--from", "nonsense").status == 2


@pytest.mark.parametrize("lost", [4, -1])
def test_nothing_is_undone_without_what_a_missing_segment_had(tmp_path: Path, lost: int) -> None:
    """The older changes would be undone without the newer ones."""
    record(tmp_path, data_frames(STREAM))
    segments(tmp_path)[lost].unlink()
    for options in ([], ["--jobs", "2"]):
        refused = here("decode", "-o", "sql", "--undo", *options, tmp_path)
        assert (refused.status, refused.stdout) == (1, b"")
        assert "without those that are missing; pgtail decode --resync writes them\n" in refused.stderr
    forced = here("decode", "-o", "sql", "--undo", "--resync", tmp_path)
    assert (forced.status, b"DELETE FROM" in forced.stdout) == (1, True)


def test_in_an_object_store(s3: ObjectStore, tmp_path: Path) -> None:
    record(tmp_path, data_frames(STREAM))
    place = s3.upload(tmp_path, "verified")
    assert verify(place, *s3.arguments).status == 0
    part = segments(tmp_path)[-1]
    stored, damaged = s3.locate(f"verified/{part.name}"), bytearray(part.read_bytes())
    damaged[-30] ^= 1
    stored.delete()
    stored.create(bytes(damaged))
    found = verify(place, *s3.arguments)
    assert (found.status, f"damage: {stored}: " in found.stderr) == (1, True)


def test_a_gap_at_the_end_is_noted(tmp_path: Path) -> None:
    """Of a recorder that went on after it, and has recorded nothing yet: also by those that read to the end."""
    record(tmp_path, data_frames(STREAM))
    state = json.loads((tmp_path / "capture.json").read_text())
    state["gap"] = [segments(tmp_path)[-1].stem, "F/10", "F/20"]
    (tmp_path / "capture.json").write_text(json.dumps(state))
    found = verify(tmp_path)
    assert (found.status, found.stdout.decode().endswith(": whole, 1 note\n")) == (0, True)
    words = "there is a gap at the end: what was committed between F/10 and F/20 is not in the capture"
    assert found.stderr == f"pgtail: note: {tmp_path}: {words}\n"
    for command in (["decode"], ["decode", "--jobs", "2"], ["stats"]):
        read = here(*command, tmp_path)
        assert (read.status, read.stderr) == (0, found.stderr), command
    assert here("decode", "-n", "1", tmp_path).stderr == ""
    undone = here("decode", "-o", "sql", "--undo", tmp_path)
    assert (undone.status, undone.stdout, "no statements were written" in undone.stderr) == (1, b"", True)


def test_a_stopped_pass_says_how_to_go_on(tmp_path: Path) -> None:
    """In the middle of a segment that takes seconds to read."""
    record(tmp_path, data_frames(STREAM))
    _, before, large, *_ = segments(tmp_path)
    large.write_bytes(gzip.compress(bytes(8 << 20)) * 400)
    with started([*PROGRAM, "capture", "verify", str(tmp_path)], stderr=subprocess.PIPE, text=True) as running:
        wait_for("segment", lambda: _has_open(running.pid, large))
        running.send_signal(signal.SIGINT)
        _, said = running.communicate()
    assert running.returncode == 130, said
    stopped = f"pgtail: error: {tmp_path}: interrupted, in segment %s; no problem before it. To go on:"
    stopped += f" pgtail capture verify {tmp_path} --from %s\n"
    assert said in [stopped % (path.stem, path.stem) for path in (before, large)]


def _has_open(pid: int, file: Path) -> bool:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if descriptor.readlink() == file:
                return True
    return False
