"""The part of a source that is in memory."""

from __future__ import annotations

from typing import Final

from pgtail.inputs.source.base import ByteStream

LARGE: Final = 4 << 20
"""A longer message is checked with a SkimCursor before it is read into memory."""


class Window:
    """`buf` starts at offset `base` of the source; bytes before `pos` are used. `final`: nothing follows `buf`."""

    __slots__ = ("base", "buf", "final", "pos", "source")

    def __init__(self, source: ByteStream) -> None:
        self.source = source
        self.buf = b""
        self.pos = 0
        self.base = source.position
        self.final = False

    @property
    def position(self) -> int:
        """Source offset of the first unused byte."""
        return self.base + self.pos

    def more(self, missing: int = 1) -> bool:
        """Read at least `missing` more bytes, or all there are. Returns whether there were any.

        Replaces `buf` and `base`, and sets `pos` to 0.
        """
        rest = self.buf[self.pos :]
        self.base += self.pos
        self.pos = 0
        pieces = [rest]
        if self.source.rereads:  # one read brings all: joining it to the rest would copy it
            self.source.give_back(rest)
            missing += len(rest)
            pieces = []
        while missing > 0:
            piece = self.source.read()
            if not piece:
                self.final = True
                break
            pieces.append(piece)
            missing -= len(piece)
        self.buf = b"".join(pieces)
        return len(self.buf) > len(rest)

    def hold(self, size: int) -> None:
        """Have at least `size` unused bytes in `buf`, or all there are."""
        have = len(self.buf) - self.pos
        if have < size and not self.final:
            self.more(size - have)

    def give_back(self) -> None:
        """Empty the window: the source continues with the unused bytes."""
        if not (self.final and self.source.damage is None and self.pos == len(self.buf)):
            self.source.give_back(self.buf[self.pos :])
        self.restart()

    def restart(self) -> None:
        """Continue at the source's position, with an empty window."""
        self.buf = b""
        self.pos = 0
        self.base = self.source.position
        self.final = False
