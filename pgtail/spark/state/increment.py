"""What of the stream the next batch of a state applies: whole transactions, in order, up to a gap; no Spark."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct, field

from pgtail.capture.format import is_gap
from pgtail.errors import InputError
from pgtail.spark.lake.batches import Notes
from pgtail.spark.segments.applied import SegmentRun
from pgtail.spark.segments.ranges import Place, Range, joined

_NOTHING: Final = Range(Place(-1, 0), Place(-1, 0))


class MissingSegment(InputError):
    """A segment is not there yet: nothing after it can be applied.

    `missing` is its name, or the gap of a recorder as text; '' if `successor` begins a capture that no other one
    overlaps: what is between them is unknown.
    """

    def __init__(self, missing: str, successor: str) -> None:
        if is_gap(missing):
            what = f"what was committed {missing}, and will never come: only --allow-gap goes on"
            why = f"what was committed {missing} is not in the capture: {successor} comes after that gap"
        elif missing:
            what = f"the segment {missing}"
            why = f"the segment {missing} is missing: {successor} continues it, and nothing can be applied without it"
        else:
            what = f"what comes before {successor}"
            why = (
                f"{successor} begins a capture after the end of what was applied: whether anything was committed "
                "between them is unknown"
            )
        super().__init__(f"{why} (--allow-gap goes on, and records the gap)")
        self.missing, self.what = missing, what


class Increment(Struct):
    """What is to be applied now: ranges of the stream."""

    ranges: list[Range] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    """The gaps that are skipped."""
    missing: MissingSegment | None = None
    """The segment that is waited for."""
    late: list[Range] = field(default_factory=list)
    """As in Survey."""


def next_increment(
    applied: Sequence[SegmentRun], notes: Notes, following: Sequence[SegmentRun] = (), *, allow_gap: bool = False
) -> Increment:
    """What of the segments that were applied is to be applied to a state; `following` continue others of their capture.

    Raises InputError if some comes too late.
    """
    runs = [(one.places, one) for one in applied if one.places is not None]
    found = Increment(late=[late for one in applied for late in one.late])
    end, reach = notes.end, Place(-1, 0)
    skipped = [Range(one.end, two.first) for one, two in itertools.pairwise([_NOTHING, *notes.applied])]
    for places, one in sorted(runs, key=lambda run: run[0]):
        whole = _whole_transactions(places, one)
        leaves_gap = places.first > reach and bool(one.predecessor or reach.position >= 0) and one not in following
        reach = max(reach, places.end)
        if any(part.covers(whole) for part in joined([*notes.applied, *found.ranges])):
            continue
        if whole.end <= end or any(whole.overlaps(gap) for gap in skipped):
            raise InputError(
                f"the segment {one.start} has changes from before the end of the state, which lacks them: make the"
                " state again, in another directory"
            )
        if leaves_gap:
            missing = MissingSegment(one.predecessor, one.start)
            if not allow_gap:
                found.missing = missing
                break
            found.gaps.append({"missing": one.predecessor, "before": one.start, "place": places.first.position})
        found.ranges.append(Range(max(whole.first, end), whole.end))
        end = whole.end
    found.ranges = [one for one in found.ranges if one.first < one.end]
    return found


def _whole_transactions(places: Range, run: SegmentRun) -> Range:
    """Without the transaction that it ends in; with all that is there of the one that it begins in."""
    (position, ordinal), end = places
    return Range(Place(position, min(ordinal, 1)), Place(end.position, 1) if run.open else end)
