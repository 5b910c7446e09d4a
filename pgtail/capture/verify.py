"""Yields a capture's segments in order for decoding, and reports missing and damaged ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pgtail.capture.format import gap_in
from pgtail.capture.reader import SegmentCheck, SegmentFile, check, head, refreshed, segments, with_head
from pgtail.capture.seek import first_segment
from pgtail.capture.state import read_state
from pgtail.pgoutput.scalars import Point


class CaptureVerifier:
    """One pass over captures. `tell` gets the messages; `damaged` says whether something is missing or damaged.

    The checksum of a segment is of the bytes that its reader passes to seen().
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.damaged = False
        self._path: str | None = None
        """The segment to check; None if it may lack its end."""
        self._check = SegmentCheck()

    def capture(self, directory: str, since: Point | None = None) -> Iterator[str]:
        """Yield the path of each segment of a directory, to be read before the next one. Raises InputError.

        With `since`, segments before the first one with such transactions are left out.
        """
        known = read_state(Path(directory))  # before listing the segments: a recorder may be writing
        listed = segments(Path(directory))
        first = 0 if since is None else first_segment(listed, since)
        before = str(listed[first - 1].name) if first else None
        for segment in listed[first:]:
            present = refreshed(segment)
            if present is None:
                continue
            found = with_head(present)
            self._check_order(found, before)
            before = str(found.name)
            may_lack_end = found.open and segment is listed[-1]
            yield self._next(str(found.path), None if may_lack_end else str(found.path))
        if known is not None and known.last > (before or ""):
            self._say(f"segment {known.last} is missing at the end", directory)

    def segment(self, path: str) -> Iterator[str]:
        """As capture(), for one closed segment. Raises InputError."""
        self._gap(path, gap_in(head(Path(path))))
        yield self._next(path, path)

    def seen(self, data: bytes, offset: int) -> None:
        """The uncompressed bytes of the segment, as they are read; some may come again."""
        self._check.feed(data, offset)

    def conclude(self, *, whole: bool) -> None:
        """Report what is wrong with the segment. `whole`: it was read to its end, and no error occurred."""
        if self._path is not None:
            problem = self._check.problem() if whole else check(Path(self._path))
            if problem is not None:
                self._say(problem, self._path)

    def _next(self, path: str, checked: str | None) -> str:
        self._path, self._check = checked, SegmentCheck()
        return path

    def _check_order(self, found: SegmentFile, before: str | None) -> None:
        """Report a segment that does not follow the one before it."""
        if found.predecessor is None:
            return  # damaged: check() reports it
        self._gap(found.path, found.gap)
        if found.called != str(found.name):
            self._say(f"this is segment {found.called} under another name", found.path)
        elif before is None:
            if found.predecessor:
                self._tell(f"note: {found.path}: segment {found.predecessor} came before it and is not here")
        elif not found.predecessor:
            self._say(f"this is the first segment of another capture, after {before}", found.path)
        elif found.predecessor != before:
            self._say(f"segment {found.predecessor} is missing before this one", found.path)

    def _gap(self, path: str | Path, gap: str) -> None:
        if gap:
            self._tell(f"note: {path}: there is a gap before it: what was committed {gap} is not in the capture")

    def _say(self, what: str, where: str | Path) -> None:
        self.damaged = True
        self._tell(f"damage: {where}: {what}")
