"""A number that the server knows, such as its current position, queried in the background on short connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from pgtail.errors import ServerError
from pgtail.postgres import catalog
from pgtail.postgres.connection import SHORT_TIMEOUT, Connection, Connector

_PAUSE: Final = 10.0
"""Seconds between two queries."""


class Probe:
    """`answer` is what the last query found; None before the first answer and after a failure.

    `asked` is when that query began, by time.monotonic(). There are at least `pause` seconds between two queries, and
    one runs at a time. Each has its own connection: an idle one would block a smart shutdown.
    """

    def __init__(
        self,
        connector: Connector,
        query: Callable[[Connection], int | None] = catalog.position,
        *,
        pause: float = _PAUSE,
    ) -> None:
        self._connector = connector.without_asking()
        self._query = query
        self._pause = pause
        self._next = 0.0
        self._asking: threading.Thread | None = None
        self.answer: int | None = None
        self.asked = 0.0

    def poll(self) -> None:
        """Start a query if one is due."""
        now = time.monotonic()
        if now < self._next or (self._asking is not None and self._asking.is_alive()):
            return
        self._next = now + self._pause
        self._asking = threading.Thread(target=self._ask, name="probe", daemon=True)
        self._asking.start()

    def _ask(self) -> None:
        asked = time.monotonic()
        try:
            with self._connector.ordinary(connect_timeout=SHORT_TIMEOUT) as connection:
                self.answer = self._query(connection)
                self.asked = asked
        except ServerError:
            self.answer = None
