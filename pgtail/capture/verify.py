"""Yields a capture's segments in order for decoding, and reports missing and damaged ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pgtail.capture.contents import SegmentContents, read_contents
from pgtail.capture.format import GAP, PREDECESSOR, SEGMENT, SegmentName, gap_in
from pgtail.capture.reader import SegmentFile, first_segment, listed, refreshed, snapshot_segments
from pgtail.capture.segment import Head, SegmentCheck, check, digest_of, read_head
from pgtail.capture.state import FILE, Gap, TableSnapshot, read_state
from pgtail.errors import InputError
from pgtail.log import log_damage, logger
from pgtail.pgoutput.scalars import Point, lsn_text, parse_lsn
from pgtail.storage import Location
from pgtail.terminal.escape import escape

_COMMIT: Final = 1
"""Messages of a snapshot that are not rows."""


class SegmentsToRead(NamedTuple):
    """Segments of a capture, or single ones (`capture` is None), one after another."""

    capture: Location | None
    segments: Sequence[SegmentFile]
    before: str | None = None
    """The last segment of the stream before them, or None."""
    begun: bool = False
    """Whether that segment was read, or skipped because of its contents."""
    last: str = ""
    """The last segment that the capture must have, where these are its last ones."""
    gap: Gap | None = None
    """The gap after it that no segment records yet."""
    note: str | None = None
    """The message before they are read."""

    def and_more(self) -> SegmentsToRead:
        """The same, to be followed by others."""
        return self._replace(last="", gap=None)


def segments_to_read(
    capture: Location, since: Point | None = None, *, first: SegmentName | None = None
) -> SegmentsToRead:
    """The segments of a capture, without those before the first one with transactions `since` then. Raises InputError.

    With `first`, those whose names sort before it are left out.
    """
    known = read_state(capture)  # before listing the segments: a recorder may be writing
    segments = listed(capture, known)
    start = 0 if since is None else first_segment(segments, since)
    if first is not None:
        start = sum(segment.name < first for segment in segments)
    names = [str(segment.name) for segment in segments[:start] if segment.snapshot is None]
    pruned, note = known.pruned, None
    if pruned is not None and not names:
        position = lsn_text(pruned.position)
        note = f"{escape(str(capture))}: it was pruned: what was committed up to {position} is no longer in it"
    before = names[-1] if names else None if pruned is None else pruned.segment
    return SegmentsToRead(capture, segments[start:], before, last=known.last, gap=known.gap, note=note)


class CaptureVerifier:
    """One pass over captures. `damaged` says whether something is missing or damaged.

    The reader of a segment feeds its uncompressed bytes to `check`. `skips` says, once all before it was read, whether
    to skip a segment because of its contents, with names in `encoding`. The first segment of the stream is always read:
    it may repeat descriptions of tables that no other one has. `follows`: other input was read before.
    """

    def __init__(
        self,
        skips: Callable[[SegmentContents], bool] | None = None,
        encoding: str = "",
        *,
        follows: bool = False,
    ) -> None:
        self._skips = skips
        self._encoding = encoding
        self._follows = follows
        self.gap_end = 0
        """The LSN at the end of the last gap after the first segment that was read, or 0."""
        self.damaged = False
        self.problems = self.notes = 0
        """How many messages there were about damage and missing segments, and others."""
        self.skipped = False
        """Whether a segment was skipped because of its contents."""
        self._before: str | None = None
        """The last segment of the stream that was read or left out."""
        self._begun = False
        """Whether a segment of the stream was read."""
        self._copied = ""
        """The first segment of a snapshot before the stream's first segment, or empty."""
        self._checked: Location | None = None
        """The segment to check; None if it may lack its end."""
        self.part: SegmentFile | None = None
        """The segment, if it is a part of a table's snapshot."""
        self.head: Head | None = None
        """The beginning of the segment to read."""
        self._messages: int | None = None
        """The messages in the parts of that snapshot so far; None if not all of these were read."""
        self.check = SegmentCheck()

    def capture(
        self,
        capture: Location,
        since: Point | None = None,
        wait: Callable[[], None] | None = None,
        *,
        first: SegmentName | None = None,
    ) -> Iterator[Location]:
        """Yield each segment of a capture, to be read before the next one. Raises InputError.

        `since` and `first` as in segments_to_read(). With `wait`, the capture is being recorded: `wait` is called
        before it is listed again, without end.
        """
        to_read = segments_to_read(capture, since, first=first)
        yield from self.read(to_read if wait is None else to_read.and_more())
        segments = to_read.segments
        while wait is not None:
            last = str(segments[-1].name) if segments else ""
            wait()
            more = listed(capture, read_state(capture), last)
            yield from self._each(capture, more)
            segments = more or segments

    def read(self, to_read: SegmentsToRead) -> Iterator[Location]:
        """Yield each of these segments, to be read before the next one. Raises InputError."""
        if to_read.capture is None:
            for segment in to_read.segments:
                yield from self.segment(segment.location)
            return
        self._before, self._begun = to_read.before, to_read.begun
        if to_read.note is not None:
            self._note(to_read.note)
        yield from self._each(to_read.capture, to_read.segments)
        if to_read.last > (self._before or ""):
            self.report(f"segment {to_read.last} is missing at the end", to_read.capture)
        if to_read.gap is not None and to_read.gap.after >= (self._before or ""):  # else a newer segment has it
            self._gap(to_read.capture, {GAP: str(to_read.gap)}, "at the end")

    def _each(self, capture: Location, segments: Sequence[SegmentFile]) -> Iterator[Location]:
        """Yield these segments, the last ones of the capture."""
        incomplete: TableSnapshot | None = None
        for segment in segments:
            file = refreshed(capture, segment)
            if file is None:
                continue
            if file.snapshot is not None:
                self._copied = self._copied or str(file.name)
                if file.begins_snapshot:
                    incomplete = file.snapshot if self._lacks(file.snapshot, segments) else None
                if file.snapshot != incomplete:
                    yield from self._next_part(file)
                continue
            name, before = str(file.name), self._before
            self._before = name
            try:
                if self._begun and not file.open and self.skips(file, before):
                    continue
                head = read_head(file.location)
                self._check_order(file.location, head.parameters, name, before)
            except InputError:
                if name <= read_state(capture).pruned_segment:
                    self._note(f"{escape(str(file.location))}: it was pruned before it was read")
                    continue
                raise
            self._begun = True
            may_lack_end = file.open and segment is segments[-1]
            yield self._next(file.location, None if may_lack_end else file.location, head)

    def segment(self, segment: Location) -> Iterator[Location]:
        """As capture(), for one closed segment. Raises InputError."""
        head = read_head(segment)
        self._gap(segment, head.parameters)
        yield self._next(segment, segment, head)

    @property
    def may_lack_end(self) -> bool:
        """Whether the segment may still be being written: it is open, and none follows it."""
        return self._checked is None

    def conclude(self, error: InputError | None, *, reported: bool = True) -> None:
        """Report the damage of the segment, unless the last error in it was that and was `reported`.

        Without an error the segment was read whole.
        """
        if self._checked is not None:
            problem = self.check.problem() if error is None else check(self._checked)
            if problem is not None and not (reported and error is not None and problem in error.reason):
                self.report(problem, self._checked)
            self.damaged = self.damaged or problem is not None
            if self.part is not None:
                self._count(self.part, whole=problem is None and error is None)

    def skips(self, file: SegmentFile, before: str | None) -> bool:
        """Whether to skip a segment of the stream; never one that does not follow the segment named `before`."""
        if self._skips is None:
            return False
        contents = file.contents or read_contents(file.location, self._encoding)
        if contents is None:
            return False
        if (contents.segment, contents.predecessor) != (str(file.name), before) or not self._skips(contents):
            return False
        self._gap(file.location, contents.parameters)
        self.skipped = True
        return True

    def _next(self, segment: Location, checked: Location | None, head: Head) -> Location:
        self._checked, self.check, self.part, self.head = checked, SegmentCheck(), None, head
        return segment

    def _next_part(self, file: SegmentFile) -> Iterator[Location]:
        """Yield a segment of a table's snapshot, if it exists."""
        if file.begins_snapshot:
            self._messages = 0
        head = self._head_of_part(file)
        if head is None:
            self._messages = None
            return
        location = self._next(file.location, file.location, head)
        self.part = file
        yield location

    def _lacks(self, snapshot: TableSnapshot, segments: Sequence[SegmentFile]) -> bool:
        """Report missing segments of a snapshot; returns whether there are any: a part must not pass for a table."""
        missing = [segment.location for segment in segments if not segment.there and segment.snapshot == snapshot]
        for location in missing:
            self.report(f"missing, a part of {snapshot}, of which nothing is shown", location)
        return bool(missing)

    def _count(self, part: SegmentFile, *, whole: bool) -> None:
        """Count the messages of a part that was read; compare them with the rows of the whole snapshot at its end."""
        snapshot = part.snapshot
        assert snapshot is not None
        self._messages = None if self._messages is None or not whole else self._messages + self.check.messages()
        if part.name == snapshot.segments[-1].name and self._messages not in (None, snapshot.rows + _COMMIT):
            self.report(f"{snapshot} has {snapshot.rows} rows, and its segments have another number", part.location)

    def _check_order(self, segment: Location, parameters: Mapping[str, str], name: str, before: str | None) -> None:
        """Report a segment that does not follow the one named `before`."""
        predecessor, called = parameters.get(PREDECESSOR), parameters.get(SEGMENT, "")
        if predecessor is None:
            return  # damaged: check() reports it
        self._gap(segment, parameters)
        if called != name:
            self.report(f"this is segment {called} under another name", segment)
        elif before is None:
            if predecessor and "" < self._copied < predecessor:  # changes of copied tables are missing
                self.report(f"segment {predecessor} is missing before this one", segment)
            elif predecessor:
                self._note(f"{escape(str(segment))}: segment {predecessor} came before it and is not here")
        elif not predecessor:
            self.report(f"this is the first segment of another capture, after {before}", segment)
        elif predecessor != before:
            self.report(f"segment {predecessor} is missing before this one", segment)

    def _head_of_part(self, file: SegmentFile) -> Head | None:
        """The beginning of a segment of a snapshot. Reports a segment that is missing, or is not the listed one."""
        assert file.snapshot is not None
        assert file.listed is not None
        entry = file.location.head()
        if entry is None:
            self.report(f"missing, a part of {file.snapshot}", file.location)
            return None
        head = read_head(file.location)
        part, called = head.snapshot, head.parameters.get(SEGMENT)
        is_it = part is not None and (part.lsn, part.relid) == (file.snapshot.lsn, file.snapshot.relid)
        if called is not None and not (is_it and called == str(file.name)):
            self.report(f"not a part of {file.snapshot}", file.location)
        elif entry.size != file.listed.bytes:
            self.report(f"it has {entry.size} bytes, not {file.listed.bytes} as {FILE} says", file.location)
        return head

    def _gap(self, place: Location, parameters: Mapping[str, str], where: str = "before it") -> None:
        gap = gap_in(parameters)
        if gap:
            what = f"there is a gap {where}: what was committed {gap} is not in the capture"
            self._note(f"{escape(str(place))}: {what}")
            if self._begun or self._follows:
                self.gap_end = parse_lsn(gap.rpartition(" ")[2])

    def report(self, what: str, where: Location) -> None:
        self.damaged = True
        self.problems += 1
        log_damage(f"{escape(str(where))}: {what}")

    def _note(self, text: str) -> None:
        self.notes += 1
        logger.info(text)


def check_snapshots(capture: Location) -> None:
    """Compare the files of a capture's snapshots with their SHA-256 in capture.json. Raises InputError."""
    for file in snapshot_segments(capture, read_state(capture)):
        if file.listed is not None and digest_of(file.location) != file.listed.sha256:
            raise InputError(f"its SHA-256 is not the one in {FILE}", source=str(file.location))
