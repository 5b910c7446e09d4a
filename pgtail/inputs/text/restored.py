"""The base class of what hexdump reads: text that another program laid out, restored to the bytes that it shows."""

from __future__ import annotations

import bisect
from abc import abstractmethod
from array import array
from collections.abc import Iterator
from typing import Final

from pgtail.errors import InputError
from pgtail.inputs.source.base import ByteStream
from pgtail.inputs.source.window import Window

MAX_KNOWN: Final = 1 << 18
"""Lines whose offsets are kept: more than a window has."""

_MAX_LINE: Final = 16 << 20
"""Bytes of a longer line that are read as one."""


class BadLine(Exception):
    """A line that cannot be restored. Never leaves pgtail.inputs.text."""

    def __init__(self, reason: str, number: int) -> None:
        super().__init__(reason)
        self.number = number


class Lines:
    """The lines of a window, without their ends, counted from 1; one can be taken back."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._kept: bytes | None = None
        self.number = 0
        """The number of the last line."""
        self.waits = False
        """Whether the next line may have to be waited for."""

    def next(self) -> bytes | None:
        """The next line; None at the end."""
        self.number += 1
        line, self._kept = self._kept, None
        if line is None:
            line = self._read()
        self.number -= line is None
        return line

    def back(self, line: bytes) -> None:
        """Take back the last line."""
        self._kept = line
        self.number -= 1

    def _read(self) -> bytes | None:
        window, searched = self._window, 0
        while (newline := window.buf.find(b"\n", window.pos + searched)) < 0:
            searched = len(window.buf) - window.pos
            if searched > _MAX_LINE or not window.more():
                newline = len(window.buf)
                break
        line = window.buf[window.pos : newline]
        ended = newline == len(window.buf)
        window.pos = newline + (not ended)
        self.waits = window.source.live and b"\n" not in window.buf[window.pos :]
        return None if ended and not line else line.removesuffix(b"\r")


class Restored(ByteStream):
    """The restored bytes. At a line that cannot be restored they end, and `damage` says why."""

    def __init__(self, window: Window) -> None:
        super().__init__(window.source.name, live=window.source.live)
        self._source = window.source
        self.lines = Lines(window)
        self._pieces = self._restore()
        self._left = b""
        self.end = 0
        """Offset of the next byte to restore."""
        self._bad: BadLine | None = None
        self._offsets = array("Q")
        self._numbers = array("Q")

    @abstractmethod
    def _restore(self) -> Iterator[tuple[int, bytes]]:
        """Yield the restored bytes with the numbers of their lines. Raises BadLine."""

    @abstractmethod
    def _resume(self) -> bool:
        """Advance to the next line from which _restore() can continue; False if there is none."""

    @property
    def damage(self) -> InputError | None:
        if self._bad is not None:
            return InputError(str(self._bad), source=f"{self.name}: line {self._bad.number}")
        return self._source.damage

    def skip_damage(self) -> bool:
        if self._bad is None or not self._resume():
            return False
        self._bad, self._pieces = None, self._restore()
        return True

    def line_of(self, offset: int) -> int | None:
        """The number of the line that a restored byte comes from; for the end that of the last line."""
        at = bisect.bisect_right(self._offsets, offset) - 1
        return self._numbers[at] if at >= 0 else None

    def start_at(self, offset: int) -> None:
        """Give the next restored byte this offset."""
        self.position = self.end = offset

    def _fetch(self, limit: int) -> bytes:
        pieces = [self._left]
        size = len(self._left)
        while size < limit and self._bad is None and not (size and self.lines.waits):
            try:
                number, piece = next(self._pieces)
            except StopIteration:
                break
            except BadLine as bad:
                self._bad = bad
                break
            self._note(number, len(piece))
            pieces.append(piece)
            size += len(piece)
        data = b"".join(pieces)
        self._left = data[limit:]
        return data[:limit]

    def _note(self, number: int, size: int) -> None:
        """The next `size` restored bytes are from the line with this number."""
        if not self._numbers or self._numbers[-1] != number:
            if len(self._numbers) >= 2 * MAX_KNOWN:
                del self._numbers[:MAX_KNOWN], self._offsets[:MAX_KNOWN]
            self._offsets.append(self.end)
            self._numbers.append(number)
        self.end += size
