"""Floor 4, the names in a capture: the order of segments' names is the order of the stream."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

CLOSED: Final = ".pgcap"
"""The ending of a segment that never changes any more."""
OPEN: Final = ".pgcap.part"
"""The ending of one that is being written, or whose last transaction is not whole yet."""
DRAFT: Final = ".pgcap.draft"
"""The ending of one that is being made of an open one."""

_NAME: Final = re.compile(r"([0-9A-F]{16})-([0-9A-F]{10})")


class SegmentName(NamedTuple):
    """Where a segment begins: the commit LSN of its first transaction, and the ordinal of the first change of it.

    A message that belongs to no transaction counts under its own LSN, with the ordinal 0.
    """

    position: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.position:016X}-{self.ordinal:010X}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The name that a file has without its ending; None where it is none."""
        match = _NAME.fullmatch(text)
        return None if match is None else cls(int(match[1], 16), int(match[2], 16))
