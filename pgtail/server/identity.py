"""Floor 5, which cluster a walsender belongs to, and whether its history still holds what was read."""

from __future__ import annotations

from dataclasses import dataclass

from pgtail.errors import ServerError
from pgtail.server.session import Session
from pgtail.wire.scalars import lsn_text, parse_lsn


@dataclass(frozen=True, slots=True)
class Identity:
    """What IDENTIFY_SYSTEM says: the cluster, and the timeline it is on."""

    system: str
    timeline: int

    @classmethod
    def of(cls, session: Session) -> Identity:
        [(system, timeline, *_)] = session.query("IDENTIFY_SYSTEM")
        return cls(system, int(timeline))


def check_same(before: Identity, session: Session, resume: int, *, standby: bool) -> Identity:
    """Whether everything up to `resume` is part of this server's history. Raises ServerError where it is not.

    A `standby` may have been promoted while it was read: what it sent then is its own history all the same.
    """
    now = Identity.of(session)
    if now.system != before.system:
        raise ServerError(
            f"this is another server: its system identifier is {now.system}, it was {before.system}.",
            cure=f"What was committed after {lsn_text(resume)} was not seen. Start anew if this server is meant: with"
            " another slot, and a capture in another directory.",
        )
    if now.timeline == before.timeline:
        return now
    left = _left_at(before.timeline, now.timeline, session)
    if left is None or (left < resume and not standby):
        where = "somewhere" if left is None else f"at {lsn_text(left)}"
        raise ServerError(
            f"the server was promoted or restored: it went from timeline {before.timeline} to {now.timeline} {where},"
            f" but was read up to {lsn_text(resume)}.",
            cure="What was shown behind that point does not exist on this server. Start anew, a capture in"
            " another directory.",
        )
    return now


def _left_at(timeline: int, now: int, session: Session) -> int | None:
    """Where the history of timeline `now` leaves another one; None if it never was on that one.

    A history file has lines of timeline, position and reason (src/backend/access/transam/timeline.c).
    """
    [(_, content)] = session.query(f"TIMELINE_HISTORY {now}")
    for line in content.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[0] == str(timeline):
            return parse_lsn(fields[1])
    return None
