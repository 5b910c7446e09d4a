"""Local time of another zone, for a test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def zone(name: str) -> Iterator[None]:
    """A context in which local time is that of this zone. Skips the test where the machine does not know it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        try:
            if name != "UTC" and time.timezone == 0 and not time.daylight:
                pytest.skip(f"the machine does not know the time zone {name}")
            yield
        finally:
            patch.undo()
            time.tzset()
