"""Describes the segments of a capture from their ends and capture.json, reading nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from pgtail.capture.contents import READERS, SegmentContents, read_contents
from pgtail.capture.reader import SegmentFile
from pgtail.capture.state import CaptureState, TableSnapshot


class SegmentOverview(Struct, frozen=True):
    """A segment of the stream. `contents` is None if its end has none, or if it is not closed.

    `missing` names the segment before it if that is missing; empty if not, or if unknown. `moved`: the capture begins
    with this segment, and those before it may have been moved away.
    """

    file: SegmentFile
    contents: SegmentContents | None
    missing: str
    moved: bool

    @property
    def incomplete(self) -> bool:
        """Whether the capture lacks a segment here that it should have."""
        return bool(self.missing) and not self.moved


class SnapshotOverview(Struct, frozen=True):
    """The snapshot of a table. `counts`: the capture has reached its place; `missing` of its segments are missing."""

    snapshot: TableSnapshot
    counts: bool
    missing: int

    @property
    def incomplete(self) -> bool:
        return self.missing > 0


def overview(
    files: Sequence[SegmentFile], known: CaptureState, encoding: str
) -> Iterator[SegmentOverview | SnapshotOverview]:
    """Segments and snapshots of a capture with this state and these files, in the order of the stream.

    Names are in this encoding. Snapshots that the capture has not reached come last. Raises InputError.
    """
    waiting = list(known.snapshots)
    lost = [file.snapshot for file in files if not file.there]
    before = known.pruned and known.pruned.segment
    copied = ""

    def contents_of(segment: SegmentFile) -> SegmentContents | None:
        return None if segment.open or segment.snapshot is not None else read_contents(segment.location, encoding)

    with ThreadPoolExecutor(READERS, "contents") as readers:
        for file, contents in zip(files, readers.map(contents_of, files), strict=True):
            if file.snapshot is None:
                missing = "" if contents is None or contents.predecessor == (before or "") else contents.predecessor
                moved = before is None and not "" < copied < missing
                yield SegmentOverview(file, contents, missing, moved)
                before = str(file.name)
            elif file.snapshot in waiting:
                copied = copied or str(file.name)
                waiting.remove(file.snapshot)
                yield SnapshotOverview(file.snapshot, True, lost.count(file.snapshot))
    for snapshot in waiting:
        yield SnapshotOverview(snapshot, False, 0)
