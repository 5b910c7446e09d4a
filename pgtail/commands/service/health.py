"""Whether a service does its work: what /healthz, the metrics and the log say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pgtail.commands.options.server import MaxLag
from pgtail.humanize import seconds_text, size_text
from pgtail.service.progress import Progress

_UNHEALTHY_AFTER: Final = 8.0


class Health:
    """Judges `progress`: unhealthy is what has not done its work for 8 seconds, or lags too far.

    `info` describes what runs, for the metrics.
    """

    def __init__(self, progress: Progress, max_lag: MaxLag | None, info: Mapping[str, str]) -> None:
        self.progress = progress
        self.max_lag = max_lag
        self.info = dict(info)

    def excess(self, now: float) -> str | None:
        """How far the lag is over `max_lag`; None if it is not, or not known."""
        most, progress = self.max_lag, self.progress
        if most is None:
            return None
        if most.bytes is not None:
            size = progress.lag_bytes
            return None if size is None or size <= most.bytes else f"{size_text(size)} behind"
        seconds = progress.lag_seconds(now)
        if seconds is None or most.seconds is None or seconds <= most.seconds:
            return None
        return f"{seconds_text(int(seconds))} behind"

    def answer(self, now: float) -> tuple[int, Mapping[str, object]]:
        """The HTTP status for /healthz, and what it says."""
        trouble, excess = self.progress.trouble(now), self.excess(now)
        if trouble is not None and now - trouble.since >= _UNHEALTHY_AFTER:
            return 503, {"status": "unhealthy", "reason": trouble.reason, "seconds": round(now - trouble.since, 1)}
        if excess is not None:
            return 503, {"status": "unhealthy", "reason": f"{excess}, more than {self.max_lag}"}
        return 200, {"status": "ok"} if trouble is None else {"status": "ok", "trouble": trouble.reason}
