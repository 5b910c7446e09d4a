"""Floor 4, the part of a source that is held at a time; knows nothing of messages."""

from __future__ import annotations

from typing import Final

from pgtail.inputs.supply import Supply

LARGE: Final = 4 << 20
"""What is longer than this is looked over where it lies, and held only if all of it is there."""


class Window:
    """`buf` lies at `base` in the source; what stands before `pos` is done with. `final`: nothing follows `buf`."""

    __slots__ = ("base", "buf", "final", "pos", "source")

    def __init__(self, source: Supply) -> None:
        self.source = source
        self.buf = b""
        self.pos = 0
        self.base = source.position
        self.final = False

    @property
    def position(self) -> int:
        """The offset in the source of what is not done with."""
        return self.base + self.pos

    def more(self, missing: int = 1) -> bool:
        """Hold at least `missing` bytes more, or all there are; returns whether there were any.

        `buf` and `base` are other ones afterwards, and `pos` is 0.
        """
        pieces = [self.buf[self.pos :]]
        self.base += self.pos
        self.pos = 0
        while missing > 0:
            piece = self.source.read()
            if not piece:
                self.final = True
                break
            pieces.append(piece)
            missing -= len(piece)
        self.buf = b"".join(pieces)
        return len(pieces) > 1

    def hold(self, size: int) -> None:
        """Hold at least `size` bytes that are not done with, or all there are."""
        have = len(self.buf) - self.pos
        if have < size and not self.final:
            self.more(size - have)

    def give_back(self) -> None:
        """Hold nothing: the source starts again with what is not done with."""
        if not (self.final and self.source.damage is None and self.pos == len(self.buf)):
            self.source.give_back(self.buf[self.pos :])
        self.restart()

    def restart(self) -> None:
        """Go on where the source is now."""
        self.buf = b""
        self.pos = 0
        self.base = self.source.position
        self.final = False
