"""The segments that were applied, as runs of segments that follow each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from pgtail.arrow.segments.ranges import Range, joined
from pgtail.arrow.segments.survey import Survey, folder_of, name_of


class SegmentRun(NamedTuple):
    """Segments of one stream that follow each other; `places` is None if they have no change, `late` as in Survey.

    `start` and `end` are the names of the first and the last one, `predecessor` that of the one before them, ''
    if there is none. `open`: the last one ends inside a transaction.
    """

    start: str
    end: str
    predecessor: str
    stream: str
    open: bool = False
    places: Range | None = None
    late: tuple[Range, ...] = ()

    def followed_by(self, other: SegmentRun) -> SegmentRun:
        """Both as one run. `late` parts of the other after the end of this run were not sent late."""
        places, late = self.places, list(self.late)
        for part in other.late:
            if places is None or part.first < places.end:
                late.append(part)
            else:
                places = Range(places.first, part.end)
        if other.places is not None:
            places = Range((places or other.places).first, other.places.end)
        inside = places != self.places or (self.open and not other.late)
        return SegmentRun(
            self.start, other.end, self.predecessor, self.stream, other.open and inside, places, tuple(joined(late))
        )


class Capture(Struct):
    """The segments of one directory that were applied.

    `pruned` is the LSN up to which it had been pruned when its first segment was applied; 0 if it had not.
    """

    runs: list[SegmentRun] = field(default_factory=list)
    pruned: int = 0

    def has(self, name: str) -> bool:
        return any(run.start <= name <= run.end for run in self.runs)

    @property
    def complete_to(self) -> str:
        """The name of the last segment before which none is missing; '' if the first one is."""
        return self.runs[0].end if self.runs and not self.runs[0].predecessor else ""

    def following(self) -> list[SegmentRun]:
        """The runs that continue others without a gap, in another stream: else both would be one run.

        The recorder continued with other publications or options, or on another timeline.
        """
        following: list[SegmentRun] = []
        ends: set[str] = set()
        for run in self.runs:
            if run.predecessor in ends:
                following.append(run)
            if run.places is not None or not run.predecessor or run.predecessor in ends:
                ends.add(run.end)
        return following

    def add_segment(self, segment: Survey) -> None:
        name, known = segment.name, segment
        new = SegmentRun(name, name, known.predecessor, known.stream, known.open, known.places, known.late)
        kept = []
        for run in self.runs:
            if run.stream != new.stream:
                kept.append(run)
            elif run.end == new.predecessor:
                new = run.followed_by(new)
            elif run.predecessor == new.end:
                new = new.followed_by(run)
            else:
                kept.append(run)
        self.runs = sorted([*kept, new], key=lambda run: run.start)


def new_ones(paths: Iterable[str], captures: Mapping[str, Capture]) -> list[str]:
    """The segments among these that were not applied."""
    return [path for path in paths if (known := captures.get(folder_of(path))) is None or not known.has(name_of(path))]
