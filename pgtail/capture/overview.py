"""What the segments of a capture have, of what their ends and capture.json say: no other byte is read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pgtail.capture.contents import READERS, SegmentContents, read_contents
from pgtail.capture.reader import SegmentFile, listed
from pgtail.capture.state import CaptureState, TableSnapshot
from pgtail.storage import Location


@dataclass(frozen=True, slots=True)
class SegmentOverview:
    """A segment of the stream: `contents` is None if it does not say what it contains, or is not closed.

    `missing` is the segment before it, if that should be there and is not; empty otherwise, or if it is not known.
    """

    file: SegmentFile
    contents: SegmentContents | None
    missing: str


def overview(capture: Location, known: CaptureState | None, encoding: str) -> Iterator[SegmentOverview | TableSnapshot]:
    """Segments and snapshots of a capture with this state, in the order of the stream; names are in this encoding.

    Snapshots that the capture has not reached come last. Raises InputError.
    """
    files = listed(capture, known)
    waiting = list(() if known is None else known.snapshots)
    before = "" if known is None or known.pruned is None else known.pruned.segment

    def contents_of(one: SegmentFile) -> SegmentContents | None:
        return None if one.open or one.snapshot is not None else read_contents(one.location, encoding)

    with ThreadPoolExecutor(READERS, "contents") as readers:
        for file, contents in zip(files, readers.map(contents_of, files), strict=True):
            if file.snapshot is None:
                missing = "" if contents is None or contents.predecessor == before else contents.predecessor
                yield SegmentOverview(file, contents, missing)
                before = str(file.name)
            elif file.snapshot in waiting:
                waiting.remove(file.snapshot)
                yield file.snapshot
    yield from waiting
