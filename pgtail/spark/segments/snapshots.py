"""Finds the new snapshots of tables that captures list, and notes how far a snapshot was read that is read in parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Struct

from pgtail.arrow.segments.survey import Survey
from pgtail.capture.format import SNAPSHOT_CLOSED
from pgtail.capture.state import CaptureState, TableSnapshot
from pgtail.changes.filters import selected
from pgtail.errors import InputError
from pgtail.pgoutput.scalars import lsn_text


class SnapshotKey(NamedTuple):
    """Identifies a snapshot: the table's OID, and the consistent point."""

    relid: int
    lsn: int


class ListedSnapshot(NamedTuple):
    """A snapshot that counts, in the directory of a capture."""

    folder: str
    table: TableSnapshot

    @property
    def key(self) -> SnapshotKey:
        """Equal in every capture that has the snapshot."""
        return SnapshotKey(self.table.relid, self.table.lsn)


class SnapshotSegment(NamedTuple):
    """One segment of a snapshot: its name, its path or URI, and its bytes."""

    snapshot: ListedSnapshot
    name: str
    path: str
    bytes: int


class UnfinishedSnapshot(Struct, frozen=True):
    """A snapshot whose segments up to `last`, with this many rows, are in earlier batches."""

    relid: int
    lsn: int
    folder: str
    last: str
    rows: int


def listed_in(folder: str, state: CaptureState) -> list[ListedSnapshot]:
    """The snapshots that count in a directory with this capture.json."""
    return [ListedSnapshot(folder, one) for one in state.counting]


def segments_of(listed: ListedSnapshot, after: str = "") -> Iterator[SnapshotSegment]:
    """The segments of a snapshot whose names sort after `after`, in order."""
    for segment in listed.table.segments:
        name = str(segment.name)
        if name > after:
            yield SnapshotSegment(listed, name, f"{listed.folder}/{name}{SNAPSHOT_CLOSED}", segment.bytes)


def new_snapshots(
    listed: Iterable[ListedSnapshot],
    applied: Collection[SnapshotKey],
    unfinished: Sequence[UnfinishedSnapshot],
    tables: Sequence[str],
) -> list[SnapshotSegment]:
    """The segments to read of the snapshots that were not applied, of tables that match the globs.

    Each snapshot once: that of the first capture that has it, or of its own capture if it is unfinished.
    """
    begun = {SnapshotKey(one.relid, one.lsn): one for one in unfinished}
    first: dict[SnapshotKey, ListedSnapshot] = {}
    for snapshot in sorted(listed, key=lambda one: (one.key.lsn, one.key.relid, one.folder)):
        if snapshot.key not in begun or begun[snapshot.key].folder == snapshot.folder:
            first.setdefault(snapshot.key, snapshot)
    return [
        segment
        for key, snapshot in first.items()
        if key not in applied and selected(snapshot.table.schema, snapshot.table.table, tables)
        for segment in segments_of(snapshot, begun[key].last if key in begun else "")
    ]


def after_batch(
    read: Sequence[SnapshotSegment], surveys: Mapping[str, Survey], unfinished: Sequence[UnfinishedSnapshot]
) -> tuple[list[UnfinishedSnapshot], list[dict[str, Any]]]:
    """The snapshots that are unfinished after a batch with these segments, and rows of `snapshots` for complete ones.

    Raises InputError if a segment, or the number of a snapshot's rows, is not what its capture says.
    """
    left = {SnapshotKey(snapshot.relid, snapshot.lsn): snapshot for snapshot in unfinished}
    complete = []
    for listed, some in groupby(read, attrgetter("snapshot")):
        segments = list(some)
        before = left.pop(listed.key, None)
        own = [_checked(surveys[segment.path], listed.key) for segment in segments]
        rows = sum(survey.rows for survey in own) + (0 if before is None else before.rows)
        last = segments[-1].name
        if last < str(listed.table.segments[-1].name):
            relid, lsn = listed.key
            left[listed.key] = UnfinishedSnapshot(relid, lsn, listed.folder, last, rows)
            continue
        if rows != listed.table.rows:
            raise InputError(f"{listed.table} has {rows} rows, not {listed.table.rows}", source=listed.folder)
        complete.append(_row(listed, own[-1]))
    return list(left.values()), complete


def _checked(survey: Survey, key: SnapshotKey) -> Survey:
    """A segment, which must have rows of this snapshot and describe its table. Raises InputError."""
    part = survey.snapshot
    if part is None or (part.relid, part.lsn) != key or not survey.relations:
        raise InputError("is no segment of the snapshot for which capture.json lists it", source=survey.path)
    return survey


def _row(listed: ListedSnapshot, survey: Survey) -> dict[str, Any]:
    """The row of `snapshots` for a complete snapshot."""
    table = listed.table
    return {
        "relid": table.relid,
        "schema": table.schema,
        "table": table.table,
        "lsn": lsn_text(table.lsn),
        "position": table.lsn - 1,
        "commit_ts": survey.commit_ts,
        "relation": survey.relations[0]["relation"],
        "rows": table.rows,
        "capture": listed.folder,
    }
