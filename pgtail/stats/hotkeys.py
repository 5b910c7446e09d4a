"""Floor 4, which keys come up most often, counted in bounded memory with an error that is known; knows no table.

A Misra-Gries summary (Misra and Gries, Finding repeated elements, 1982) that takes back in batches, as in Agarwal et
al., Mergeable summaries, 2012: every count is too low by at most `error`, and exact while `error` is 0.
"""

from __future__ import annotations

import heapq
from typing import Final, TypeAlias

from pgtail.wire.cells import TupleData

MOST: Final = 32_768
"""Keys that are counted at a time."""
ROOM: Final = 16 << 20
"""Bytes that they may have together."""

Key: TypeAlias = tuple[int, TupleData]
"""(Relation.version, the cells of the key's columns in their order)."""


class HotKeys:
    """Counts keys. `most` and `room` bound what is kept; `total` is how many were counted, `error` how far off."""

    def __init__(self, most: int = MOST, room: int = ROOM) -> None:
        self._most = most
        self._room = room
        self._counts: dict[Key, int] = {}
        self._size = 0
        self.total = 0
        self.error = 0

    def add(self, key: Key) -> None:
        """Count a key once more."""
        counts = self._counts
        self.total += 1
        known = counts.get(key)
        if known is not None:
            counts[key] = known + 1
            return
        counts[key] = 1
        self._size += _size(key)
        if len(counts) > self._most or self._size > self._room:
            self._take_back()

    def _take_back(self) -> None:
        """Lower all counts alike, so that at most half of the keys are left."""
        cut = sorted(self._counts.values())[len(self._counts) // 2]
        self._counts = {key: count - cut for key, count in self._counts.items() if count > cut}
        self._size = sum(map(_size, self._counts))
        self.error += cut

    def top(self, most: int, least: int = 2) -> list[tuple[Key, int]]:
        """The keys with the highest counts, those that came `least` times at least: (key, count).

        Each came `count` to `count + error` times, and no key that is missing more often than `error` and the last
        count allow.
        """
        found = heapq.nlargest(most, self._counts.items(), key=lambda item: item[1])
        return [(key, count) for key, count in found if count >= least]


def _size(key: Key) -> int:
    """Bytes of the key's cells."""
    return sum([len(cell) for cell in key[1] if isinstance(cell, bytes)])
