"""The uploader against a real S3 server: killed at any operation, nothing is lost, and nothing is repeated."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from pgtail.capture.format import PREDECESSOR, SegmentName
from pgtail.capture.reader import listed, segments
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.capture.segment import read_head
from pgtail.capture.state import FILE, NO_STATE, Pruned, parse_state, read_state, state_json
from pgtail.capture.upload import Uploader
from pgtail.errors import OptionError, OutputError
from pgtail.storage import Entry, Location, Reader, Writer
from pgtail.storage.errors import UnavailableOutput
from tests.capture.test_recovery import STREAMS, crash, end_of, transactions
from tests.support import encode
from tests.support.captures import SMALL, lengths, read, take
from tests.support.corpus import Capture
from tests.support.object_store import ObjectStore
from tests.support.run import decode, here


class Killed(Exception):
    """The process ends here."""


class Fuse:
    """Raises an error before or after the operation with this number; by default, as if the process was killed.

    Only while it is `lit` operations count.
    """

    lit = True

    def __init__(self, number: int, *, before: bool, error: type[Exception] = Killed) -> None:
        self.left = number
        self._before = before
        self._error = error

    def operation(self) -> Iterator[None]:
        self.left -= self.lit
        if self.left == 0 and self._before:
            raise self._error("no connection")
        yield
        if self.lit and self.left == 0:
            raise self._error("no answer")


class Fused(Location):
    """A location whose operations burn a fuse."""

    def __init__(self, location: Location, fuse: Fuse) -> None:
        self._location = location
        self._fuse = fuse

    def __str__(self) -> str:
        return str(self._location)

    def __truediv__(self, name: str) -> Fused:
        return Fused(self._location / name, self._fuse)

    def list(self, after: str = "") -> list[Entry]:
        return self._location.list(after)

    def head(self) -> Entry | None:
        return self._location.head()

    def is_folder(self) -> bool:
        return self._location.is_folder()

    def open(self) -> Reader:
        for _ in self._fuse.operation():
            found = self._location.open()
        return found

    def read(self) -> tuple[bytes, str] | None:
        return self._location.read()

    def writer(self) -> Writer:
        raise NotImplementedError

    def create(self, data: bytes) -> str:
        for _ in self._fuse.operation():
            version = self._location.create(data)
        return version

    def replace(self, data: bytes, version: str) -> str:
        for _ in self._fuse.operation():
            version = self._location.replace(data, version)
        return version

    def delete(self) -> None:
        for _ in self._fuse.operation():
            self._location.delete()


@pytest.fixture
def target(s3: ObjectStore) -> Location:
    return s3.locate(uuid.uuid4().hex)


def uploader(spool: Path, target: Location, fuse: Fuse | None = None) -> Uploader:
    """An uploader that has continued the capture, and after that burns this fuse."""
    spool.mkdir(exist_ok=True)
    fuse = fuse or Fuse(1 << 30, before=True)
    fuse.lit = False
    found = Uploader(spool, Fused(target, fuse), compress=True, pauses=(0.0,))
    fuse.lit = True
    return found


def publish(found: Uploader, recorder: Recorder) -> None:
    work = found.work(recorder)
    if work is not None:
        found.publish(work)


def record_all(found: Uploader, recorder: Recorder, frames: Sequence[bytes]) -> None:
    """Record and upload frames to their end."""
    for taken, frame in enumerate(frames):
        recorder.take_frame(frame)
        if taken % 100 == 0:
            publish(found, recorder)
    recorder.close()
    publish(found, recorder)
    assert found.waiting == 0


@pytest.mark.parametrize("found", STREAMS[::2], ids=str)
def test_killed_at_any_operation(s3: ObjectStore, target: Location, tmp_path: Path, found: Capture) -> None:
    rng, groups = random.Random(str(found)), transactions(found)
    acknowledged, spool, kills = 0, tmp_path / "spool", 0
    while True:
        fuse = Fuse(rng.randrange(1, 5 + kills), before=rng.random() < 0.5)
        uploading = uploader(spool, target, fuse)
        assert uploading.position >= acknowledged
        recorder = Recorder(spool, {}, rotation=Rotation(size=rng.choice([4000, 10_000]), sync_size=1500))
        resumed = recorder.safe
        acknowledged = max(acknowledged, uploading.position)
        rest = [frame for group in groups if end_of(group) > resumed for frame in group]
        try:
            for number, frame in enumerate(rest, 1):
                recorder.take_frame(frame)
                if number % 20 == 0 or rng.random() < 0.02:
                    publish(uploading, recorder)
                    acknowledged = uploading.position
            recorder.close()
            publish(uploading, recorder)
            break
        except Killed:
            kills += 1
            acknowledged = max(acknowledged, uploading.position)
            crash(recorder, spool, rng)
            check_readers(s3, target, found, acknowledged)
            if rng.random() < 0.3:
                spool = tmp_path / f"spool {kills}"
    assert kills > 3
    again = here("decode", "-o", "json", *s3.arguments, str(target))
    assert (again.status, again.stderr) == (0, "")
    assert again.stdout == shown(found, len(groups))


def check_readers(s3: ObjectStore, target: Location, stream: Capture, acknowledged: int) -> None:
    """Everything that was acknowledged can be read, and what is read is whole transactions from the start."""
    if read_state(target) is NO_STATE:
        assert acknowledged == 0
        return
    found = here("decode", "-o", "json", "--strict", *s3.arguments, str(target))
    assert (found.status, found.stderr) == (0, "")
    groups = transactions(stream)
    for count in range(len(groups) + 1):
        if count and end_of(groups[count - 1]) < acknowledged:
            continue
        if len(shown(stream, count)) == len(found.stdout):
            assert shown(stream, count) == found.stdout
            return
    raise AssertionError(f"{len(found.stdout)} bytes of output are not those of whole transactions")


@cache
def shown(stream: Capture, count: int) -> bytes:
    """What a dump of the first transactions of a stream gives."""
    return decode(input=lengths(frame for group in transactions(stream)[:count] for frame in group)).stdout


def record_some(spool: Path, target: Location, frames: list[bytes]) -> None:
    """Record and upload these frames."""
    uploading = uploader(spool, target)
    recorder = Recorder(spool, {}, rotation=SMALL)
    take(recorder, frames)
    recorder.close()
    publish(uploading, recorder)


def parts(count: int) -> list[list[bytes]]:
    """The frames of a stream in so many parts of whole transactions."""
    groups = transactions(STREAMS[0])
    size = len(groups) // count
    return [[frame for group in groups[n * size : (n + 1) * size] for frame in group] for n in range(count)]


@pytest.mark.parametrize("before", [True, False])
def test_an_operation_without_an_answer_is_repeated(
    s3: ObjectStore, target: Location, tmp_path: Path, before: bool
) -> None:
    """Whether it was done or not: that cannot be known."""
    [frames] = parts(1)
    record_some(tmp_path / "whole", target / "whole", frames)
    expected = here("decode", "-o", "json", *s3.arguments, str(target / "whole"))
    number, used = 0, 0
    while number == used:
        number += 1
        place, spool = target / str(number), tmp_path / str(number)
        fuse = Fuse(number, before=before, error=UnavailableOutput)
        uploading = uploader(spool, place, fuse)
        recorder = Recorder(spool, {}, rotation=Rotation(size=30_000))
        record_all(uploading, recorder, frames)
        found = here("decode", "-o", "json", *s3.arguments, str(place))
        assert (found.status, found.stderr, found.stdout) == (0, "", expected.stdout)
        used += fuse.left <= 0
    assert used > 5


@pytest.mark.parametrize("step", [1, 10, 13, 26, 31][::2])
def test_only_whole_transactions_count(s3: ObjectStore, target: Location, tmp_path: Path, step: int) -> None:
    """Each transaction takes several segments, and begins in one that has the end of another."""
    uploading, counted, taken = uploader(tmp_path / "a", target), {""}, 0
    recorder = Recorder(tmp_path / "a", {}, rotation=Rotation(size=2000))
    for xid in range(1, 6):
        lsn = 0x1000 * xid
        row = encode.insert(encode.text(b"1"), encode.text(b"x" * 200))
        for message in [encode.begin(xid, lsn), encode.relation(), *[row] * 20, encode.commit(lsn, lsn + 8)]:
            recorder.take_frame(encode.frame(message, lsn))
            taken += 1
            if taken % step == 0:
                publish(uploading, recorder)
            state = read_state(target)
            if state is not NO_STATE and state.last not in counted:
                counted.add(state.last)
                found = here("decode", "-o", "json", "--strict", *s3.arguments, str(target))
                assert (found.status, found.stderr) == (0, "")
                assert len(found.lines) % 20 == 0
    recorder.close()
    publish(uploading, recorder)
    assert len(here("decode", "-o", "json", "--strict", *s3.arguments, str(target)).lines) == 100


def test_an_old_spool_is_refused_after_another_one_continued(target: Location, tmp_path: Path) -> None:
    one, two, _ = parts(3)
    record_some(tmp_path / "a", target, one)
    recorder = Recorder(tmp_path / "a", {}, rotation=Rotation(size=4000))
    take(recorder, two)
    recorder.close()
    record_some(tmp_path / "b", target, two)
    with pytest.raises(OptionError, match="does not continue the capture"):
        uploader(tmp_path / "a", target)
    with pytest.raises(OptionError, match="does not continue the capture"):
        record_some(tmp_path / "b", target / "elsewhere", [])


def test_two_recorders_begin_at_once(target: Location, tmp_path: Path) -> None:
    first, second = uploader(tmp_path / "a", target), uploader(tmp_path / "b", target)
    recorders = [Recorder(tmp_path / name, {}, rotation=SMALL) for name in "ab"]
    publish(second, recorders[1])
    with pytest.raises(OutputError, match="another process records into"):
        publish(first, recorders[0])


def test_a_copied_capture_is_continued(s3: ObjectStore, target: Location, tmp_path: Path) -> None:
    """`aws s3 sync` of a local capture, with or without capture.json."""
    one, two, _ = parts(3)
    (tmp_path / "local").mkdir()
    recorder = Recorder(tmp_path / "local", {"pgtail.slot": "cap"}, rotation=SMALL)
    take(recorder, one)
    recorder.close()
    for number, without in enumerate((True, False)):
        copied = target / str(number)
        for path in (tmp_path / "local").iterdir():
            if not (without and path.name == FILE):
                (copied / path.name).create(path.read_bytes())
        record_some(tmp_path / f"spool {number}", copied, two)
        take(recorder, two if not without else ())
    recorder.close()
    local = read(tmp_path / "local")
    for number in range(2):
        remote = here("decode", "-o", "json", *s3.arguments, str(target / str(number)))
        assert (remote.status, remote.stdout) == (0, local.stdout)


def test_segments_are_listed_behind_a_name(target: Location, tmp_path: Path) -> None:
    record_some(tmp_path / "a", target, parts(1)[0])
    found = segments(target)
    assert len(found) > 4
    for number, one in enumerate(found):
        assert listed(target, read_state(target), str(one.name)) == found[number + 1 :]
        assert read_head(one.location).parameters[PREDECESSOR] == (str(found[number - 1].name) if number else "")


def test_segments_that_do_not_count_are_not_read(target: Location, tmp_path: Path) -> None:
    record_some(tmp_path / "a", target, parts(1)[0])
    state = read_state(target)
    found = segments(target)
    earlier = state._replace(uploaded=str(found[2].name))
    assert listed(target, earlier) == found[:3]
    assert listed(target, earlier._replace(uploaded=None)) == found
    names = frozenset(str(one.name) for one in found[1:3])
    assert listed(target, state._replace(discarded=names)) == [found[0], *found[3:]]
    pruned = Pruned(str(found[1].name), 1)
    assert listed(target, state._replace(discarded=names, pruned=pruned)) == found[3:]
    written = state._replace(discarded=names, announced={str(found[3].name): 64 * "a"})
    assert parse_state(state_json(written), "") == written
    assert written.with_pruned(pruned).discarded == {str(found[2].name)}


def test_a_name_that_another_recorder_announced_is_not_used(target: Location, tmp_path: Path) -> None:
    """That one has not uploaded it yet, and its spool is refused, or emptied by --wait."""
    [frames] = parts(1)
    first = uploader(tmp_path / "a", target, Fuse(3, before=True))
    recorder = Recorder(tmp_path / "a", {}, rotation=SMALL)
    take(recorder, frames)
    recorder.close()
    with pytest.raises(Killed):
        publish(first, recorder)
    state = read_state(target)
    announced = set(state.announced)
    assert len(announced) > 4
    assert not segments(target)
    record_some(tmp_path / "b", target, frames)
    state = read_state(target)
    assert (state.announced, state.discarded) == ({}, frozenset(announced))
    assert not {str(one.name) for one in segments(target)} & announced
    with pytest.raises(OptionError, match="does not continue the capture"):
        uploader(tmp_path / "a", target)
    taken = Uploader(tmp_path / "a", target, compress=True, takes_over=True)
    assert (taken.waiting, taken.position) == (0, state.position)


class Vanishing(Fused):
    """A location whose segments another recorder deletes as soon as they are listed."""

    def list(self, after: str = "") -> list[Entry]:
        found = super().list(after)
        for entry in found:
            if entry.name.endswith(".pgcap"):
                (self._location / entry.name).delete()
        return found


def test_a_segment_that_is_deleted_when_it_is_found(target: Location, tmp_path: Path) -> None:
    [frames] = parts(1)
    record_some(tmp_path / "a", target, frames)
    late = SegmentName(1 << 60, 1)
    (target / f"{late}.pgcap").create(b"not the end of a gzip file")
    begun = uploader(tmp_path / "b", Vanishing(target, Fuse(1 << 30, before=True)))
    publish(begun, Recorder(tmp_path / "b", {}, rotation=SMALL))
    state = read_state(target)
    assert state.discarded == {str(late)}


def test_a_recorder_goes_on_with_what_it_announced(target: Location, tmp_path: Path) -> None:
    [frames] = parts(1)
    first = uploader(tmp_path / "a", target, Fuse(5, before=False))
    recorder = Recorder(tmp_path / "a", {}, rotation=SMALL)
    take(recorder, frames)
    recorder.close()
    names = {path.name for path in (tmp_path / "a").glob("*.pgcap")}
    with pytest.raises(Killed):
        publish(first, recorder)
    again = uploader(tmp_path / "a", target)
    publish(again, Recorder(tmp_path / "a", {}, rotation=SMALL))
    state = read_state(target)
    assert (state.announced, state.discarded) == ({}, frozenset())
    assert {one.location.name for one in segments(target)} == names
