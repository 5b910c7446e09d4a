"""A part of a snapshot that is written again: its segments may have other boundaries, or its table another name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pgtail.capture.format import SNAPSHOT_CLOSED, SnapshotPart, copy_data
from pgtail.capture.recorder import Recorder
from pgtail.capture.snapshot_writer import SnapshotWriter
from pgtail.capture.state import TableSnapshot
from pgtail.postgres import table_copy
from pgtail.storage import Location
from pgtail.storage.local import LocalLocation
from tests.capture.test_snapshot import recorded
from tests.capture.test_snapshot_upload import opened
from tests.capture.test_snapshots import PLACE
from tests.capture.test_upload import target, uploader
from tests.support import encode
from tests.support.run import here
from tests.support.servers import Database
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


def test_another_table_that_has_the_name_for_a_moment(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schema is renamed without a lock on its tables: between the lock of a table and its COPY, too."""
    statement, done = table_copy.copy_statement, list[bool]()

    def renamed(*arguments: Any, **options: Any) -> str:
        if not done:
            done.append(True)
            database.execute("ALTER SCHEMA one RENAME TO three", "ALTER SCHEMA two RENAME TO one")
        return statement(*arguments, **options)

    for schema in ("one", "two"):
        database.execute(f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.t (id int PRIMARY KEY, v text)")
        database.execute(f"INSERT INTO {schema}.t SELECT i, repeat('{schema}', 1000) FROM generate_series(1, 9) i")
    database.execute("CREATE PUBLICATION p FOR TABLE one.t")
    monkeypatch.setattr(table_copy, "copy_statement", renamed)
    said = recorded(database, tmp_path / "c")
    assert "another table had its name for a moment, and was read" in said
    assert "1 table copied: 9 rows" in said
    found = here("decode", "-o", "json", tmp_path / "c").objects
    assert {(one["schema"], one["new"]["v"][:3]) for one in found} == {("three", "one")}
