"""Removes the oldest segments of a capture: first a note in capture.json, then the files.

A recorder and readers may be running, and any of them may be killed. The note takes the segments out of the capture,
all at once; files that a killed run left behind are removed by the next one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from pgtail.capture.contents import READERS, PreparedTransaction, SegmentContents, count_contents, read_contents
from pgtail.capture.format import CLOSED, SegmentName, snapshot_name
from pgtail.capture.reader import SegmentFile, listed, refreshed
from pgtail.capture.segment import read_head
from pgtail.capture.state import (
    FILE,
    NO_STATE,
    CaptureState,
    Pruned,
    TableSnapshot,
    locked_state,
    not_recorded,
    parse_state,
    read_state,
    state_json,
    write_state,
)
from pgtail.errors import InputError, OptionError
from pgtail.storage import Conflict, Location


class Bound(Struct, frozen=True):
    """The number of segments of the stream that can be removed, and why no more; `why` may be empty."""

    count: int
    why: str = ""


class PrunePlan(Struct, frozen=True):
    """Segments to remove from the start of the stream, and the snapshots between them.

    `pruned` is for capture.json, None if no segment is removed. `why` says why no more is removed, if that is known.
    """

    segments: Sequence[SegmentFile]
    snapshots: Sequence[TableSnapshot]
    pruned: Pruned | None
    why: str

    @property
    def size(self) -> int:
        """The bytes of the files."""
        return sum(one.bytes for one in self.snapshots) + sum(one.size for one in self.segments)


class Prunable:
    """The present state of a capture whose beginning is to be removed.

    `stream` are its segments without those of snapshots. Raises OptionError where nothing can be removed, InputError.
    """

    def __init__(self, capture: Location) -> None:
        self.capture = capture
        self.state = _state_of(capture)[0]
        self.stream = [one for one in listed(capture, self.state) if one.snapshot is None]

    def plan(self, bounds: Iterable[Bound], *, lasting: bool) -> PrunePlan:
        """Plan to remove as much as all bounds allow, but nothing that the rest needs, nor the last segment.

        With `lasting` the rest has the last snapshot of every table, and all that follows it. Raises InputError.
        """
        closed = sum(not segment.open for segment in self.stream)
        bound = min([*bounds, Bound(min(closed, len(self.stream) - 1))], key=lambda limit: limit.count)
        if lasting:
            bound = min([bound, *self._last_snapshots()], key=lambda limit: limit.count)
        bound = self._between_transactions(bound)
        if bound.count <= 0:
            return PrunePlan((), (), None, bound.why)
        last = self.stream[bound.count - 1]
        pruned = Pruned(str(last.name), _contents_of(last).position)
        kept = self.state.with_pruned(pruned).snapshots
        dropped = [snapshot for snapshot in self.state.snapshots if snapshot not in kept]
        return PrunePlan(self.stream[: bound.count], dropped, pruned, bound.why)

    def before(self, snapshot: TableSnapshot) -> int:
        """How many segments of the stream are before a snapshot."""
        return sum(one.name < snapshot.segments[0].name for one in self.stream)

    def _last_snapshots(self) -> Iterator[Bound]:
        for snapshot in {one.relid: one for one in self.state.snapshots}.values():
            reason = f"{snapshot} is the last one of its table, and needs what follows it"
            yield Bound(self.before(snapshot), f"{reason}; pgtail record --snapshot-table makes a newer one")

    def _between_transactions(self, bound: Bound) -> Bound:
        """Lower a bound so that the rest begins outside of a transaction, and has the prepared ones whole."""
        waiting: dict[PreparedTransaction, None] = {}
        ends = [0]
        with ThreadPoolExecutor(READERS, "contents") as readers:
            for number, contents in enumerate(readers.map(_contents_of, self.stream[: max(bound.count, 0)]), 1):
                left = {transaction: None for transaction in waiting if transaction not in contents.outcomes}
                waiting = left | dict.fromkeys(contents.prepared)
                if not waiting:
                    ends.append(number)
        while ends[-1] and self._starts_inside(self.stream[ends[-1]]):
            del ends[-1]
        if ends[-1] == bound.count:
            return bound
        why = "a transaction goes on in the next segment"
        for transaction in waiting:
            why = f"{transaction.gid!r} is prepared, and has no outcome yet"
        return Bound(ends[-1], why)

    def _starts_inside(self, segment: SegmentFile) -> bool:
        """Whether a segment starts inside a transaction. An open one may have been renamed or removed since."""
        try:
            return read_head(segment.location).transaction is not None
        except InputError:
            now = refreshed(self.capture, segment)
            if now == segment:
                raise
            return now is None or read_head(now.location).transaction is not None


def prune(capture: Location, pruned: Pruned | None) -> None:
    """Take everything up to `pruned` out of the capture, and remove the files, also those of an earlier run.

    May be repeated after it was killed. Raises InputError, OutputError.
    """
    if pruned is not None:
        _note(capture, lambda state: state.with_pruned(max(pruned, state.pruned or pruned)))
    now = read_state(capture)
    if now.pruned is None:
        return
    for entry in capture.list():
        name = snapshot_name(entry.name) or SegmentName.of_file(entry.name)
        if name is not None and entry.name.endswith(CLOSED) and str(name) <= now.pruned.segment:
            (capture / entry.name).delete()


def _note(capture: Location, change: Callable[[CaptureState], CaptureState]) -> None:
    """Change the state; a recorder may be running. Raises InputError, OutputError."""
    if capture.path is not None:
        with locked_state(capture.path):
            write_state(capture.path, change(_state_of(capture)[0]))
        return
    while True:
        state, version = _state_of(capture)
        try:
            (capture / FILE).replace(state_json(change(state)), version)
            return
        except Conflict:
            continue  # a recorder has written it


def _state_of(capture: Location) -> tuple[CaptureState, str]:
    """The state of a capture that can be pruned, and the version of its file. Raises OptionError, InputError."""
    place = capture / FILE
    if capture.path is None and not capture.replaces:
        raise OptionError(f"cannot prune {capture}: pgtail only reads there")
    content = place.read()
    if content is None:
        listed(capture, NO_STATE)  # raises InputError if there is no segment, either
        raise not_recorded(capture)
    if capture.path is not None:
        _check_owner(capture.path / FILE)
    state = parse_state(content[0], str(place))
    if state.target is not None:
        raise OptionError(f"{capture} is the spool of {state.target}: prune that")
    return state, content[1]


def _check_owner(file: Path) -> None:
    """Check that this user records: else the recorder could not replace the file any more. Raises OptionError."""
    owner = file.stat().st_uid
    if owner != os.geteuid():
        raise OptionError(f"{file} belongs to the user with the number {owner}, who records: prune as that user")


def _contents_of(segment: SegmentFile) -> SegmentContents:
    return read_contents(segment.location) or count_contents(segment.location)
