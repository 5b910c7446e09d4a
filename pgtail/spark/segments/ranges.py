"""Places in the stream and the parts of segments that are to be read; knows no bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias


class Place(NamedTuple):
    """The LSN that orders a transaction (or what belongs to none), and the number of a message in it."""

    position: int
    ordinal: int


class Part(NamedTuple):
    """From one place to another, both inclusive."""

    first: Place
    last: Place


Parts: TypeAlias = tuple[Part, ...] | None
"""Parts that do not overlap, in order; None for everything."""

EVERYWHERE: Final[Parts] = None
NOWHERE: Final = Part(Place(0, 0), Place(0, 0))


def within(parts: Parts, position: int, ordinal: int) -> bool:
    """Whether a place lies in one of these parts."""
    return parts is None or any(first <= (position, ordinal) <= last for first, last in parts)


def left_of(part: Part, covered: Iterable[Part]) -> tuple[Part, ...]:
    """What is left of a part where others lie over it, which do not overlap each other."""
    left = [part]
    for other in covered:
        left = [piece for rest in left for piece in _without(rest, other)]
    return tuple(left)


def _without(part: Part, other: Part) -> list[Part]:
    if other.last < part.first or part.last < other.first:
        return [part]
    pieces = []
    if part.first < other.first:
        pieces.append(Part(part.first, _step(other.first, -1)))
    if other.last < part.last:
        pieces.append(Part(_step(other.last, 1), part.last))
    return pieces


def _step(place: Place, by: int) -> Place:
    """The next place, or the one before: no place lies between, whether anything stands at it or not."""
    return Place(place.position, place.ordinal + by)
