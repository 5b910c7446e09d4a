"""Floor 5, what PostgreSQL's releases are known to get wrong in logical decoding; a table, asks nothing.

Commits: 4909b38af0 (lost changes), 40b1491357 (column lists), acaa100f9a (#19556), aa4c52b808 (#19616).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug: `fixed` has the first minor release without it for each major one since it came.

    Below the lowest of `fixed` every release has it from `since` on, above the highest none.
    """

    text: str
    fixed: dict[int, int]
    since: int
    loses: bool = False
    """Whether changes are lost by it without a word."""

    def cured_in(self, version: int) -> str | None:
        """The release to update to, None where `version` (160014) does not have the bug."""
        major, minor = divmod(version, 10_000)
        oldest = min(self.fixed)
        if not self.since <= major <= max(self.fixed):
            return None
        if major < oldest:
            return f"{oldest}.{self.fixed[oldest]}"
        fixed = self.fixed.get(major)
        return None if fixed is None or minor >= fixed else f"{major}.{fixed}"


BUGS: Final = (
    Bug(
        "changes are lost without a word where a publication or a type is altered while transactions are open",
        {14: 18, 15: 13, 16: 9, 17: 5},
        since=10,
        loses=True,
    ),
    Bug("with a column list, rows may not fit the columns that were announced", {15: 2}, since=15),
    Bug(
        "COMMIT PREPARED and ROLLBACK PREPARED may come without their PREPARE (bug 19556)",
        {14: 24, 15: 19, 16: 15, 17: 11, 18: 6},
        since=14,
    ),
    Bug(
        "a Stream Abort is sent also to those that asked for no streaming (bug 19616): pgtail passes over it, other"
        " consumers may stop",
        {18: 7},
        since=18,
    ),
)
