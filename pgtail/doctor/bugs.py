"""A table of known bugs in the logical decoding of PostgreSQL releases, and what each needs to occur.

Commits: 4909b38af0 (lost changes), 40b1491357 (column lists), acaa100f9a (#19556), aa4c52b808 (#19616).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Bug(Struct, frozen=True):
    """A bug. `fixed` maps a major release to the first minor release with the fix.

    Major releases from `since` up to the lowest in `fixed` have no fix; those above the highest never had the bug.
    """

    text: str
    fixed: dict[int, int]
    since: int
    loses: bool = False
    """Whether it silently loses changes."""
    needs: str = ""
    """What must exist on the server for the bug to occur."""
    query: str | None = None
    """A query whose column `shows` says whether the server has that; None if every server does."""

    def fixed_in(self, version: int) -> str | None:
        """The release to update to; None if `version` (160014) does not have the bug."""
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
        "changes are silently lost if a publication or a type is altered while transactions are open",
        {14: 18, 15: 13, 16: 9, 17: 5},
        since=10,
        loses=True,
    ),
    Bug(
        "with a column list, rows may not match the columns of their Relation message",
        {15: 2},
        since=15,
        needs="a publication with a column list",
        query="SELECT EXISTS (SELECT FROM pg_publication_rel WHERE prattrs IS NOT NULL) AS shows",
    ),
    # Only clients that request two_phase get prepared transactions as such, and that changes the slot permanently.
    Bug(
        "COMMIT PREPARED and ROLLBACK PREPARED may be sent without their PREPARE (bug 19556)",
        {14: 24, 15: 19, 16: 15, 17: 11, 18: 6},
        since=14,
        needs="a slot with two_phase and max_prepared_transactions above 0",
        query="""
SELECT current_setting('max_prepared_transactions')::int > 0
    AND EXISTS (SELECT FROM pg_replication_slots WHERE two_phase) AS shows
""",
    ),
    # The server checks for aborted transactions when one exceeds logical_decoding_work_mem.
    Bug(
        "a Stream Abort is also sent to consumers that did not request streaming (bug 19616): pgtail ignores it, others"
        " may stop",
        {18: 7},
        since=18,
        needs="a pgoutput slot with transactions larger than logical_decoding_work_mem",
        query="""
SELECT EXISTS (
    SELECT FROM pg_stat_replication_slots t JOIN pg_replication_slots s USING (slot_name)
    WHERE s.plugin = 'pgoutput' AND t.spill_txns + t.stream_txns > 0) AS shows
""",
    ),
)
