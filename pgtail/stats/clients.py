"""The positions that the clients of a packet capture confirmed, and their lag behind the commits sent to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from pgtail.pgoutput.decoder import FromClient
from pgtail.pgoutput.walsender import StartReplication

_MOST: Final = 1000
"""Clients to keep."""
_MAX_POINTS: Final = 120
"""Points of the lag of a client to keep."""


class Client(Struct):
    """One client. LSNs are 0 until one was seen; times are in microseconds since 2000-01-01 UTC, None if unknown.

    `confirmed` is the highest flush position, `advanced` when it last rose, `last` when the last status update came.
    `pending`: a commit that had been sent was not confirmed at the last status update. `behind` is how many bytes of
    WAL it was after the confirmed position, and `most_behind` the maximum of that; None until a position was confirmed,
    because the position at which the client began is unknown.
    """

    address: str
    server: str
    slot: str | None = None
    updates: int = 0
    confirmed: int = 0
    advanced: int | None = None
    last: int | None = None
    pending: bool = False
    behind: int | None = None
    most_behind: int | None = None
    lag: list[tuple[int, int]] = field(default_factory=list)
    """Times at least `lag_width` apart, and how many bytes it was behind at most from then until the next one."""
    lag_width: int = 0

    @property
    def stuck_for(self) -> int | None:
        """Microseconds from the last advance to the last status update, if a commit was not confirmed then."""
        if not self.pending or self.last is None or self.advanced is None:
            return None
        return self.last - self.advanced


class Clients:
    """The clients of one input, in the order in which they came."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Client] = {}

    def __iter__(self) -> Iterator[Client]:
        return iter(self._known.values())

    def add(self, from_client: FromClient, sent: int) -> None:
        """Count a message that came after the commit at LSN `sent` (0 if there was none)."""
        key = from_client.client, from_client.server
        if key not in self._known and len(self._known) == _MOST:
            return
        client = self._known.setdefault(key, Client(*key))
        message = from_client.message
        if isinstance(message, StartReplication):
            client.slot = message.slot
            client.advanced = from_client.time
            return
        client.updates += 1
        client.last = from_client.time
        if message.flush_lsn > client.confirmed or client.advanced is None:
            client.advanced = from_client.time
        client.confirmed = max(client.confirmed, message.flush_lsn)
        client.pending = sent > client.confirmed
        if client.confirmed:
            client.behind = max(0, sent - client.confirmed)
            client.most_behind = max(client.most_behind or 0, client.behind)
            if client.last is not None:
                _add_lag(client, client.last, client.behind)


def _add_lag(client: Client, time: int, behind: int) -> None:
    """Add a point, and widen the distance of points if there are too many."""
    points = client.lag
    if points and time < points[-1][0] + client.lag_width:
        points[-1] = points[-1][0], max(points[-1][1], behind)
        return
    points.append((time, behind))
    if len(points) > _MAX_POINTS:
        client.lag, client.lag_width = [], 2 * (time - points[0][0]) // _MAX_POINTS + 1
        for point in points:
            _add_lag(client, *point)
