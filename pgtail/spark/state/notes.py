"""What a state or a history has to know besides its rows: which part of the stream is in it, and how it is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pgtail.spark.segments.ranges import Place, Range


@dataclass(slots=True)
class TableNotes:
    """One table, by its OID."""

    folder: str
    versions: list[str]
    """Fingerprints, in the order of their last appearance; the last one is in force."""
    since: int
    """The position from which on the table has its name."""
    buckets: int = 1
    whole: bool = False
    """Whether its rows can no more be found by a hash of what identifies them: they stay in one bucket."""


@dataclass(slots=True)
class Notes:
    """`applied` are ranges of the stream, in order; what was only prepared in them waits in `pending`."""

    applied: list[Range] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    pending: list[tuple[str, int, int]] = field(default_factory=list)
    """Prepared transactions without an outcome: gid, xid and position."""
    tables: dict[int, TableNotes] = field(default_factory=dict)

    @property
    def end(self) -> Place:
        """The place up to which everything is in it."""
        return self.applied[-1].end if self.applied else Place(-1, 0)

    @classmethod
    def of(cls, found: dict[str, Any]) -> Notes:
        """From the plan."""
        return cls(
            list(map(Range.of, found["applied"])),
            found["gaps"],
            [(gid, xid, position) for gid, xid, position in found["pending"]],
            {int(relid): TableNotes(**table) for relid, table in found["tables"].items()},
        )
