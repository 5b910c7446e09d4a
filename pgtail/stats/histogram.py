"""Percentiles of many numbers in bounded memory."""

from __future__ import annotations

from collections import Counter
from typing import Final

_DIGITS: Final = 5
"""Leading binary digits kept of a number: percentiles are too high by at most a sixteenth."""


class Histogram:
    """Non-negative numbers, counted by their leading digits: `count`, `total` and `maximum` are exact."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = self.total = self.maximum = 0

    def add(self, number: int) -> None:
        """Count a number."""
        self.count += 1
        self.total += number
        self.maximum = max(self.maximum, number)
        drop = max(0, number.bit_length() - _DIGITS)
        self._buckets[number >> drop << drop | (1 << drop) - 1] += 1

    def percentile(self, percent: int) -> int:
        """The smallest number that `percent` of all do not exceed, or up to a sixteenth more."""
        left = -(-self.count * percent // 100)
        for number in sorted(self._buckets):
            left -= self._buckets[number]
            if left <= 0:
                return min(number, self.maximum)
        return 0
