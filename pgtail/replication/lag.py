"""The server's current position, queried in the background on short connections."""

from __future__ import annotations

import threading
import time
from typing import Final

from pgtail.errors import ServerError
from pgtail.postgres import catalog
from pgtail.postgres.connection import SHORT_TIMEOUT, Connector

_PAUSE: Final = 10.0
"""Seconds between two queries."""


class LagProbe:
    """`position` is the server's position at the last query; None before the first answer and after a failure.

    `asked` is when that query began, by time.monotonic(). There are at least `pause` seconds between two queries, and
    one runs at a time. Each has its own connection: an idle one would block a smart shutdown.
    """

    def __init__(self, connector: Connector, *, pause: float = _PAUSE) -> None:
        self._connector = connector.without_asking()
        self._pause = pause
        self._next = 0.0
        self._asking: threading.Thread | None = None
        self.position: int | None = None
        self.asked = 0.0

    def poll(self) -> None:
        """Start a query if one is due."""
        now = time.monotonic()
        if now < self._next or (self._asking is not None and self._asking.is_alive()):
            return
        self._next = now + self._pause
        self._asking = threading.Thread(target=self._ask, name="lag", daemon=True)
        self._asking.start()

    def _ask(self) -> None:
        asked = time.monotonic()
        try:
            with self._connector.ordinary(connect_timeout=SHORT_TIMEOUT) as connection:
                self.position = catalog.position(connection)
                self.asked = asked
        except ServerError:
            self.position = None
