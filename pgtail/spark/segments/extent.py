"""The places of a segment's changes: one range, and the prepared transactions that may have been sent late."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pyarrow as pa

from pgtail.spark.segments.ranges import Place, Range, joined


@dataclass(slots=True)
class Extent:
    """Is given the places of a segment's changes in the order of the stream.

    A transaction that was prepared before its slot had two_phase is sent when it is committed, right before its
    outcome, but with the LSN of its PREPARE: what is between the two LSNs need not be in the segment. So it is in
    `late`, not in `places`. So is the prepared transaction that a segment starts with, if the segment is `doubtful`
    (it is the first one of a capture, or starts inside the transaction): it may have been sent late.

    `start` is the position in the segment's name: what has a lower one was sent late.
    """

    start: int = 0
    doubtful: bool = False
    places: Range | None = None
    late: list[Range] = field(default_factory=list)
    ends_late: bool = False
    """Whether the last transaction was certainly sent late."""

    def add(self, first: Place, last: Place, *, prepared: bool) -> None:
        """Changes of one transaction."""
        added = Range(first, last.next)
        before = first.position < self.start or (self.places is not None and first < self.places.end)
        self.ends_late = prepared and before
        if self.ends_late or (prepared and self._is_doubtful(first)):
            self.late = joined([*self.late, added])
        else:
            self.places = Range(first if self.places is None else self.places.first, added.end)

    def _is_doubtful(self, first: Place) -> bool:
        return self.doubtful and self.places is None and all(one.first.position == first.position for one in self.late)

    def add_rows(self, rows: pa.RecordBatch) -> None:
        """Rows of `changes`."""
        if rows["gid"].null_count == rows.num_rows:
            first, last = (Place(*(rows[name][row].as_py() for name in Place._fields)) for row in (0, -1))
            self.add(first, last, prepared=False)
            return
        columns = rows.select([*Place._fields, "state"]).to_pydict().values()
        for (position, state), some in itertools.groupby(zip(*columns, strict=True), lambda row: (row[0], row[2])):
            ordinals = [ordinal for _, ordinal, _ in some]
            prepared = state == "prepared"
            self.add(Place(position, ordinals[0]), Place(position, ordinals[-1]), prepared=prepared)
