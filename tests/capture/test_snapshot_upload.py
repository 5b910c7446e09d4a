"""Snapshots of a capture in an object store: in bounded local space, killed at any operation, on several machines."""

from __future__ import annotations

import random
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pgtail.capture.format import SNAPSHOT_CLOSED, SnapshotPart, copy_data
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.capture.recovery import recover
from pgtail.capture.snapshot_writer import SnapshotWriter
from pgtail.capture.snapshots import open_state
from pgtail.capture.state import NO_STATE, StateFile, TableSnapshot, read_state
from pgtail.capture.upload import Uploader
from pgtail.errors import OutputError
from pgtail.storage import Location
from pgtail.storage.errors import UnavailableOutput
from pgtail.storage.local import LocalLocation
from tests.capture.test_snapshots import PLACE, ROW, check_tables, tables
from tests.capture.test_upload import Fuse, Killed, publish, target, uploader
from tests.support import encode
from tests.support.captures import take
from tests.support.object_store import ObjectStore
from tests.support.run import here
from tests.support.snapshots import HEAD, TINY, Table, contents, expected, frame, transaction, write_all

__all__ = ["target"]


def opened(spool: Path) -> StateFile:
    """The state in a spool, after Uploader() has continued the capture in the store."""
    return open_state(spool, recover(spool, compress=True).position, spool=True)


def copy(
    spool: Path, uploading: Uploader, state: StateFile, some: list[Table], place: int, rotation: Rotation = TINY
) -> None:
    """Copy tables, as a recorder does before it streams."""
    first = 1
    for table in some:
        snapshot, first = table.write(spool, place, first, rotation, uploading)
        state.list_snapshot(snapshot, HEAD)
        uploading.list_snapshots()


def recorded(spool: Path, place: Location, some: list[Table], lsn: int, *ends: int) -> None:
    """Copy tables at an LSN, then record transactions."""
    uploading = uploader(spool, place)
    state = opened(spool)
    copy(spool, uploading, state, some, lsn)
    recorder = Recorder(spool, HEAD, rotation=TINY, state=state)
    for end in ends:
        take(recorder, transaction(end, ROW))
    recorder.close()
    publish(uploading, recorder)


def test_they_count_when_the_store_has_the_stream_up_to_their_place(
    s3: ObjectStore, target: Location, tmp_path: Path
) -> None:
    spool, some = tmp_path / "a", tables(1)
    uploading = uploader(spool, target)
    state = opened(spool)
    copy(spool, uploading, state, some, PLACE)
    assert [path.name for path in spool.iterdir()] == ["capture.json"]
    assert contents(target) == []
    recorder = Recorder(spool, HEAD, rotation=TINY, state=state)
    take(recorder, transaction(0x100, ROW))
    take(recorder, transaction(PLACE, ROW))
    assert contents(target) == []
    recorder.close()
    publish(uploading, recorder)
    wanted = [(0x100, encode.insert(*ROW)), *expected(some, PLACE), (PLACE, encode.insert(*ROW))]
    assert contents(target) == wanted
    found = here("decode", "-o", "json", "--strict", "--verify", *s3.arguments, str(target))
    assert (found.status, found.stderr, len(found.lines)) == (0, "", len(wanted))


def test_another_machine_keeps_what_is_listed(target: Location, tmp_path: Path) -> None:
    first, second = tables(1), tables(2)
    recorded(tmp_path / "a", target, first, PLACE, 0x100)
    recorded(tmp_path / "b", target, second, 2 * PLACE, PLACE, 2 * PLACE)
    wanted = [(0x100, encode.insert(*ROW)), *expected(first, PLACE), (PLACE, encode.insert(*ROW))]
    assert contents(target) == [*wanted, *expected(second, 2 * PLACE), (2 * PLACE, encode.insert(*ROW))]


def test_what_is_not_listed_is_deleted_by_the_next_recorder(target: Location, tmp_path: Path) -> None:
    first, second = tables(1), tables(2)
    recorded(tmp_path / "a", target, first, PLACE, 0x100, PLACE)
    before = {entry.name for entry in target.list()}
    uploading = uploader(tmp_path / "a", target)
    write_all(tmp_path / "a", second, 2 * PLACE, uploader=uploading)
    assert len(target.list()) > len(before)
    recorded(tmp_path / "b", target, [], 0, 2 * PLACE)
    left = {entry.name for entry in target.list() if entry.name.endswith(SNAPSHOT_CLOSED)}
    assert left == {name for name in before if name.endswith(SNAPSHOT_CLOSED)}
    assert len(contents(target)) == len(expected(first, PLACE)) + 3


def test_bounded_local_space(target: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool, most = tmp_path / "a", 0
    uploading = uploader(spool, target)
    state = opened(spool)
    usual = uploading.put_snapshot

    def put_snapshot(path: Path) -> None:
        nonlocal most
        most = max(most, len(list(spool.glob("*.snapshot.*"))))
        usual(path)

    monkeypatch.setattr(uploading, "put_snapshot", put_snapshot)
    many = [Table(number, f"t{number}", [[(str(row), "x" * 90) for row in range(60)]]) for number in range(2)]
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(one.write, spool, PLACE, 1 + 1000 * number, TINY, uploading) for number, one in enumerate(many)
        ]
        for job in jobs:
            state.list_snapshot(job.result()[0], HEAD)
    uploading.list_snapshots()
    Recorder(spool, HEAD, rotation=TINY, state=state, start=PLACE).close()
    assert len(target.list()) > 20
    assert 1 <= most <= 2


@pytest.mark.parametrize("before", [True, False])
def test_an_operation_without_an_answer_is_repeated(target: Location, tmp_path: Path, before: bool) -> None:
    some, number, used = [Table(1, "a", [[("1", "x")]]), Table(2, "b", [[("1", "y")] * 12])], 0, 0
    while number == used:
        number += 1
        place, spool = target / str(number), tmp_path / str(number)
        fuse = Fuse(number, before=before, error=UnavailableOutput)
        uploading = uploader(spool, place, fuse)
        state = opened(spool)
        copy(spool, uploading, state, some, PLACE, Rotation(size=900))
        recorder = Recorder(spool, HEAD, rotation=TINY, state=state)
        take(recorder, transaction(PLACE, ROW))
        recorder.close()
        publish(uploading, recorder)
        assert contents(place) == [*expected(some, PLACE), (PLACE, encode.insert(*ROW))]
        used += fuse.left <= 0
    assert used > 5


def test_stopped_while_the_store_is_not_available(target: Location, tmp_path: Path) -> None:
    spool = tmp_path / "a"
    uploading = uploader(spool, target, Fuse(1, before=True, error=UnavailableOutput))
    uploading.stop()
    with pytest.raises(OutputError, match="stopped before the snapshot was in"):
        write_all(spool, tables(1), PLACE, uploader=uploading)


@pytest.mark.parametrize("seed", range(0, 6, 3))
def test_killed_at_any_operation(target: Location, tmp_path: Path, seed: int) -> None:
    """Each run copies the tables that are not listed yet at a later place, and goes on with the stream."""
    rng = random.Random(seed)
    wanted = {table.relid: table for table in tables(seed, 4)}
    ends = list(range(0x100, 0x10000, 0x100))
    place, kills, spool = 0, 0, tmp_path / "spool"
    while True:
        fuse = Fuse(rng.randrange(1, 10 + 4 * kills), before=rng.random() < 0.5)
        uploading = uploader(spool, target, fuse)
        try:
            state = opened(spool)
            left = [table for relid, table in wanted.items() if relid not in {one.relid for one in state.now.snapshots}]
            place = max(place, recover(spool, compress=True).position) + 0x180
            copy(spool, uploading, state, left, place)
            recorder = Recorder(spool, HEAD, rotation=TINY, state=state)
            for end in ends:
                if recorder.whole <= end <= place + 0x100:
                    take(recorder, transaction(end, ROW))
                    if rng.random() < 0.5:
                        publish(uploading, recorder)
            recorder.close()
            publish(uploading, recorder)
            break
        except Killed:
            kills += 1
            if read_state(target) is not NO_STATE:
                check_tables(target, wanted)
            if rng.random() < 0.4:
                spool = tmp_path / f"spool {kills}"
    assert kills > 0
    assert {*check_tables(target, wanted)} == {relid for relid, table in wanted.items() if table.rows}
    rows = [lsn for lsn, message in contents(target) if message[1:5] == struct.pack(">I", 100)]
    assert rows == [end for end in ends if end < recorder.whole]


@pytest.mark.parametrize("in_store", [False, True])
def test_a_part_that_is_written_again(target: Location, tmp_path: Path, in_store: bool) -> None:
    table = Table(16384, "t", [[(str(number), "x" * 40) for number in range(30)]])
    rows = [copy_data(frame(encode.insert(*row, oid=table.relid), PLACE)) for row in table.rows]
    uploading = uploader(tmp_path, target) if in_store else None
    state = opened(tmp_path)

    def writer() -> SnapshotWriter:
        part, repeated = SnapshotPart(PLACE, table.relid, 0), table.repeated(PLACE)
        return SnapshotWriter(tmp_path, HEAD, part, repeated, first=1, rotation=TINY, uploader=uploading)

    first = writer()
    for row in rows[:20]:
        first.add_rows([row], 1)
    first.abandon()
    again = writer()
    for at in range(0, len(rows), 5):
        again.add_rows(rows[at : at + 5], 5)
    segments = again.finish(frame(encode.commit(PLACE - 1, PLACE), PLACE))
    state.list_snapshot(TableSnapshot(PLACE, 1, table.relid, "public", "t", len(rows), segments), HEAD)
    if uploading is not None:
        uploading.list_snapshots()
    place = LocalLocation(tmp_path) if uploading is None else target
    names = {entry.name for entry in place.list() if entry.name.endswith(SNAPSHOT_CLOSED)}
    assert names == {f"{one.name}{SNAPSHOT_CLOSED}" for one in segments}
    if uploading is None:
        Recorder(tmp_path, HEAD, rotation=TINY, state=state, start=PLACE).close()
        assert contents(place) == expected([table], PLACE)
