"""How fast the WAL that slots retain grows, and when it reaches the server's limit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from pgtail.postgres.slot_report import SlotReport

GROWTH: Final = "wal_growth_bytes_per_minute"
"""Fact of a slot: by how much `wal_held_bytes` grows; None for the first report of a slot."""
SAFE_SECONDS: Final = "safe_wal_seconds"
"""Fact of a slot: after how long `safe_wal_size` is used up at this rate; None if it is not, or nothing limits it."""
_WINDOW: Final = 60.0
"""Seconds over which the growth is averaged, where reports are not farther apart."""


class SlotGrowth:
    """Compares each report with that of a minute before."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, int]]] = {}

    def added(self, reports: Iterable[SlotReport], now: float) -> list[SlotReport]:
        """The reports with facts and samples added, those that retain most first; `now` is in seconds of any clock."""
        found = [self._with_growth(report, now) for report in reports]
        there = {report.slot.name for report in found}
        self._samples = {name: samples for name, samples in self._samples.items() if name in there}
        return sorted(found, key=lambda report: -report.retained)

    def _with_growth(self, report: SlotReport, now: float) -> SlotReport:
        samples = self._samples.setdefault(report.slot.name, deque())
        samples.append((now, report.retained))
        while len(samples) > 2 and samples[1][0] <= now - _WINDOW:
            samples.popleft()
        (start, before), (end, held) = samples[0], samples[-1]
        growth = None if end <= start else round((held - before) * 60 / (end - start))
        safe = report.facts.get("safe_wal_size")
        left = None if safe is None or growth is None or growth <= 0 else max(0, safe) * 60 // growth
        facts = {**report.facts, GROWTH: growth, SAFE_SECONDS: left}
        return replace(report, facts=facts, samples=tuple([held for _, held in samples]))
