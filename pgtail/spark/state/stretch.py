"""Which part of the stream a batch of a state applies: whole transactions, in order, up to a gap; no Spark."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgtail.capture.format import is_gap
from pgtail.errors import InputError
from pgtail.spark.segments.applied import Range
from pgtail.spark.segments.ranges import Place
from pgtail.spark.state.notes import Notes


class MissingSegment(InputError):
    """A segment is not there yet: nothing behind it can be applied.

    `missing` is its name, or between which LSNs a recorder went over a gap, in words; '' where `successor` begins a
    capture that no other one overlaps: nobody tells what lies between them.
    """

    def __init__(self, missing: str, successor: str) -> None:
        if is_gap(missing):
            what = f"what was committed {missing}, and will never come: only --allow-gap goes on"
            why = f"what was committed {missing} is not in the capture: {successor} stands behind that gap"
        elif missing:
            what = f"the segment {missing}"
            why = f"the segment {missing} is missing: {successor} continues it, and nothing can be applied without it"
        else:
            what = f"what lies before {successor}"
            why = (
                f"{successor} begins a capture behind the end of what was applied: whether anything was committed "
                "between them no capture tells"
            )
        super().__init__(f"{why} (--allow-gap goes on, and records the gap)")
        self.missing, self.what = missing, what


@dataclass(slots=True)
class Stretch:
    """What is to be applied now: half-open ranges of positions. `gaps` are those that are gone over; `missing` is what
    is waited for."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    missing: MissingSegment | None = None


def stretch(captured: Iterable[Range], notes: Notes, *, allow_gap: bool = False) -> Stretch:
    """What of the applied segments is to be applied to a state. Raises InputError where some comes too late."""
    found = Stretch()
    behind, reach = notes.behind, Place(-1, 0)
    gone_over = [(one[1], two[0]) for one, two in itertools.pairwise(notes.applied)]
    for one in sorted((one for one in captured if one.first is not None), key=lambda one: (one.first, one.behind)):
        assert one.first is not None
        assert one.behind is not None
        first, end = one.first.position, one.behind.position + (not one.open)
        leaves_gap = one.first > reach and bool(one.predecessor or reach.position >= 0)
        reach = max(reach, one.behind)
        if _holds([*notes.applied, *found.ranges], first, end):
            continue
        if end <= behind or any(first < until and since < end for since, until in gone_over):
            raise InputError(
                f"the segment {one.start} belongs into a gap that was gone over: make the state anew, in another "
                "directory"
            )
        if leaves_gap:
            missing = MissingSegment(one.predecessor, one.start)
            if not allow_gap:
                found.missing = missing
                break
            found.gaps.append({"missing": one.predecessor, "before": one.start, "place": first})
        found.ranges.append((max(first, behind), end))
        behind = end
    found.ranges = [(first, end) for first, end in found.ranges if first < end]
    return found


def _holds(ranges: Sequence[tuple[int, int]], first: int, end: int) -> bool:
    return any(start <= first and end <= behind for start, behind in joined(ranges))


def joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that touch made one."""
    found: list[tuple[int, int]] = []
    for first, behind in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(behind, found[-1][1]))
        else:
            found.append((first, behind))
    return found
