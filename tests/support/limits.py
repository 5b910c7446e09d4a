"""Time limits in tests, which are longer while the machine is busy.

A limit is given in seconds that are ample on an idle machine of today. It only ends what hangs, or would take many
times as long, so it may always be longer, never shorter.
"""

from __future__ import annotations

import os


def slowness() -> float:
    """The load per processor, at least 1: what waits for servers beside other work takes so many times as long."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def within(seconds: float) -> float:
    """A limit given in seconds of an idle machine, scaled to the current load."""
    return seconds * slowness()
