"""Queries the server in the background, on short connections: an idle one would block a smart shutdown.

A promotion of a standby changes its timeline, and an ALTER PUBLICATION the set of tables with every change.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from pgtail.changes.complete_tables import CompleteTables
from pgtail.errors import ServerError
from pgtail.postgres import catalog, rows
from pgtail.postgres.connection import SHORT_TIMEOUT, Connection, Connector
from pgtail.postgres.publications import complete_tables, older
from pgtail.replication.identity import Identity
from pgtail.replication.plan import Plan, Publisher

PAUSE: Final = 5.0
"""Seconds between two queries of the timeline."""


class _Probe(ABC):
    """Queries in a thread, one at a time, with at least `pause` seconds from the start of one to the next one's."""

    def __init__(self, connector: Connector, pause: float) -> None:
        self._connector = connector.without_asking()
        self._pause = pause
        self._next = 0.0
        self._asking: threading.Thread | None = None

    @abstractmethod
    def _query(self) -> None:
        """Query the server, and store the answer. Raises ServerError."""

    def _is_due(self) -> bool:
        """Whether enough time has passed, and no query runs."""
        return time.monotonic() >= self._next and not (self._asking is not None and self._asking.is_alive())

    def _start(self) -> threading.Thread:
        self._next = time.monotonic() + self._pause
        self._asking = threading.Thread(target=self._ask, name="probe", daemon=True)
        self._asking.start()
        return self._asking

    def _ask(self) -> None:
        with contextlib.suppress(ServerError):
            self._query()


class Probe(_Probe):
    """Queries a number: `answer` is the last result; None before the first answer and after a failure.

    `asked` is when that query began, by time.monotonic().
    """

    def __init__(
        self,
        connector: Connector,
        query: Callable[[Connection], int | None] = catalog.position,
        *,
        pause: float = 10.0,
    ) -> None:
        super().__init__(connector, pause)
        self._number = query
        self.answer: int | None = None
        self.asked = 0.0

    def poll(self) -> None:
        if self._is_due():
            self._start()

    def _query(self) -> None:
        asked = time.monotonic()
        try:
            with self._connector.ordinary(connect_timeout=SHORT_TIMEOUT) as connection:
                self.answer = self._number(connection)
                self.asked = asked
        except ServerError:
            self.answer = None


class TimelineProbe(_Probe):
    """Queries the timeline of a standby while data arrives from it: the stream does not show a promotion.

    `identity` is the server as known so far; the owner sets it. An answer counts only if it is from the same server
    process: then everything received from it belongs to the history of the new timeline.
    """

    def __init__(self, connector: Connector, wake: Callable[[], None]) -> None:
        super().__init__(connector, PAUSE)
        self._wake = wake
        self._asked_at = 0
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
        if self.is_due(position) and self._is_due():
            self._asked_at = position
            self._start()
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

    def _query(self) -> None:
        # Not left open: it would occupy a walsender.
        with contextlib.closing(self._connector.replication(connect_timeout=SHORT_TIMEOUT)) as connection:
            self._answer = Identity.of(partial(rows.rows, connection))
        self._wake()


class Answer(NamedTuple):
    """The server's answer after this many doubts."""

    doubts: int
    complete: CompleteTables | None


class CompletenessProbe(_Probe):
    """Queries the tables of which the stream has every change, once for each new number of doubts."""

    def __init__(self, publisher: Publisher) -> None:
        super().__init__(publisher.connector, 1.0)
        self._plan = publisher.plan
        self._doubts = self._asked = 0
        self._answer: Answer | None = None

    def poll(self, doubts: int) -> Answer | None:
        """Start a query if one is due; returns an answer that came since then."""
        answer, self._answer = self._answer, None
        if doubts > self._asked and self._is_due():
            self._doubts = doubts
            self._start()
        return answer

    def _query(self) -> None:
        doubts = self._doubts
        with self._connector.ordinary(connect_timeout=SHORT_TIMEOUT) as connection:
            self._answer = Answer(doubts, complete_tables(connection, self._plan.options))
        self._asked = doubts


def complete_since_start(connection: Connection, plan: Plan) -> CompleteTables | None:
    """The tables of which the stream has every change from its start until now. Raises ServerError.

    None if a publication may have been altered since the position of a slot.
    """
    names = {one.name for one in plan.publications}
    if plan.source is not None and not names <= set(older(connection, plan.source)):
        return None
    return complete_tables(connection, plan.options)
