"""Floor 5, how far the server is ahead, asked now and then on a short connection of its own; nobody waits for it."""

from __future__ import annotations

import threading
import time
from typing import Final

import psycopg

from pgtail.errors import ServerError
from pgtail.server import facts
from pgtail.server.connection import Connector

_PAUSE: Final = 10.0
"""Seconds between two questions. The connection does not stay: it would hold up a smart shutdown."""


class LagProbe:
    """`position` is the server's position when it was last asked, None before the first answer."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector.without_asking()
        self._next = 0.0
        self.position: int | None = None

    def look(self) -> None:
        """Ask again, if it is time to."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _PAUSE
        threading.Thread(target=self._ask, name="lag", daemon=True).start()

    def _ask(self) -> None:
        try:
            with self._connector.ordinary(patience=5) as connection:
                self.position = facts.position(connection)
        except (ServerError, psycopg.Error):
            self.position = None
