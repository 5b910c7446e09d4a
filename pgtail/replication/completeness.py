"""The tables of which a stream has every change: asked again when an ALTER PUBLICATION may have changed that."""

from __future__ import annotations

import threading
import time
from typing import Final, NamedTuple

from pgtail.changes.complete_tables import CompleteTables
from pgtail.errors import ServerError
from pgtail.postgres.connection import SHORT_TIMEOUT, Connection
from pgtail.postgres.publications import complete_tables, older
from pgtail.replication.plan import Plan
from pgtail.replication.publisher import Publisher

_PAUSE: Final = 1.0
"""Seconds between two queries."""


class Answer(NamedTuple):
    """What the server said after this many doubts."""

    doubts: int
    complete: CompleteTables | None


class CompletenessProbe:
    """Queries it in the background, on short connections, once for each new number of doubts."""

    def __init__(self, publisher: Publisher) -> None:
        self._plan = publisher.plan
        self._connector = publisher.connector.without_asking()
        self._asked = 0
        self._next = 0.0
        self._asking: threading.Thread | None = None
        self._answer: Answer | None = None

    def poll(self, doubts: int) -> Answer | None:
        """Start a query if one is due; returns an answer that came since then."""
        answer, self._answer = self._answer, None
        busy = self._asking is not None and self._asking.is_alive()
        if doubts > self._asked and not busy and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PAUSE
            self._asking = threading.Thread(target=self._ask, args=(doubts,), name="publications", daemon=True)
            self._asking.start()
        return answer

    def _ask(self, doubts: int) -> None:
        try:
            with self._connector.ordinary(connect_timeout=SHORT_TIMEOUT) as connection:
                self._answer = Answer(doubts, complete_tables(connection, self._plan.options))
        except ServerError:
            return  # asked again
        self._asked = doubts


def complete_since_start(connection: Connection, plan: Plan) -> CompleteTables | None:
    """The tables of which the stream has every change from its start until now. Raises ServerError.

    None if a publication may have been altered since the position of a slot.
    """
    names = {one.name for one in plan.publications}
    if plan.source is not None and not names <= set(older(connection, plan.source)):
        return None
    return complete_tables(connection, plan.options)
