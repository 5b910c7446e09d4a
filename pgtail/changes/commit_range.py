"""Selects transactions by the LSN and the time of their commit: --since and --until."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from pgtail.humanize import parse_seconds
from pgtail.local_time import clock, to_local, to_utc
from pgtail.pgoutput.scalars import Point, parse_lsn
from pgtail.pgoutput.streaming import StreamCommit
from pgtail.pgoutput.transaction import Begin, Message
from pgtail.pgoutput.two_phase import BeginPrepare, CommitPrepared, RollbackPrepared, StreamPrepare
from pgtail.values.moments import DAY, moment

MARGIN: Final = 10_000_000
"""Microseconds by which the commit time of a transaction may be before that of an earlier one in the WAL.

A backend takes the time before it writes the commit record (src/backend/access/transam/xact.c), and a clock may be set.
"""

_FIRST: Final = -(1 << 63)
_LAST: Final = (1 << 63) - 1
"""The bounds of times."""

ANYWHERE: Final = Point()
"""No bound."""

PLACES: Final[dict[type, Callable[[Any], tuple[int, int | None]]]] = {
    Begin: lambda message: (message.final_lsn, message.commit_time),
    BeginPrepare: lambda message: (message.prepare_lsn, message.prepare_time),
    StreamCommit: lambda message: (message.commit_lsn, message.commit_time),
    StreamPrepare: lambda message: (message.prepare_lsn, message.prepare_time),
    CommitPrepared: lambda message: (message.commit_lsn, message.commit_time),
    RollbackPrepared: lambda message: (message.rollback_end_lsn, message.rollback_time),
    Message: lambda message: (0 if message.transactional else message.lsn, None),
}
"""The WAL position and the time that each of these messages is about."""


def point_of(text: str, now: int | None = None) -> Point:
    """0/16B3748; 10m, 2h or 3d ago; today, yesterday; 10:30 of today; 2026-11-22T10:00Z and parts of it.

    A time without a zone is local. `now` is in microseconds since 2000-01-01 UTC. Raises ValueError.
    """
    try:
        return Point(lsn=parse_lsn(text))
    except ValueError:
        pass

    now = clock() if now is None else now
    try:
        if text not in ("today", "yesterday") and text[-1:].isalpha() and text[-1] not in "Zz":
            return Point(time=now - int(parse_seconds(text) * 1_000_000))
        micros, zone = _clock_time(text, now)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is neither an LSN such as 0/1949A30, nor a time such as 10m (ago), yesterday, 10:30 or"
            " 2026-11-22T10:00 (local time without a zone)"
        ) from None
    if zone:
        return Point(time=micros)
    try:
        return Point(time=to_utc(micros), local=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is not one time: {error}") from None


def _clock_time(text: str, now: int) -> tuple[int, bool]:
    """A time as clocks show it, and whether it is in UTC because a zone was given. Raises ValueError, OverflowError."""
    today = to_local(now) // DAY * DAY
    if text in ("today", "yesterday"):
        return today - DAY * (text == "yesterday"), False
    if text[1:3].count(":"):
        found = moment(f"2000-01-01 {text}")
        return (now // DAY * DAY if found.zone else today) + int(found.micros), found.zone
    found = moment(text)
    return int(found.micros), found.zone


class CommitRange(Struct, frozen=True):
    """From `since` to `until`, both included; for prepared transactions by their prepare, until they are committed.

    `margin`: see MARGIN; 0 for a reader that ends before the first transaction that is not inside.
    """

    since: Point = ANYWHERE
    until: Point = ANYWHERE
    margin: int = MARGIN

    @property
    def active(self) -> bool:
        return (self.since, self.until) != (ANYWHERE, ANYWHERE)

    def contains(self, lsn: int | None, time: int | None) -> bool:
        """Whether a commit at this LSN and time is inside. An unknown LSN or time is outside if it has a bound."""
        return _within(self.since.lsn, lsn, self.until.lsn) and _within(self.since.time, time, self.until.time)

    def bounds(self) -> tuple[int, int, int, int]:
        """The first LSN and time and the last LSN and time, as integers of 8 bytes."""
        since, until = self.since, self.until
        low = _FIRST if since.time is None else max(_FIRST, min(since.time, _LAST))
        high = _LAST if until.time is None else max(_FIRST, min(until.time, _LAST))
        return since.lsn or 0, low, (1 << 64) - 1 if until.lsn is None else until.lsn, high

    @property
    def end(self) -> tuple[int, int]:
        """The LSN and the time after which is_past() says yes, as in bounds()."""
        *_, last, high = self.bounds()
        return last, min(high + self.margin, _LAST)

    def is_past(self, lsn: int, time: int | None) -> bool:
        """Whether nothing inside follows a commit at this LSN and time."""
        last, latest = self.end
        return lsn > last or (time is not None and time > latest)


def _within(low: int | None, value: int | None, high: int | None) -> bool:
    if low is None and high is None:
        return True
    return value is not None and (low is None or low <= value) and (high is None or value <= high)
