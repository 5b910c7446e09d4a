"""The current timeline of a standby: a promotion changes it, and the stream does not show that."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from pgtail.errors import ServerError
from pgtail.postgres import rows
from pgtail.postgres.connection import SHORT_TIMEOUT, Connector
from pgtail.replication.identity import Identity

PAUSE: Final = 5.0
"""Seconds between two queries. Each has its own connection: an idle one would occupy a walsender."""


class TimelineProbe:
    """Queries the timeline of a standby in the background, on short connections, while data arrives from it.

    `identity` is the server as known so far; the owner sets it. An answer counts only if it is from the same server
    process: then everything received from it belongs to the history of the new timeline.
    """

    def __init__(self, connector: Connector, wake: Callable[[], None]) -> None:
        self._connector = connector.without_asking()
        self._wake = wake
        self._next = 0.0
        self._asked_at = 0
        self._asking: threading.Thread | None = None
        self._answer: Identity | None = None
        self.wanted = True
        """Whether the result will be used."""
        self.identity = Identity("", 0)

    def is_due(self, position: int) -> bool:
        """Whether data up to `position` has arrived since the last query, or there was none yet."""
        return self.wanted and self.identity.in_recovery and position != self._asked_at

    def poll(self, position: int) -> Identity | None:
        """Start a query if one is due. Returns the identity if an answer has changed it."""
        if self._answer is not None:
            return self._accept()
        now = time.monotonic()
        if self.is_due(position) and now >= self._next and not (self._asking and self._asking.is_alive()):
            self._next, self._asked_at = now + PAUSE, position
            self._asking = self._start()
        return None

    def ask(self, seconds: float) -> Identity | None:
        """Query now and wait this many seconds. Returns the identity if it has changed."""
        if not self.identity.in_recovery:
            return None
        self._start().join(seconds)
        return self._accept()

    def _accept(self) -> Identity | None:
        answer, self._answer = self._answer, None
        before = self.identity
        if answer is None or not answer.same_run(before) or answer.timeline < before.timeline:
            return None
        self.identity = answer
        return None if answer.timeline == before.timeline else answer

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._ask, name="timeline", daemon=True)
        thread.start()
        return thread

    def _ask(self) -> None:
        with contextlib.suppress(ServerError):
            with contextlib.closing(self._connector.replication(connect_timeout=SHORT_TIMEOUT)) as connection:
                self._answer = Identity.of(partial(rows.rows, connection))
            self._wake()
