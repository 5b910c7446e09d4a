"""Faults between pgtail and an object store: segments are there exactly once, and are read whole or not at all."""

from __future__ import annotations

import random
from pathlib import Path

from pgtail.capture.recorder import Recorder, Rotation
from pgtail.storage import Location
from tests.capture.test_upload import publish, target, uploader
from tests.support.faulty_store import FaultyStore
from tests.support.object_store import ObjectStore
from tests.support.run import here
from tests.torture import store_faults

__all__ = ["target"]  # a fixture


def test_segments_are_there_exactly_once(s3: ObjectStore, seed: random.Random, tmp_path: Path) -> None:
    store_faults.upload(s3, tmp_path, seed, rounds=1)


def test_a_capture_is_read_whole_or_not_at_all(s3: ObjectStore, seed: random.Random, tmp_path: Path) -> None:
    """An error is one of a few lines that names the object."""
    store_faults.read(s3, tmp_path, seed, rounds=3)


def test_a_listing_of_a_moment_before_is_no_end(s3: ObjectStore, target: Location, tmp_path: Path) -> None:
    """A segment that counts and is not listed is reported: what is shown is not taken for the whole."""
    with store_faults.faulty_store(s3, random.Random(0), 0) as (proxy, _):
        check_listing(proxy, ObjectStore(proxy.url), target, tmp_path)


def check_listing(proxy: FaultyStore, store: ObjectStore, target: Location, folder: Path) -> None:
    frames = store_faults.frames()
    place = store.uri(store_faults.key_of(target))
    uploading = uploader(folder / "spool", target)
    recorder = Recorder(folder / "spool", {}, rotation=Rotation(size=2_000))
    half = len(frames) // 2
    for frame in frames[:half]:
        recorder.take_frame(frame)
    publish(uploading, recorder)
    before = here("decode", "-o", "json", *store.arguments, place)
    assert (before.status, bool(before.lines)) == (0, True)
    for frame in frames[half:]:
        recorder.take_frame(frame)
    recorder.close()
    publish(uploading, recorder)
    proxy.stale = True
    found = here("decode", "-o", "json", *store.arguments, place)
    assert (found.status, found.stdout) == (1, before.stdout)
    assert "is missing at the end" in found.stderr
    proxy.stale = False
    whole = here("decode", "-o", "json", *store.arguments, place)
    assert whole.status == 0
    assert len(whole.lines) > len(found.lines)
