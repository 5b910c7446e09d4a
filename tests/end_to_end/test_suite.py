"""The test suite itself: ignored signals, a slow machine or missing pseudo-terminals do not make it fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import limits
from tests.support.servers import installations
from tests.support.terminals import on_terminal, open_terminal

CHECKOUT = Path(__file__).parents[2]
SUITE = """
import os, signal, subprocess, sys
def test_signals():
    os.kill(os.getpid(), signal.SIGHUP)
    ask = "import signal; print(*[signal.getsignal(one).__repr__() for one in (1, 2, 3)])"
    handlers = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert "IGN" not in handlers, handlers
"""
IGNORING = ["sh", "-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh"]
"""As nohup, and a job in the background of a script."""


@pytest.mark.in_one_run_of(6)
@pytest.mark.parametrize("workers", [[], ["-n1"]], ids=["plain", "xdist"])
def test_programs_under_test_do_not_inherit_ignored_signals(tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "test_signals.py").write_text(SUITE)
    command = [*IGNORING, sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", *workers]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**outside, "PYTHONPATH": str(CHECKOUT)}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.timeout(77)
def test_a_slow_machine_has_longer_limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    assert request.node.get_closest_marker("timeout").args[0] >= 77
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0 * (os.cpu_count() or 1), 0.0, 0.0))
    assert limits.within(77) >= 77_000
    limits.limit_test(request.node)
    assert request.node.get_closest_marker("timeout").args[0] >= 77_000


def test_only_the_servers_that_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGTAIL_TEST_SERVERS", "18 16")
    assert {one.major for one in installations.__wrapped__().values()} == {16, 18}
    monkeypatch.setenv("PGTAIL_TEST_SERVERS", "18,16 9")
    with pytest.raises(pytest.UsageError, match="no server of version 18,16 or 9 was found"):
        installations.__wrapped__()


def test_without_pseudo_terminals_a_test_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise OSError("out of pty devices")

    monkeypatch.setattr("os.openpty", none)
    with pytest.raises(pytest.skip.Exception, match="this system has no pseudo-terminals: out of pty devices"):
        open_terminal()
    with pytest.raises(pytest.skip.Exception, match="no pseudo-terminals"):
        on_terminal(["true"])
