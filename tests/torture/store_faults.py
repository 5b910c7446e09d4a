"""Faults between pgtail and an object store: segments are there exactly once, and are read whole or not at all."""

from __future__ import annotations

import contextlib
import random
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pgtail.capture.recorder import Recorder, Rotation
from pgtail.storage import Location
from tests.capture.test_recovery import STREAMS, transactions
from tests.capture.test_upload import record_all, record_some, uploader
from tests.support.faulty_store import FaultyStore
from tests.support.object_store import ObjectStore
from tests.support.run import here
from tests.torture.bench import Bench


def frames() -> list[bytes]:
    """A part of a stream: whole transactions."""
    return [frame for group in transactions(STREAMS[0])[:40] for frame in group]


class Impatient(ObjectStore):
    """The client waits for a moment only."""

    @property
    def options(self) -> dict[str, str]:
        return {**super().options, "aws_timeout": "400ms"}


@contextlib.contextmanager
def faulty_store(s3: ObjectStore, choose: random.Random, chance: float) -> Iterator[tuple[FaultyStore, ObjectStore]]:
    """A proxy with faults, and the store through it."""
    proxy = FaultyStore(s3.url, choose, chance=chance)
    try:
        yield proxy, Impatient(proxy.url)
    finally:
        proxy.close()


def trial(bench: Bench, choose: random.Random) -> str:
    """Some captures that are uploaded, and read, through faults."""
    with tempfile.TemporaryDirectory() as folder:
        tried = upload(bench.s3, Path(folder), choose, rounds=10) + read(bench.s3, Path(folder), choose, rounds=30)
    return ", ".join(f"{count} {fault}" for fault, count in tried.most_common())


def key_of(place: Location) -> str:
    """The key of a place in its bucket."""
    return str(place).partition("://")[2].partition("/")[2]


def upload(s3: ObjectStore, folder: Path, choose: random.Random, *, rounds: int) -> Counter[str]:
    """Upload captures; returns the faults. Raises AssertionError unless each segment is there exactly once."""
    target = s3.locate(uuid.uuid4().hex)
    record_some(folder / "whole", target / "whole", frames())
    expected = here("decode", "-o", "json", *s3.arguments, str(target / "whole"))
    assert expected.lines
    with faulty_store(s3, choose, 0.4) as (proxy, store):
        for number in range(rounds):
            place, spool = target / str(number), folder / str(number)
            proxy.chance = 0  # the first request is a question that is not repeated
            uploading = uploader(spool, store.locate(key_of(place)))
            proxy.chance = 0.4
            record_all(uploading, Recorder(spool, {}, rotation=Rotation(size=20_000)), frames())
            found = here("decode", "-o", "json", *s3.arguments, str(place))
            assert (found.status, found.stderr, found.stdout) == (0, "", expected.stdout)
    return proxy.tried


def read(s3: ObjectStore, folder: Path, choose: random.Random, *, rounds: int) -> Counter[str]:
    """Read a capture; returns the faults. Raises AssertionError unless it is whole, or the error names the object."""
    target = s3.locate(uuid.uuid4().hex)
    record_some(folder / "spool", target, frames())
    with faulty_store(s3, choose, 0.3) as (proxy, store):
        place = store.uri(key_of(target))
        expected = here("decode", "-o", "json", *s3.arguments, place)
        assert expected.status == 0
        for _ in range(rounds):
            found = here("decode", "-o", "json", *store.arguments, place)
            assert "Traceback" not in found.stderr
            if found.status == 0:
                assert (found.stdout, found.stderr) == (expected.stdout, "")
            else:
                assert found.status == 1
                assert place in found.stderr
                assert expected.stdout.startswith(found.stdout)
    return proxy.tried
