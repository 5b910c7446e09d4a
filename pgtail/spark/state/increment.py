"""Plans the next batch of a state: whole transactions of the stream, in order, up to a gap, the snapshots of tables,
and where each table starts then; uses no Spark.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from msgspec import Struct, field

from pgtail.arrow.segments.ranges import Place, Range, joined
from pgtail.capture.format import SegmentName, is_gap
from pgtail.errors import InputError
from pgtail.spark.lake.batches import Notes, TableNotes
from pgtail.spark.segments.applied import Capture, SegmentRun


class Snapshot(NamedTuple):
    """A complete snapshot of a table: its rows' position and time (microseconds since 1970), the table's version, the
    number of rows, and the directory of its capture."""

    position: int
    time: int
    relation: str
    rows: int
    capture: str


class TableStart(Struct, frozen=True):
    """How a table starts in a batch: `snapshots` are those to apply, in order.

    `again`: its rows are dropped, and it is made from its changes since `since`, of all that were ever applied. `taken`
    and `count` are for the notes: the position of the last snapshot, and their number.
    """

    snapshots: tuple[Snapshot, ...]
    again: bool
    since: int
    taken: int
    count: int


def by_table(rows: pa.Table) -> dict[int, list[Snapshot]]:
    """Rows of OUT/snapshots by the table's OID, each table's in order."""
    snapshots: dict[int, list[Snapshot]] = {}
    times = rows["commit_ts"].cast(pa.int64()).to_pylist()
    columns = rows.select(["relid", "position", "relation", "rows", "capture"]).to_pydict().values()
    for (relid, position, *more), time in zip(zip(*columns, strict=True), times, strict=True):
        snapshots.setdefault(relid, []).append(Snapshot(position, time, *more))
    return {relid: sorted(some) for relid, some in snapshots.items()}


def apart(
    snapshots: Mapping[int, Sequence[Snapshot]], captures: Mapping[str, Capture], notes: Notes, increment: Increment
) -> Snapshot | None:
    """The first snapshot after the end of an increment, if its capture begins with it.

    No capture has the changes between the two.
    """
    end = max([notes.reach, *(part.end for part in increment.ranges)]).position
    if not (notes.applied or increment.ranges):
        return None
    begins = {place: SegmentName.parse(capture.runs[0].start) for place, capture in captures.items() if capture.runs}
    later = [snapshot for some in snapshots.values() for snapshot in some if snapshot.position >= end]
    return min(
        (one for one in later if (name := begins.get(one.capture)) is None or name.position > one.position),
        default=None,
    )


def starts(
    snapshots: Mapping[int, Sequence[Snapshot]], notes: Notes, increment: Increment, until: int | None, *, history: bool
) -> dict[int, TableStart]:
    """The start of each table, by its OID, for which a batch reaches a snapshot that is not in it.

    A batch reaches a snapshot if everything before it is applied then: if a segment is missing, up to the last
    transaction before it.
    """
    end = None if increment.missing is None else max([notes.end, *(part.end for part in increment.ranges)]).position
    started = {}
    for relid, some in snapshots.items():
        reached = [
            one for one in some if (end is None or one.position < end) and (until is None or one.position <= until)
        ]
        start = _start(reached, notes.tables.get(relid), notes.end.position, history=history)
        if start is not None:
            started[relid] = start
    return started


def _start(reached: Sequence[Snapshot], table: TableNotes | None, end: int, *, history: bool) -> TableStart | None:
    taken, count = (-1, 0) if table is None else (table.snapshot, table.snapshots)
    if not reached:
        return None
    last = reached[-1].position
    if not history:
        # Nothing before a snapshot matters to it.
        return TableStart((reached[-1],), True, last, last, len(reached)) if last > taken else None
    new = [snapshot for snapshot in reached if snapshot.position > taken]
    if len(reached) - len(new) != count or (table is not None and new and new[0].position < end):
        # A snapshot was found after later changes had been applied.
        return TableStart(tuple(reached), True, -1, last, len(reached))
    return TableStart(tuple(new), False, -1, last, len(reached)) if new else None


_NOTHING: Final = Range(Place(-1, 0), Place(-1, 0))


class MissingSegment(InputError):
    """A segment is not there yet: nothing after it can be applied.

    `missing` is its name, or the gap of a recorder as text; '' if `successor` begins a capture that no other one
    overlaps: the changes between them are unknown.
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
    """The ranges of the stream to apply now."""

    ranges: list[Range] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    missing: MissingSegment | None = None
    """The missing segment that ends the increment."""
    late: list[Range] = field(default_factory=list)
    """As in Survey."""


def next_increment(
    applied: Sequence[SegmentRun], notes: Notes, following: Sequence[SegmentRun] = (), *, allow_gap: bool = False
) -> Increment:
    """The ranges of the applied segments to apply to a state; `following` continue others of their capture.

    Raises InputError if a segment comes too late.
    """
    runs = [(run.places, run) for run in applied if run.places is not None]
    increment = Increment(late=[late for run in applied for late in run.late])
    end, reach = notes.end, Place(-1, 0)
    skipped = [Range(before.end, after.first) for before, after in itertools.pairwise([_NOTHING, *notes.applied])]
    for places, run in sorted(runs, key=lambda run: run[0]):
        whole = _whole_transactions(places, run)
        leaves_gap = places.first > reach and bool(run.predecessor or reach.position >= 0) and run not in following
        reach = max(reach, places.end)
        if any(part.covers(whole) for part in joined([*notes.applied, *increment.ranges])):
            continue
        if whole.end <= end or any(whole.overlaps(gap) for gap in skipped):
            raise InputError(
                f"the segment {run.start} has changes from before the end of the state, which lacks them: make the"
                " state again, in another directory"
            )
        if leaves_gap:
            missing = MissingSegment(run.predecessor, run.start)
            if not allow_gap:
                increment.missing = missing
                break
            increment.gaps.append({"missing": run.predecessor, "before": run.start, "place": places.first.position})
        increment.ranges.append(Range(max(whole.first, end), whole.end))
        end = whole.end
    increment.ranges = [part for part in increment.ranges if part.first < part.end]
    return increment


def _whole_transactions(places: Range, run: SegmentRun) -> Range:
    """The places of a run, without the transaction that it ends in, and with all of the one that it begins in."""
    (position, ordinal), end = places
    return Range(Place(position, min(ordinal, 1)), Place(end.position, 1) if run.open else end)
