"""Floor 4, how large many numbers are: in how many of them half, and nearly all, stay below which; knows no unit."""

from __future__ import annotations

from collections import Counter
from typing import Final

_DIGITS: Final = 5
"""Binary digits that are kept of a number: what is reported is too high by at most a sixteenth."""


class Spread:
    """Numbers from 0 on, counted by their first digits: `count`, `total` and `most` are exact."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = self.total = self.most = 0

    def add(self, number: int) -> None:
        """One more number."""
        self.count += 1
        self.total += number
        self.most = max(self.most, number)
        drop = max(0, number.bit_length() - _DIGITS)
        self._buckets[number >> drop << drop | (1 << drop) - 1] += 1

    def below(self, percent: int) -> int:
        """A number that so many percent of all do not exceed: the least such one, or up to a sixteenth more."""
        left = -(-self.count * percent // 100)
        for number in sorted(self._buckets):
            left -= self._buckets[number]
            if left <= 0:
                return min(number, self.most)
        return 0
