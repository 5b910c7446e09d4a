"""Which snapshots of tables a batch of a state or history applies, and where each table starts then; no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from msgspec import Struct

from pgtail.capture.format import SegmentName
from pgtail.spark.lake.batches import Notes, TableNotes
from pgtail.spark.segments.applied import Capture
from pgtail.spark.state.increment import Increment


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
