"""Decides which snapshots of tables a continued capture has: listed, complete, and at a boundary of segments."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pgtail.capture.format import CLOSED, snapshot_name
from pgtail.capture.reader import closed_names
from pgtail.capture.segment import position_of
from pgtail.capture.state import StateFile, TableSnapshot
from pgtail.storage import Location
from pgtail.storage.local import LocalLocation


def open_state(directory: Path, position: int, *, spool: bool = False, dry_run: bool = False) -> StateFile:
    """Open the state of a capture that continues at this LSN, after recover().

    Unlists the snapshots that cannot count, and removes the files of those that are not listed: no SnapshotWriter may
    be open. The files of the snapshots that a `spool` lists are in its object store: Uploader has examined them.
    With `dry_run` no file is changed. Raises InputError, OutputError.
    """
    state, place = StateFile(directory, dry_run=dry_run), LocalLocation(directory)
    drop_uncut(state, directory, position)
    if not spool:
        missing = {*state.now.snapshots} - {*complete(place, state.now.snapshots)}
        state.drop("segments of it are missing", lambda snapshot: snapshot in missing)
    if not dry_run:
        remove_unlisted(place, () if spool else state.now.snapshots)
    return state


def complete(place: Location, snapshots: Iterable[TableSnapshot]) -> list[TableSnapshot]:
    """The snapshots that have all of their segments in this folder, with the listed sizes. Raises InputError."""
    snapshots = list(snapshots)
    sizes = {snapshot_name(entry.name): entry.size for entry in place.list()} if snapshots else {}
    return [snapshot for snapshot in snapshots if all(sizes.get(part.name) == part.bytes for part in snapshot.segments)]


def unlisted(place: Location, snapshots: Iterable[TableSnapshot]) -> list[Location]:
    """The segments of all other snapshots in this folder, finished or not. Raises InputError."""
    names = {part.name for snapshot in snapshots for part in snapshot.segments}
    return [
        place / entry.name
        for entry in place.list()
        if (name := snapshot_name(entry.name)) is not None and (name not in names or not entry.name.endswith(CLOSED))
    ]


def remove_unlisted(place: Location, snapshots: Iterable[TableSnapshot]) -> None:
    """Delete what unlisted() finds. Raises InputError, OutputError."""
    for file in unlisted(place, snapshots):
        file.delete()


def drop_uncut(state: StateFile, directory: Path, position: int) -> None:
    """Unlist the snapshots whose place is inside of a segment of a capture that continues at this LSN.

    Examines only those that the state has not reached: a recorder may have been killed before it wrote that. Raises
    InputError, OutputError.
    """
    uncut = {lsn for lsn in state.places if state.now.position < lsn <= position and not _was_cut(directory, lsn)}
    state.drop("the capture went past its place without a new segment", lambda snapshot: snapshot.lsn in uncut)


def _was_cut(directory: Path, lsn: int) -> bool:
    """Whether no segment spans an LSN."""
    names = [name for name in closed_names(directory) if name.position < lsn]
    return not names or position_of(LocalLocation(directory / f"{max(names)}{CLOSED}")) <= lsn
