"""Time limits in tests, scaled to the current speed of the machine.

A limit is given in seconds that are ample on an idle machine of today. It only ends tests that hang, so it may always
be longer, never shorter.
"""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import sys
import time

import pytest

_SAMPLE = "import psycopg, rich.console, pgtail.cli.stream"
_USUAL = 0.3
"""Seconds that the sample takes on an idle machine."""


def slowness() -> float:
    """How many times slower than usual the machine is now, at least 1.

    The larger of a measurement, made once, and the current load per processor.
    """
    return max(1.0, _measured(), os.getloadavg()[0] / (os.cpu_count() or 1))


@functools.cache
def _measured() -> float:
    """With pytest-xdist all test processes measure at the same time, before their first test."""
    return statistics.median(_sample() for _ in range(3)) / _USUAL


def _sample() -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", _SAMPLE], check=False)
    return time.perf_counter() - begun


def within(seconds: float) -> float:
    """A limit given in seconds of an idle machine, scaled to the current speed."""
    return seconds * slowness()


def limit_test(item: pytest.Item) -> None:
    """Scale the limit of a whole test: its mark's, or that of pyproject.toml."""
    mark = item.get_closest_marker("timeout")
    if mark is None and item.config.getoption("timeout") is not None:
        return  # a limit from the command line is not scaled
    seconds = mark.args[0] if mark is not None else item.config.getini("timeout")
    if seconds:
        item.add_marker(pytest.mark.timeout(within(float(seconds))), append=False)
