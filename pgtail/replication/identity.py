"""Identifies the server, and checks whether its history includes the positions read before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from pgtail.errors import ServerError
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres.rows import Row, single

Query: TypeAlias = Callable[[str, str], list[Row]]
"""Runs a command (purpose, command) on a pinned replication connection and returns its rows."""

_PURPOSE: Final = "the server's identity"
_RUNNING: Final = (
    "SELECT pg_catalog.pg_postmaster_start_time()::text AS started, pg_catalog.pg_is_in_recovery() AS in_recovery"
)


class Identity(Struct, frozen=True):
    """The system identifier, the timeline, and when the postmaster started (empty if unknown).

    `in_recovery`: the server is a standby, so its timeline may change while it runs.
    """

    system: str
    timeline: int
    started: str = ""
    in_recovery: bool = False

    @classmethod
    def of(cls, query: Query) -> Identity:
        """Ask the server. The order matters: the timeline of a server that is not in recovery does not change."""
        running = single(_PURPOSE, query(_PURPOSE, _RUNNING))
        row = single(_PURPOSE, query(_PURPOSE, "IDENTIFY_SYSTEM"))
        return cls(
            row.text("systemid"), row.integer("timeline"), running.text("started"), running.boolean("in_recovery")
        )

    def same_run(self, other: Identity) -> bool:
        """Whether both describe the same server process. Its history only grows, even through a promotion."""
        return bool(self.started) and (self.system, self.started) == (other.system, other.started)


def identify(query: Query, known: tuple[Identity, int] | None) -> Identity:
    """Ask the server; `known` is the server read before and the last position, if any. Errors as in check_same()."""
    return Identity.of(query) if known is None else check_same(known[0], query, known[1])


def check_same(before: Identity, query: Query, resume: int) -> Identity:
    """Check that everything up to `resume` is part of this server's history. Raises ServerError if it is not.

    `before` is the server that was read, with any timeline that it had since then.
    """
    now = Identity.of(query)
    if now.system != before.system:
        raise ServerError(
            f"this is another server: its system identifier is {now.system}, not {before.system}.",
            cure=f"Changes committed after {lsn_text(resume)} were not read. If this server is the right one, start"
            " again with another slot and, for a capture, another directory.",
        )
    if now.same_run(before) or now.timeline == before.timeline:
        return now
    left = _left_at(before.timeline, now.timeline, query)
    if left is None:
        reason = (
            f"the server is on timeline {now.timeline}, whose history does not include timeline {before.timeline},"
            f" which was read up to {lsn_text(resume)}."
        )
    elif left < resume:
        reason = (
            f"the server was promoted or restored: it switched from timeline {before.timeline} to {now.timeline} at"
            f" {lsn_text(left)}, but it was read up to {lsn_text(resume)}."
        )
    else:
        return now
    raise ServerError(
        reason,
        cure="Changes after that position do not exist on this server. Start again; for a capture, use another"
        " directory.",
    )


def _left_at(timeline: int, now: int, query: Query) -> int | None:
    """Where the history of timeline `now` leaves `timeline`; None if it does not include that one.

    A history file has lines of timeline, position and reason (src/backend/access/transam/timeline.c). A timeline's
    number is higher than those in its history, and timeline 1 has no file.
    """
    if now < timeline:
        return None
    purpose = "the history of its timeline"
    content = single(purpose, query(purpose, f"TIMELINE_HISTORY {now}")).text("content")
    for line in content.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[0] == str(timeline):
            return Row(purpose, {"switchpoint": fields[1]}).lsn("switchpoint")
    return None
