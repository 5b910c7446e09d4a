"""What one run of a program costs: wall and CPU time, and peak memory, as the system counts them."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SPAWN = Path(__file__).with_name("spawn.py")
FLOOR = 10
"""Megabytes below which a peak is this measurement's own."""


class Failed(Exception):
    """A program failed; the message is its own."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: seconds, seconds of user and system time, megabytes."""

    wall: float
    cpu: float
    peak: float


@dataclass(frozen=True, slots=True)
class Cost:
    """Several runs of one program."""

    runs: list[Run]

    @property
    def cpu(self) -> float:
        return statistics.median(run.cpu for run in self.runs)

    @property
    def wall(self) -> float:
        return statistics.median(run.wall for run in self.runs)

    @property
    def peak(self) -> float:
        return max(run.peak for run in self.runs)

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the most CPU time of a run."""
        return min(run.cpu for run in self.runs), max(run.cpu for run in self.runs)


def run(command: Sequence[str | Path], output: Path) -> Run:
    """Run a program with its standard output going to a file. Raises Failed if it does not end well."""
    measuring: list[str | Path] = [sys.executable, "-I", "-S", SPAWN, output, *command]
    done = subprocess.run(measuring, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        status, wall, cpu, peak = done.stdout.split()
        if status == "0":
            return Run(float(wall), float(cpu), int(peak) / (1 << 20 if sys.platform == "darwin" else 1 << 10))
    raise Failed("\n".join(done.stderr.strip().splitlines()[-3:]) or "it failed without a word")
