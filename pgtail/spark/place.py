"""Floor 7, places in the stream: parts of segments that are to be read, and how to cut them; knows no bytes."""

from __future__ import annotations

from typing import Final, NamedTuple

Place = tuple[int, int]
"""(position, ordinal): the LSN that orders a transaction, and the number of a message in it."""

BEFORE_ALL: Final[Place] = (-1, 0)
BEHIND_ALL: Final[Place] = (1 << 64, 0)


class Part(NamedTuple):
    """From a place on (inclusive) up to another one (exclusive)."""

    first: Place
    behind: Place

    def __contains__(self, place: object) -> bool:
        return self.first <= place < self.behind  # type: ignore[operator]


EVERYWHERE: Final = Part(BEFORE_ALL, BEHIND_ALL)
