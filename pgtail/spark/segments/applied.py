"""What was applied of captures, as ranges: a run of segments that follow each other is one, however many they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pgtail.spark.segments.listing import Surveyed, folder_of, name_of
from pgtail.spark.segments.ranges import Part, Place


class Range(NamedTuple):
    """Segments that follow each other, from `first` up to before `behind`; both are None where they hold no change.

    `start` and `end` are the names of the first and the last one, `predecessor` that of the one before them, ''
    where there is none. `open`: the stream goes on inside a transaction.
    """

    start: str
    end: str
    predecessor: str
    open: bool
    first: Place | None = None
    behind: Place | None = None

    @classmethod
    def of(cls, found: Sequence[Any]) -> Range:
        """From JSON."""
        return cls(*found[:4], *(None if one is None else Place(*one) for one in found[4:]))


@dataclass(slots=True)
class Capture:
    """One directory of segments: where its stream comes from, in words, and what of it was applied, by name."""

    stream: str = ""
    ranges: list[Range] = field(default_factory=list)

    def has(self, name: str) -> bool:
        """Whether this segment was applied."""
        return any(one.start <= name <= one.end for one in self.ranges)

    def add(self, segment: Surveyed) -> None:
        """A segment was applied."""
        whole = segment.whole
        new = Range(segment.name, segment.name, segment.predecessor, segment.open)
        if whole is not None:
            new = new._replace(first=whole.first, behind=Place(whole.last.position, whole.last.ordinal + 1))
        kept = []
        for one in self.ranges:
            if one.end == new.predecessor:
                new = _joined(one, new)
            elif one.predecessor == new.end:
                new = _joined(new, one)
            else:
                kept.append(one)
        self.ranges = sorted([*kept, new])
        self.stream = self.stream or segment.stream


def _joined(one: Range, two: Range) -> Range:
    """Two runs of which the second continues the first: nothing lies between them."""
    behind = two.behind if two.behind is not None else one.behind
    return Range(one.start, two.end, one.predecessor, two.open, one.first or two.first, behind)


def covered(captures: Iterable[Capture]) -> list[tuple[Part, str]]:
    """The parts of the stream that were applied, with their streams."""
    return [
        (Part(one.first, Place(one.behind.position, one.behind.ordinal - 1)), capture.stream)
        for capture in captures
        for one in capture.ranges
        if one.first is not None and one.behind is not None
    ]


def new_ones(paths: Iterable[str], captures: dict[str, Capture]) -> list[str]:
    """The segments among these that were not applied."""
    return [path for path in paths if (known := captures.get(folder_of(path))) is None or not known.has(name_of(path))]
