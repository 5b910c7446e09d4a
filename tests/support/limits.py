"""Time limits in tests, which are longer while the machine is busy."""

from __future__ import annotations

import os

_LEAST = 60.0
"""Seconds: other work may begin after a limit was set."""


def slowness() -> float:
    """The load per processor, at least 1: what waits for servers beside other work takes so many times as long."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def within(seconds: float) -> float:
    """A limit that only ends what hangs, or would take minutes: `seconds` of an idle machine, and at least a minute."""
    return max(seconds, _LEAST) * slowness()
