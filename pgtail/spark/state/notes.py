"""What a state or a history has to know besides its rows: which part of the stream is in it, and how it is kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


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
    """`applied` are half-open ranges of positions, in order; what was only prepared in them waits in `pending`."""

    applied: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    pending: list[tuple[str, int, int]] = field(default_factory=list)
    """Prepared transactions without an outcome: gid, xid and position."""
    tables: dict[int, TableNotes] = field(default_factory=dict)

    @property
    def behind(self) -> int:
        """The position up to which everything is in it, -1 for none."""
        return self.applied[-1][1] if self.applied else -1

    def to_json(self) -> dict[str, Any]:
        """For the plan of a batch."""
        return asdict(self)

    @classmethod
    def of(cls, found: dict[str, Any]) -> Notes:
        """From the plan."""
        return cls(
            [(first, behind) for first, behind in found["applied"]],
            found["gaps"],
            [(gid, xid, position) for gid, xid, position in found["pending"]],
            {int(relid): TableNotes(**table) for relid, table in found["tables"].items()},
        )
