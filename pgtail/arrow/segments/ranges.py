"""Half-open ranges of places in the stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias


class Place(NamedTuple):
    """The LSN that orders a transaction (or a message outside of one), and the number of a message in it.

    A message outside has the number 0 and the LSN of its end. The commit record of a transaction may start right there:
    the two have the same LSN, and the transaction comes second.
    """

    position: int
    ordinal: int

    @property
    def next(self) -> Place:
        """The place right after this one."""
        return Place(self.position, self.ordinal + 1)

    @property
    def transactions_before(self) -> int:
        """The LSN up to which transactions are before this place: a message outside of them comes first, then the
        messages of the transaction at the same LSN, from 1 on."""
        return self.position - (self.ordinal <= 1)


class Range(NamedTuple):
    """From a place up to another, which is not in it."""

    first: Place
    end: Place

    def overlaps(self, other: Range) -> bool:
        return self.first < other.end and other.first < self.end

    def covers(self, other: Range) -> bool:
        return self.first <= other.first and other.end <= self.end

    def without(self, others: Iterable[Range]) -> tuple[Range, ...]:
        """The parts that are in none of the others."""
        left = [self]
        for other in others:
            before = [Range(part.first, min(part.end, other.first)) for part in left]
            after = [Range(max(part.first, other.end), part.end) for part in left]
            left = [part for part in (*before, *after) if part.first < part.end]
        return tuple(sorted(left))

    @property
    def transactions(self) -> range:
        """The positions of the transactions whose first message is in it."""
        return range(self.first.transactions_before + 1, self.end.transactions_before + 1)


Parts: TypeAlias = tuple[Range, ...] | None
"""Parts of a segment; None for everything."""

EVERYWHERE: Final[Parts] = None


def within(parts: Parts, position: int, ordinal: int) -> bool:
    """Whether a place is in one of these parts."""
    return parts is None or any(first <= (position, ordinal) < end for first, end in parts)


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The same places in as few ranges as possible, in order."""
    merged: list[Range] = []
    for part in sorted(ranges):
        if merged and part.first <= merged[-1].end:
            merged[-1] = Range(merged[-1].first, max(merged[-1].end, part.end))
        else:
            merged.append(part)
    return merged
