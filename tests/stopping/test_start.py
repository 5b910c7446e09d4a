"""Ctrl-C while the program that make installs is starting: no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("pgtail")


def test_no_traceback_at_any_moment_of_the_start() -> None:
    if not (PROGRAM.is_file() and b"pthread_sigmask" in PROGRAM.read_bytes()):
        pytest.skip("pgtail was not installed by make, which writes this program")
    statuses = set()
    for moment in range(0, 90, 3):
        running = subprocess.Popen(
            [PROGRAM, "decode", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        time.sleep(moment / 1000)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
        assert b"Traceback" not in said, (moment, said)
        statuses.add(running.returncode)
    assert statuses <= {-signal.SIGINT, 130, 0, 1}, "1: the input is empty, and 0: the signal came while it was read"
    assert 130 in statuses
