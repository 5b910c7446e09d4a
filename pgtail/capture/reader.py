"""Lists the segments of a capture in the order of the stream, and finds where to start and how far they reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pgtail.capture.contents import SegmentContents, begin_time
from pgtail.capture.format import CLOSED, OPEN, SNAPSHOT_CLOSED, SegmentName
from pgtail.capture.segment import SegmentFrames, read_head
from pgtail.capture.state import NO_STATE, CaptureState, SnapshotFile, TableSnapshot, not_recorded, read_state
from pgtail.changes.commit_range import MARGIN
from pgtail.errors import InputError
from pgtail.pgoutput.scalars import Point
from pgtail.storage import Location


class SegmentFile(NamedTuple):
    """One segment of a capture, of `size` bytes when it was listed. `open`: it is not closed yet."""

    location: Location
    name: SegmentName
    open: bool
    size: int
    snapshot: TableSnapshot | None = None
    """The snapshot that it is a part of; None for a segment of the stream."""
    listed: SnapshotFile | None = None
    """The entry of capture.json for a segment of a snapshot."""
    contents: SegmentContents | None = None
    """Its contents, if they were read."""
    there: bool = True
    """Whether its file existed when it was listed: a segment of a snapshot may be missing."""

    @property
    def begins_snapshot(self) -> bool:
        return self.snapshot is not None and self.name == self.snapshot.segments[0].name


def segments(capture: Location) -> list[SegmentFile]:
    """The segments of a capture; empty if nothing was recorded yet.

    Includes the segments of snapshots that count, in their places; files of these may be missing. Reads the folder, and
    no segment. Raises InputError if it contains no capture or cannot be read.
    """
    return listed(capture, read_state(capture))


def listed(capture: Location, known: CaptureState, after: str = "") -> list[SegmentFile]:
    """As segments(), with the capture's state, which must be read before: a recorder may be writing.

    Leaves out segments up to the name `after`, and the files of segments that do not count.
    """
    named: dict[SegmentName, SegmentFile] = {}
    copies = set[str]()
    after = max(after, known.pruned_segment)
    for entry in capture.list(f"{after}{OPEN}" if after else ""):  # NAME.pgcap sorts before a leftover NAME.pgcap.part
        ending = OPEN if entry.name.endswith(OPEN) else CLOSED
        name = SegmentName.of_file(entry.name, ending)
        if name is not None and known.has(str(name)):
            named.setdefault(name, SegmentFile(capture / entry.name, name, ending == OPEN, entry.size))
        elif entry.name.endswith(SNAPSHOT_CLOSED):
            copies.add(entry.name)
    if not named and not after and known is NO_STATE:
        there = _inside(capture)
        raise InputError(f"holds no capture: there is no segment (*.pgcap) in it{there}", source=str(capture))
    for segment in snapshot_segments(capture, known):
        if str(segment.name) > after:
            named[segment.name] = segment._replace(there=segment.location.name in copies)
    return [segment for _, segment in sorted(named.items())]


def _inside(folder: Location) -> str:
    """A hint for an error: which folder in a local one is a capture; empty if none is."""
    found = None if folder.path is None else min(folder.path.glob(f"*/*{CLOSED}"), default=None)
    return "" if found is None else f", but in {found.parent}"


def missing_at_end(files: Sequence[SegmentFile], known: CaptureState) -> str:
    """The last segment of a capture with this state if it is not among its files; empty if it is."""
    last = next((str(file.name) for file in reversed(files) if file.snapshot is None), known.pruned_segment)
    return known.last if known.last > last else ""


def snapshot_segments(capture: Location, known: CaptureState) -> list[SegmentFile]:
    """The segments of the snapshots that count, as the capture's state lists them: reads no folder."""
    return [
        SegmentFile(capture / f"{part.name}{SNAPSHOT_CLOSED}", part.name, False, part.bytes, snapshot, part)
        for snapshot in known.counting
        for part in snapshot.segments
    ]


def refreshed(capture: Location, segment: SegmentFile) -> SegmentFile | None:
    """The segment under its present name: a recorder may have closed it, or recovery removed it (None)."""
    if not segment.open or segment.location.head() is not None:
        return segment
    closed = capture / f"{segment.name}{CLOSED}"
    entry = closed.head()
    return None if entry is None else SegmentFile(closed, segment.name, False, entry.size)


def closed_names(directory: Path) -> list[SegmentName]:
    """The names of the closed segments of the stream in a local directory."""
    return [name for path in directory.glob(f"*{CLOSED}") if (name := SegmentName.of_file(path.name)) is not None]


class Reach(NamedTuple):
    """The closed segments of a capture have everything up to the LSN `position`; `head` has parameters of segments."""

    position: int
    head: Mapping[str, str]


def reach_of(capture: Location) -> Reach:
    """How far a capture goes now. Raises InputError if its state is damaged, or if it has none."""
    state = read_state(capture)
    if state is NO_STATE:
        raise not_recorded(capture)
    last = SegmentName.parse(state.last)
    if last is None or (capture / f"{last}{CLOSED}").head() is not None:
        return Reach(state.position, state.head)
    return Reach(min(state.position, last.position), state.head)


def last_head(capture: Location) -> Mapping[str, str]:
    """The parameters of a capture's last segment, or empty."""
    known = read_state(capture)
    if known is not NO_STATE:
        return known.head
    names = [entry.name for entry in capture.list() if entry.name.endswith(CLOSED)]
    return read_head(capture / names[-1]).parameters if names else {}


def first_segment(listed: Sequence[SegmentFile], since: Point) -> int:
    """The index of a segment before which no segment has transactions `since` then.

    For a time it opens about log2 of the number of segments. The first transaction of that segment was committed at
    least MARGIN before `since`, so all before it were committed before `since`.
    """
    if since.lsn is not None:
        earlier = [index for index, segment in enumerate(listed) if segment.name.position < since.lsn]
        last = earlier[-1] if earlier else 0
        return last + 1 if earlier and listed[last].snapshot is not None else last
    if since.time is None:
        return 0
    low, high = 0, len(listed)
    while high - low > 1:
        middle = place = (low + high) // 2
        while place < high and (time := first_time(listed[place].location)) is None:
            place += 1
        if place < high and time is not None and time < since.time - MARGIN:
            low = place
        else:
            high = middle
    return low


def first_time(segment: Location) -> int | None:
    """The commit time of a segment's first transaction; None if it has none, or if it is damaged before that."""
    try:
        with segment.open() as file:
            frames = SegmentFrames(file, str(segment))
            for start, stop in frames:
                if (time := begin_time(frames.buf[start:stop])) is not None:
                    return time
    except InputError:
        pass
    return None
