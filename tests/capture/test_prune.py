"""Pruning a capture: what is left decodes as before, beside a recorder, and killed at any operation."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pytest

from pgtail.capture.contents import read_contents
from pgtail.capture.prune import Bound, Prunable, prune
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.capture.segment import read_head
from pgtail.capture.state import FILE, Pruned, read_state
from pgtail.storage import Location
from pgtail.storage.local import LocalLocation
from tests.capture.test_recovery import STREAMS, transactions
from tests.capture.test_snapshots import PLACE, ROW, new, stream
from tests.capture.test_upload import Fuse, Fused, Killed, publish, uploader
from tests.support.captures import SMALL, data_frames, record, segments, take
from tests.support.corpus import Capture
from tests.support.object_store import ObjectStore
from tests.support.run import Result, decode, here
from tests.support.snapshots import contents

SHORT = Rotation(size=60_000, sync_size=1500, age=0)
"""A segment ends with each tick of the clock outside of transactions."""


def take_groups(recorder: Recorder, groups: list[list[bytes]]) -> None:
    """Record transactions, in segments of a few of them."""
    for number, group in enumerate(groups):
        take(recorder, group)
        if number % 4 == 3:
            recorder.tick()


def lengths_of(groups: list[list[bytes]]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for group in groups for frame in group)


def is_part(lines: list[bytes], everything: list[bytes]) -> bool:
    """Whether lines follow each other in the same way in others."""
    first = everything.index(lines[0])
    return lines == everything[first : first + len(lines)]


def prunable(place: Location, count: int = 1000) -> Pruned | None:
    """The note of a plan that is asked to remove so many segments."""
    return Prunable(place).plan([Bound(count)], lasting=True).pruned


def name_of(path: Path) -> str:
    """The name of the segment."""
    return path.name.partition(".")[0]


def shown(place: str | Path, *options: str) -> Result:
    found = here("decode", "-o", "json", *options, place)
    assert found.status == 0, found.stderr
    return found


def is_whole(place: str | Path, *options: str) -> bool:
    return here("capture", "verify", *options, place).status == 0


@pytest.mark.parametrize("gone", [False, True])
def test_the_open_segment_ends_while_one_plans(tmp_path: Path, gone: bool) -> None:
    """The recorder has renamed it, or it was removed after a crash: then it is not known how it begins."""
    groups = transactions(STREAMS[0])
    recorder = Recorder(tmp_path, {}, rotation=Rotation(size=1 << 30, age=1e9))
    for group in groups[:3]:
        take(recorder, group)
        recorder.follow({"pgtail.slot": str(len(segments(tmp_path)))})
    take(recorder, groups[3])
    recorder.sync()
    capture = Prunable(LocalLocation(tmp_path))
    assert [one.open for one in capture.stream] == [False, False, False, True]
    recorder.close()
    if gone:
        segments(tmp_path)[-1].unlink()
    assert len(capture.plan([Bound(9)], lasting=True).segments) == 3 - gone


@pytest.mark.parametrize(("found", "compress"), [(STREAMS[0], True), (STREAMS[0], False), (STREAMS[2], True)], ids=str)
def test_what_is_left_decodes_as_before(tmp_path: Path, seed: random.Random, found: Capture, *, compress: bool) -> None:
    """Pruned again and again, each time as far as possible: so that it begins between transactions."""
    recorder = Recorder(tmp_path, {}, rotation=SHORT, compress=compress)
    take_groups(recorder, transactions(found))
    recorder.close()
    lines, files, place = decode(tmp_path).lines, segments(tmp_path), LocalLocation(tmp_path)
    possible = [count for count in range(len(files)) if can_begin(files, count)] if compress else []
    pruned = 0
    for wanted in sorted(seed.sample(range(1, len(files) + 5), 4)):
        plan = Prunable(place).plan([Bound(wanted - pruned)], lasting=True)
        removed = decode(*files[pruned : pruned + len(plan.segments)]).lines if plan.segments else []
        prune(place, plan.pruned)
        pruned += len(plan.segments)
        assert segments(tmp_path) == files[pruned:]
        left = shown(tmp_path)
        assert removed + left.lines == lines
        assert left.stderr.startswith("pgtail: note: ") == (pruned > 0)
        assert is_whole(tmp_path)
        lines = left.lines
        if compress:
            assert pruned == max(count for count in possible if count <= wanted)
    assert pruned


def can_begin(files: list[Path], count: int) -> bool:
    """Whether a capture can begin after so many segments."""
    known = [one for path in files[:count] if (one := read_contents(LocalLocation(path))) is not None]
    prepared = {one for contents_ in known for one in contents_.prepared}
    ended = {one for contents_ in known for one in contents_.outcomes}
    return prepared <= ended and read_head(LocalLocation(files[count])).transaction is None


def test_a_prepared_transaction_is_kept_until_it_has_its_outcome(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, {}, rotation=SHORT)
    take_groups(recorder, transactions(STREAMS[2]))
    recorder.close()
    place = LocalLocation(tmp_path)
    known = [read_contents(LocalLocation(path)) for path in segments(tmp_path)]
    begin, one = next((number, one) for number, one in enumerate(known) if one is not None and one.prepared)
    plan = Prunable(place).plan([Bound(begin + 1)], lasting=True)
    assert len(plan.segments) <= begin
    assert plan.why in [f"{one.gid!r} is prepared, and has no outcome yet" for one in one.prepared]
    assert len(Prunable(place).plan([Bound(1000)], lasting=True).segments) > begin


def test_beside_a_recorder_that_goes_on(tmp_path: Path) -> None:
    """The recorder keeps the note, also after a restart; the last segment stays, closed or not."""
    groups, place = transactions(STREAMS[0]), LocalLocation(tmp_path)
    recorder = Recorder(tmp_path, {}, rotation=SHORT)
    tables = [frame for group in groups for frame in group if frame[25] in b"RY"]
    for start in range(0, len(groups), 16):
        take_groups(recorder, groups[start : start + 16])
        prune(place, prunable(place))
        if start == 32:
            recorder.close()
            recorder = Recorder(tmp_path, {}, rotation=SHORT)
            take(recorder, tables)  # as a server sends every table's description again
    recorder.close()
    prune(place, prunable(place))
    state = read_state(place)
    assert state.pruned is not None
    assert is_part(shown(tmp_path).lines, decode(input=lengths_of(groups)).lines)
    assert is_whole(tmp_path)


def test_a_tables_last_snapshot_and_what_follows_it_stay(tmp_path: Path) -> None:
    new(tmp_path)
    stream(tmp_path, 0x100, 0x200, PLACE + 0x100)
    recorder = Recorder(tmp_path, {}, rotation=SMALL)
    take(recorder, [])
    recorder.close()
    place = LocalLocation(tmp_path)
    before = contents(place)
    plan = Prunable(place).plan([Bound(1000)], lasting=True)
    assert (len(plan.segments), plan.snapshots) == (1, [])
    prune(place, plan.pruned)
    assert contents(place) == before[2:]
    assert Prunable(place).plan([Bound(1000)], lasting=True).pruned is None
    stream(tmp_path, PLACE + 0x200, PLACE + 0x300)
    stream(tmp_path, PLACE + 0x400)
    kept = Prunable(place).plan([Bound(1000)], lasting=True)
    assert (kept.pruned, "is the last one of its table, and needs what follows it" in kept.why) == (None, True)
    plan = Prunable(place).plan([Bound(1000)], lasting=False)
    assert len(plan.snapshots) == 4
    prune(place, plan.pruned)
    assert [lsn for lsn, _ in contents(place)] == [PLACE + 0x400]
    assert list(tmp_path.glob("*.snapshot.pgcap")) == []
    state = read_state(place)
    assert state.snapshots == ()
    stream(tmp_path, PLACE + 0x500)
    assert ROW[0] in str(contents(place)[-1])


class Replaced(Fused):
    """A store whose operations burn a fuse."""

    replaces = True

    def __truediv__(self, name: str) -> Replaced:
        return Replaced(self._location / name, self._fuse)


def test_killed_at_any_operation_beside_a_recorder_in_a_store(
    s3: ObjectStore, tmp_path: Path, seed: random.Random
) -> None:
    """Readers see all of what is left at any time; the recorder goes on; the next prune removes what was left over."""
    target: Location = s3.locate(uuid.uuid4().hex)
    groups = transactions(STREAMS[0])
    everything = decode(input=lengths_of(groups)).lines
    uploading = uploader(tmp_path / "spool", target)
    recorder = Recorder(tmp_path / "spool", {}, rotation=SHORT)
    kills, size = 0, len(groups) // 8
    for start in range(0, len(groups), size):
        take_groups(recorder, groups[start : start + size])
        publish(uploading, recorder)
        fused = Replaced(target, Fuse(seed.randrange(1, 4), before=seed.random() < 0.5))
        try:
            prune(fused, prunable(target, 3))
        except Killed:
            kills += 1
        assert is_part(shown(str(target), *s3.arguments).lines, everything)
    recorder.close()
    publish(uploading, recorder)
    assert kills
    assert is_whole(str(target), *s3.arguments)
    prune(target, prunable(target))
    state = read_state(target)
    assert state.pruned is not None
    assert all(entry.name > state.pruned.segment for entry in target.list() if entry.name != FILE)
    assert shown(str(target), *s3.arguments).lines[-1] == everything[-1]


def test_a_spool_that_kept_a_segment_which_was_uploaded_and_pruned_continues(s3: ObjectStore, tmp_path: Path) -> None:
    """A recorder was killed after an upload, and before it removed the segment from its spool."""
    target, spool = s3.locate(uuid.uuid4().hex), tmp_path / "spool"
    groups = transactions(STREAMS[0])
    uploading = uploader(spool, target)
    recorder = Recorder(spool, {}, rotation=SHORT)
    take_groups(recorder, groups[:30])
    recorder.close()
    kept = {path: path.read_bytes() for path in segments(spool)}
    publish(uploading, recorder)
    prune(target, prunable(target))
    for path, data in kept.items():
        path.write_bytes(data)
    uploader(spool, target)
    assert segments(spool) == []
    refused = here("capture", "prune", "--keep", "1s", spool)
    assert (refused.status, f"is the spool of {target}: prune that" in refused.stderr) == (2, True)


def test_the_command(tmp_path: Path) -> None:
    record(tmp_path, data_frames(STREAMS[0]), SMALL)
    files = segments(tmp_path)
    nothing = here("capture", "prune", tmp_path)
    assert (nothing.status, "--before TIME|LSN, --keep TIME or --applied OUT" in nothing.stderr) == (2, True)
    dry = here("capture", "prune", "--keep", "1s", "-v", tmp_path)
    count = dry.stderr.count(".pgcap\n")
    assert (dry.status, segments(tmp_path)) == (0, files)
    assert f"{count} segments would be removed" in dry.stdout.decode()
    assert "nothing was removed: --delete does that" in dry.stderr
    *lines, summary = here("capture", "prune", "--keep", "1s", "-o", "json", tmp_path).objects
    assert lines == [
        {"kind": "segment", "segment": name_of(path), "bytes": path.stat().st_size} for path in files[:count]
    ]
    assert [summary[key] for key in ("kind", "removed", "segments", "snapshots")] == ["prune", False, count, 0]
    assert summary["bytes"] == sum(line["bytes"] for line in lines)
    done = here("capture", "prune", "--keep", "1s", "--delete", tmp_path)
    assert segments(tmp_path) == files[count:]
    assert done.stdout.decode() == dry.stdout.decode().replace("would be removed", "removed")
    begin = done.stdout.decode().split()[-1]
    assert f"it was pruned: what was committed up to {begin} is no longer in it" in shown(tmp_path).stderr
    assert f"pruned up to {begin}" in here("capture", "list", tmp_path).stdout.decode()
    last = read_head(LocalLocation(files[count])).parameters["pgtail.segment"]
    since = here("decode", "-o", "json", "--since", f"{int(last[:8], 16):X}/{int(last[8:16], 16) + 0x10:X}", tmp_path)
    assert since.status == 0
    again = here("capture", "prune", "--before", begin, "--delete", tmp_path)
    assert again.stdout.decode() == (
        f"{tmp_path}: nothing to remove: each segment has something to keep, or is the last one\n"
    )
    assert summary["pruned"] == {"segment": name_of(files[count - 1]), "position": begin}
    [nothing_more] = here("capture", "prune", "--before", begin, "-o", "json", "--delete", tmp_path).objects
    assert (nothing_more["removed"], nothing_more["pruned"]) == (False, None)
    (tmp_path / FILE).unlink()
    assert here("capture", "prune", "--keep", "1s", tmp_path).status == 1
