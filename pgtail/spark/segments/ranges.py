"""Half-open ranges of places in the stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias


class Place(NamedTuple):
    """The LSN that orders a transaction (or what belongs to none), and the number of a message in it.

    What belongs to no transaction has the number 0 and the LSN of its end. The commit record of a transaction may start
    right there: the two have the same LSN, and the transaction comes second.
    """

    position: int
    ordinal: int

    @property
    def next(self) -> Place:
        """The place after this one: there is none between the two."""
        return Place(self.position, self.ordinal + 1)

    @property
    def transactions_before(self) -> int:
        """The LSN up to which transactions are before this place: what is at the same LSN comes first, then its
        transaction's messages from 1 on."""
        return self.position - (self.ordinal <= 1)


class Range(NamedTuple):
    """From a place up to another, which is not in it."""

    first: Place
    end: Place

    def overlaps(self, other: Range) -> bool:
        """Whether some place is in both."""
        return self.first < other.end and other.first < self.end

    def covers(self, other: Range) -> bool:
        """Whether every place of the other is in this one."""
        return self.first <= other.first and other.end <= self.end

    def without(self, others: Iterable[Range]) -> tuple[Range, ...]:
        """What is in none of the others."""
        left = [self]
        for other in others:
            before = [Range(one.first, min(one.end, other.first)) for one in left]
            after = [Range(max(one.first, other.end), one.end) for one in left]
            left = [one for one in (*before, *after) if one.first < one.end]
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
    found: list[Range] = []
    for one in sorted(ranges):
        if found and one.first <= found[-1].end:
            found[-1] = Range(found[-1].first, max(found[-1].end, one.end))
        else:
            found.append(one)
    return found
