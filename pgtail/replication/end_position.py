"""Finds where a session ends if its start does not determine it: after a time, or inside an incomplete record."""

from __future__ import annotations

import time
from typing import Final

from pgtail.replication.feedback import Feedback
from pgtail.replication.probe import Probe

TICK: Final = 1.0
"""Seconds of silence after which the server is asked, and between two questions."""


class EndPosition:
    """Finds the position at which to end.

    It is `until`, up to which the server had flushed its WAL before any session began, or after `seconds` the server's
    position at that time, which `position` queries. That can be in the middle of a record, as the server flushes whole
    pages of what open transactions write, and the walsender then waits for the rest, however long. `waiting` queries
    whether it waits for WAL, and when: it has then sent what all complete records up to there have
    (src/backend/replication/walsender.c, WalSndWaitForWal, reads the flushed position before it waits), and a
    keepalive of later has the end of the last one. Where the position was queried while the session runs, the walsender
    may have waited since before it was flushed: then a keepalive shows that it reads it again, and the next wait
    counts.
    """

    def __init__(self, until: int | None, seconds: float | None, position: Probe, waiting: Probe) -> None:
        self._until = until
        self._passes = None if seconds is None else time.monotonic() + seconds
        self._position = position
        self._waiting = waiting
        self._waited: int | None = None
        self._begun = 0.0
        """Waits of the walsender that began earlier do not count, by time.monotonic()."""
        self._flushed_before = True
        """Whether the server had flushed its WAL up to `until` before the walsender began the present wait."""
        self.asks = False
        """Whether the server must be asked for keepalives."""

    def now(self) -> None:
        """End at the server's position as it is now. Any thread may call it."""
        self._passes = time.monotonic()

    def begin(self) -> None:
        """A session begins."""
        self._count_waits(flushed_before=True)

    def _count_waits(self, *, flushed_before: bool) -> None:
        self._begun, self._waited = time.monotonic(), None
        self._flushed_before = flushed_before

    def poll(self, feedback: Feedback, now: float) -> int | None:
        """The position at which to end, once it is found."""
        if self._passes is not None and now >= self._passes:
            self._position.poll()
            if self._position.answer is not None:
                self._passes, self._until, self.asks = None, self._position.answer, True
                self._count_waits(flushed_before=False)
                return self._until
        elif self._until is not None and self._until > feedback.received and self._is_silent(feedback, now):
            self._waiting.poll()
            if self._waiting.asked > self._begun:  # it was this session's walsender
                self._waited = self._waiting.answer
                self.asks = self._waited is not None
        return None

    def _is_silent(self, feedback: Feedback, now: float) -> bool:
        """Whether only requested messages have arrived lately."""
        return now - (feedback.last_data if self.asks else feedback.last_frame) > TICK

    @property
    def since(self) -> int | None:
        """The time on the server's clock after which the next keepalive is for reached(); None if none is."""
        return None if self._until is None else self._waited

    def reached(self, end_lsn: int) -> int | None:
        """The position at which to end, if this end of a keepalive after `since` shows it."""
        if not self._flushed_before:
            self._count_waits(flushed_before=True)
            return None
        assert self._until is not None
        end, self._until = min(self._until, end_lsn), None
        return end

    def due(self, now: float) -> float | None:
        """When to call poll() again."""
        if self._passes is not None:
            return self._passes if self._passes > now else now + TICK
        return None if self._until is None and not self.asks else now + TICK
