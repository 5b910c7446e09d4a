"""How long anything may take in the tests: limits follow the speed of the machine as it is while they run.

A limit is written as the seconds that are ample on an idle machine of today. It is there to end what hangs, so it may
always be longer, never shorter.
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
    """How many times longer than usual anything takes here and now, at least 1.

    That is what a process took once, and how many of them share a processor by now.
    """
    return max(1.0, _measured(), os.getloadavg()[0] / (os.cpu_count() or 1))


@functools.cache
def _measured() -> float:
    """With pytest-xdist all processes of the tests measure at the same time, before their first test."""
    return statistics.median(_sample() for _ in range(3)) / _USUAL


def _sample() -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", _SAMPLE], check=False)
    return time.perf_counter() - begun


def within(seconds: float) -> float:
    """The limit, as of now, that is so long on an idle machine."""
    return seconds * slowness()


def limit_test(item: pytest.Item) -> None:
    """Scale the limit of a whole test: its mark's, or that of pyproject.toml."""
    mark = item.get_closest_marker("timeout")
    if mark is None and item.config.getoption("timeout") is not None:
        return  # that of the command line is meant as it is
    seconds = mark.args[0] if mark is not None else item.config.getini("timeout")
    if seconds:
        item.add_marker(pytest.mark.timeout(within(float(seconds))), append=False)
