"""Says by a segment's contents whether it has any of the changes that are wanted, so that it need not be read."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct

from pgtail.capture.contents import SegmentContents, TableContents
from pgtail.capture.format import SegmentName

BEYOND: Final = 1 << 64
"""More than any LSN, xid or time in microseconds; its negative is less."""


class Bounds(NamedTuple):
    """The least and the greatest number, both included."""

    least: int = -BEYOND
    most: int = BEYOND

    def within(self, other: Bounds) -> Bounds:
        """The numbers that are in both."""
        return Bounds(max(self.least, other.least), min(self.most, other.most))

    def excludes(self, least: int, most: int) -> bool:
        """Whether none of the numbers from `least` to `most` is in it."""
        return most < self.least or least > self.most


class Limits(Struct, frozen=True):
    """What a wanted change has: one of these operations, if there are any, and numbers within these bounds.

    Times are in microseconds since 2000-01-01 UTC.
    """

    ops: tuple[str, ...] = ()
    position: Bounds = Bounds()
    xid: Bounds = Bounds()
    time: Bounds = Bounds()

    def exclude(self, contents: SegmentContents, end: int, start: int | None = None) -> bool:
        """Whether no change in a segment of this contents can be wanted; no position in it is greater than `end`, or
        less than `start`, by default that in its name."""
        name = SegmentName.parse(contents.segment)
        if start is None:
            start = 0 if name is None else name.position
        return (
            self.xid.excludes(*(contents.xids or Bounds()))
            or self.time.excludes(*(contents.times or Bounds()))
            or self.position.excludes(start, end)
        )

    def want_op(self, op: str) -> bool:
        """Whether changes with this operation can be wanted."""
        return not self.ops or op in self.ops

    def want_any(self, table: TableContents) -> bool:
        """Whether a segment has changes of this table with a wanted operation."""
        counts = zip(("insert", "update", "delete", "truncate"), table[2:6], strict=True)
        return any(count and self.want_op(op) for op, count in counts)


EVERYTHING: Final = Limits()
