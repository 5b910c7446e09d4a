"""Faults between pgtail and an object store: segments are there exactly once, and are read whole or not at all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtail.capture.recorder import Recorder, Rotation
from pgtail.storage import Location
from tests.capture.test_recovery import STREAMS, transactions
from tests.capture.test_upload import publish, record_all, record_some, target, uploader
from tests.support.every import ALL, new_seed
from tests.support.faulty_store import FAULTS, FaultyStore
from tests.support.object_store import ObjectStore
from tests.support.run import here

__all__ = ["target"]  # a fixture
ROUNDS = 200 if ALL else 1


@pytest.fixture
def frames() -> list[bytes]:
    """A part of a stream: whole transactions."""
    return [frame for group in transactions(STREAMS[0])[:40] for frame in group]


@pytest.fixture
def faulty(s3: ObjectStore) -> Iterator[tuple[FaultyStore, ObjectStore]]:
    """A proxy with faults, and the store through it; the client waits for a moment only."""

    class Impatient(ObjectStore):
        @property
        def options(self) -> dict[str, str]:
            return {**super().options, "aws_timeout": "400ms"}

    seed = new_seed()
    proxy = FaultyStore(s3.url, random.Random(seed), chance=0.4)
    yield proxy, Impatient(proxy.url)
    proxy.close()


def key(place: Location) -> str:
    return str(place).partition("://")[2].partition("/")[2]


@pytest.mark.timeout(3600 if ALL else 60)
def test_segments_are_there_exactly_once(
    s3: ObjectStore,
    faulty: tuple[FaultyStore, ObjectStore],
    target: Location,
    tmp_path: Path,
    frames: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pgtail.capture.upload._BACKOFF", (0.0,))
    proxy, store = faulty
    record_some(tmp_path / "whole", target / "whole", frames)
    expected = here("decode", "-o", "json", *s3.arguments, str(target / "whole"))
    assert expected.lines
    for number in range(ROUNDS):
        place, spool = target / str(number), tmp_path / str(number)
        uploading = uploader(spool, place)  # its first request is a question that is not repeated
        uploading._store.target = store.locate(key(place))
        recorder = Recorder(spool, {}, rotation=Rotation(size=20_000))
        record_all(uploading, recorder, frames)
        found = here("decode", "-o", "json", *s3.arguments, str(place))
        assert (found.status, found.stderr, found.stdout) == (0, "", expected.stdout)
    assert not ALL or set(FAULTS) <= set(proxy.tried)


@pytest.mark.timeout(3600 if ALL else 60)
def test_a_capture_is_read_whole_or_not_at_all(
    s3: ObjectStore, faulty: tuple[FaultyStore, ObjectStore], target: Location, tmp_path: Path, frames: list[bytes]
) -> None:
    """An error is one of a few lines that names the object."""
    proxy, store = faulty
    record_some(tmp_path / "spool", target, frames)
    place = store.uri(key(target))
    expected = here("decode", "-o", "json", *s3.arguments, place)
    assert expected.status == 0
    proxy.chance = 0.3
    for _ in range(3 * ROUNDS):
        found = here("decode", "-o", "json", *store.arguments, place)
        assert "Traceback" not in found.stderr
        if found.status == 0:
            assert (found.stdout, found.stderr) == (expected.stdout, "")
        else:
            assert found.status == 1
            assert place in found.stderr
            assert expected.stdout.startswith(found.stdout)


def test_a_listing_of_a_moment_before_is_no_end(
    faulty: tuple[FaultyStore, ObjectStore], target: Location, tmp_path: Path, frames: list[bytes]
) -> None:
    """A segment that counts and is not listed is reported: what is shown is not taken for the whole."""
    proxy, _ = faulty
    proxy.chance = 0
    store = ObjectStore(proxy.url)
    place = store.uri(key(target))
    uploading = uploader(tmp_path / "spool", target)
    recorder = Recorder(tmp_path / "spool", {}, rotation=Rotation(size=2_000))
    half = len(frames) // 2
    for frame in frames[:half]:
        recorder.take(frame)
    publish(uploading, recorder)
    before = here("decode", "-o", "json", *store.arguments, place)
    assert (before.status, bool(before.lines)) == (0, True)
    for frame in frames[half:]:
        recorder.take(frame)
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
