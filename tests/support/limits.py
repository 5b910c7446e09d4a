"""Time limits in tests, which are longer while the machine is busy."""

from __future__ import annotations

import os

_LEAST = 60.0
"""Seconds: other work may begin after a limit was set."""


def within(seconds: float) -> float:
    """A limit that only ends what hangs, or would take minutes: `seconds` of an idle machine, and at least a minute.

    What waits for servers beside other work takes as many times as long as there is load for each processor.
    """
    return max(seconds, _LEAST) * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
