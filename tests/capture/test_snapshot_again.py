"""A part of a snapshot that is written again, as after a lost connection: its segments may have other boundaries."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtail.capture.format import SNAPSHOT_CLOSED, SnapshotPart, copy_data
from pgtail.capture.recorder import Recorder
from pgtail.capture.snapshot_writer import SnapshotWriter
from pgtail.capture.state import TableSnapshot
from pgtail.storage import Location
from pgtail.storage.local import LocalLocation
from tests.capture.test_snapshot_upload import opened
from tests.capture.test_snapshots import PLACE
from tests.capture.test_upload import target, uploader
from tests.support import encode
from tests.support.snapshots import HEAD, TINY, Table, contents, expected, frame

__all__ = ["target"]


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
        first.add([row], 1)
    first.abandon()
    again = writer()
    for at in range(0, len(rows), 5):
        again.add(rows[at : at + 5], 5)
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
