"""Describes a segment apart from its rows: its first and last place, its stream, its tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct, field

from pgtail.arrow.segments.ranges import Place, Range, joined
from pgtail.capture.format import CLOSED, PREDECESSOR, SEGMENT, SegmentName, SnapshotPart, gap_in, is_gap
from pgtail.capture.segment import Head

_SERVER: Final = ("pgtail.system_identifier", "pgtail.database")
TWO_PHASE: Final = "pgtail.two_phase"
_SAME: Final = (*_SERVER, "pgtail.timeline", TWO_PHASE, "pgtail.publications", "pgtail.options")
_OF_NO_MATTER: Final = frozenset(["binary", "proto_version", "publication_names", "streaming"])
"""Options that do not affect the changes."""


class Survey(Struct):
    """The description of a segment, as far as its rows were added; `places` is None if it has no change.

    A transaction that was prepared before its slot had two_phase is sent when it is committed, right before its
    outcome, but with the LSN of its PREPARE: changes between the two LSNs need not be in the segment. So it is in
    `late`, not in `places`, as is a prepared transaction at the start of a segment if it may have been sent late.
    """

    path: str = ""
    places: Range | None = None
    stream: str = ""
    """Its origin as text: two segments with different texts do not number their changes alike."""
    server: str = ""
    """The server's system identifier and the database; '' if the capture does not have them."""
    predecessor: str = ""
    """The name of the segment before it; the gap between them as text, if any."""
    open: bool = False
    """Whether it ends inside a transaction."""
    late: tuple[Range, ...] = ()
    relations: list[dict[str, Any]] = field(default_factory=list)
    """Rows of `relations`, each version of a table at the first place in this segment."""
    ddl: list[dict[str, Any]] = field(default_factory=list)
    start: int = 0
    """The position in its name: a transaction with a lower one was sent late."""
    doubtful: bool = False
    """Whether it is the first one of a capture, or starts inside a transaction: its first transaction may be late."""
    ends_late: bool = False
    """Whether the last transaction was certainly sent late."""
    snapshot: SnapshotPart | None = None
    """The part of a table's snapshot that it has. Then it has no places: a snapshot is no part of the stream."""
    rows: int = 0
    """How many rows of a snapshot it has."""
    commit_ts: int = 0
    """The time of a snapshot, in microseconds since 1970."""

    @classmethod
    def of(cls, path: str, head: Head) -> Survey:
        """The survey of a segment with this head, without rows."""
        parameters = head.parameters
        predecessor = parameters.get(PREDECESSOR, "") and (gap_in(parameters) or parameters[PREDECESSOR])
        name = SegmentName.parse(parameters.get(SEGMENT, ""))
        return cls(
            path,
            stream="; ".join(f"{name} {_comparable(parameters.get(name, ''))}" for name in _SAME),
            server=server_in(parameters),
            predecessor=predecessor,
            start=0 if name is None else name.position,
            doubtful=not predecessor or is_gap(predecessor) or head.transaction is not None,
            snapshot=head.snapshot,
        )

    @property
    def name(self) -> str:
        """The name that its successor gives as predecessor."""
        return name_of(self.path)

    def add_rows(self, rows: pa.RecordBatch) -> None:
        if self.snapshot is not None:
            self.rows += rows.num_rows
            return
        if rows["gid"].null_count == rows.num_rows:
            ends = rows.take(pa.array([0, rows.num_rows - 1]))
            first, last = map(Place, ends["position"].to_pylist(), ends["ordinal"].to_pylist())
            self._add_range(first, last, prepared=False)
            return
        columns = rows.select([*Place._fields, "state"]).to_pydict().values()
        for (position, state), some in itertools.groupby(zip(*columns, strict=True), lambda row: (row[0], row[2])):
            ordinals = [ordinal for _, ordinal, _ in some]
            self._add_range(Place(position, ordinals[0]), Place(position, ordinals[-1]), prepared=state == "prepared")

    def _add_range(self, first: Place, last: Place, *, prepared: bool) -> None:
        """Add the changes of one transaction, or of several that are not prepared."""
        added = Range(first, last.next)
        before = first.position < self.start or (self.places is not None and first < self.places.end)
        self.ends_late = prepared and before
        if self.ends_late or (prepared and self._may_be_late(first)):
            self.late = tuple(joined([*self.late, added]))
        else:
            self.places = Range(first if self.places is None else self.places.first, added.end)

    def _may_be_late(self, first: Place) -> bool:
        return self.doubtful and self.places is None and all(one.first.position == first.position for one in self.late)

    def finish(self, *, inside: bool) -> None:
        """Finish after the last row; `inside`: the segment ends inside a transaction."""
        if self.snapshot is not None:
            place = Place(self.snapshot.lsn - 1, 1)
            self.relations = [row | place._asdict() for row in self.relations]
            return
        self.open = inside and not self.ends_late
        # Tables that are only repeated here were described in an earlier segment, or at the start of this one.
        places = self.places or next(iter(self.late), None)
        seen = [row for row in self.relations if row["position"]]
        repeated = [row for row in self.relations if not row["position"]]
        self.relations = seen + [row | places.first._asdict() for row in repeated if places is not None]


def first_seen(relations: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first row of each version in `relations`, in the order of their places."""
    first: dict[str, dict[str, Any]] = {}
    for row in sorted(relations, key=lambda row: (row["position"], row["ordinal"])):
        first.setdefault(row["relation"], row)
    return list(first.values())


def name_of(path: str) -> str:
    """The name of the segment at this path."""
    return path.rpartition("/")[2].removesuffix(CLOSED)


def folder_of(path: str) -> str:
    """The directory of the segment at this path: each is one capture."""
    return path.rpartition("/")[0]


def _comparable(text: str) -> str:
    """Options without those that make no difference."""
    words = [word.strip() for word in text.split(",")]
    return ", ".join(word for word in words if word.split(" ")[0].strip("\"'") not in _OF_NO_MATTER)


def server_in(parameters: Mapping[str, str]) -> str:
    """The server's system identifier and the database of a segment's parameters; '' if they do not have them."""
    return " ".join(parameters.get(name, "") for name in _SERVER).strip()
