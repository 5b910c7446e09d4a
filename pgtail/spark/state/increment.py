"""What of the stream the next batch of a state applies: whole transactions, in order, up to a gap, and which snapshots
of tables, and where each table starts then; no Spark.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from msgspec import Struct, field

from pgtail.capture.format import SegmentName, is_gap
from pgtail.errors import InputError
from pgtail.spark.lake.batches import Notes, TableNotes
from pgtail.spark.segments.applied import Capture, SegmentRun
from pgtail.spark.segments.ranges import Place, Range, joined


class Snapshot(NamedTuple):
    """A complete snapshot of a table: its rows' position and time (microseconds since 1970), the table's version, the
    number of rows, and the directory of its capture."""

    position: int
    time: int
    relation: str
    rows: int
    capture: str


class TableStart(Struct, frozen=True):
    """What a batch does with a table besides its changes: `snapshots` are those to apply, in order.

    `again`: the rows that are there are dropped, and the table is made from its changes since `since`, of all that was
    ever applied. `taken` and `count` are for the notes: the last one and how many there are.
    """

    snapshots: tuple[Snapshot, ...]
    again: bool
    since: int
    taken: int
    count: int


def by_table(rows: pa.Table) -> dict[int, list[Snapshot]]:
    """Rows of OUT/snapshots by the table's OID, each table's in order."""
    found: dict[int, list[Snapshot]] = {}
    times = rows["commit_ts"].cast(pa.int64()).to_pylist()
    columns = rows.select(["relid", "position", "relation", "rows", "capture"]).to_pydict().values()
    for (relid, position, *more), time in zip(zip(*columns, strict=True), times, strict=True):
        found.setdefault(relid, []).append(Snapshot(position, time, *more))
    return {relid: sorted(some) for relid, some in found.items()}


def apart(
    snapshots: Mapping[int, Sequence[Snapshot]], captures: Mapping[str, Capture], notes: Notes, increment: Increment
) -> Snapshot | None:
    """The first snapshot after the end of what is applied then, if its capture begins with it.

    What was committed between the two is in no capture.
    """
    end = max([notes.reach, *(one.end for one in increment.ranges)]).position
    if not (notes.applied or increment.ranges):
        return None
    begins = {place: SegmentName.parse(one.runs[0].start) for place, one in captures.items() if one.runs}
    found = [one for some in snapshots.values() for one in some if one.position >= end]
    return min(
        (one for one in found if (name := begins.get(one.capture)) is None or name.position > one.position),
        default=None,
    )


def starts(
    snapshots: Mapping[int, Sequence[Snapshot]], notes: Notes, increment: Increment, until: int | None, *, history: bool
) -> dict[int, TableStart]:
    """What the snapshots that a batch reaches make of each table, by its OID, if there is one that is not in it.

    A batch reaches a snapshot if everything before it is applied then: where a segment is missing, up to the last
    transaction before it.
    """
    end = None if increment.missing is None else max([notes.end, *(one.end for one in increment.ranges)]).position
    found = {}
    for relid, some in snapshots.items():
        reached = [
            one for one in some if (end is None or one.position < end) and (until is None or one.position <= until)
        ]
        start = _start(reached, notes.tables.get(relid), notes.end.position, history=history)
        if start is not None:
            found[relid] = start
    return found


def _start(reached: Sequence[Snapshot], table: TableNotes | None, end: int, *, history: bool) -> TableStart | None:
    taken, count = (-1, 0) if table is None else (table.snapshot, table.snapshots)
    if not reached:
        return None
    last = reached[-1].position
    if not history:
        # Nothing before a snapshot matters to it.
        return TableStart((reached[-1],), True, last, last, len(reached)) if last > taken else None
    new = [one for one in reached if one.position > taken]
    if len(reached) - len(new) != count or (table is not None and new and new[0].position < end):
        # One was found late, when what came after it had been applied.
        return TableStart(tuple(reached), True, -1, last, len(reached))
    return TableStart(tuple(new), False, -1, last, len(reached)) if new else None


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
