"""Find the most frequent keys in bounded memory, with a known error.

A Misra-Gries summary (Misra and Gries, Finding repeated elements, 1982) that reduces its counts in batches, as in
Agarwal et al., Mergeable summaries, 2012: every count is too low by at most `error`, and exact while `error` is 0.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Final

MAX_KEYS: Final = 32_768
"""Keys counted at a time."""
MAX_BYTES: Final = 16 << 20
"""Their total size in bytes."""
_AT_ONCE: Final = 1024
"""Keys to count at once, if no count can be lowered between them."""


class HotKeys:
    """Counts keys. `total` is the number of counted keys, `error` how much too low a count may be."""

    def __init__(self, max_keys: int = MAX_KEYS, max_bytes: int = MAX_BYTES) -> None:
        self.max_keys = max_keys
        self.max_bytes = max_bytes
        self.counts = Counter[bytes]()
        self.size = 0
        self.total = 0
        self.error = 0

    def add(self, key: bytes) -> None:
        """Count a key once more."""
        counts = self.counts
        self.total += 1
        known = counts.get(key)
        if known is not None:
            counts[key] = known + 1
            return
        counts[key] = 1
        self.size += len(key)
        if len(counts) > self.max_keys or self.size > self.max_bytes:
            self.reduce_counts()

    def add_all(self, keys: Sequence[bytes]) -> None:
        """Count keys, in this order."""
        for start in range(0, len(keys), _AT_ONCE):
            some, before = keys[start : start + _AT_ONCE], len(self.counts)
            if before + len(some) > self.max_keys or self.size + sum(map(len, some)) > self.max_bytes:
                for key in some:
                    self.add(key)
            else:
                self.total += len(some)
                self.counts.update(some)
                self.size += sum(map(len, islice(reversed(self.counts), len(self.counts) - before)))

    def reduce_counts(self) -> None:
        """Lower all counts by their median, which leaves at most half of the keys."""
        cut = sorted(self.counts.values())[len(self.counts) // 2]
        self.counts = Counter({key: count - cut for key, count in self.counts.items() if count > cut})
        self.size = sum(map(len, self.counts))
        self.error += cut

    def top(self, limit: int) -> list[tuple[bytes, int]]:
        """The `limit` keys with the highest counts, as (key, count), without those counted once.

        Each was counted `count` to `count + error` times.
        """
        found = heapq.nlargest(limit, self.counts.items(), key=lambda item: item[1])
        return [(key, count) for key, count in found if count > 1]
