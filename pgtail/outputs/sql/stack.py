"""A stack of texts: in memory, and beyond a limit in a temporary file."""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from typing import Final

from pgtail.files.spool import SpoolFile, SpoolLimit

CHUNK: Final = 1024 * 1024
"""Bytes of texts to write together: about two chunks, or the longest text, are in memory."""


class Stack:
    """Texts, last in, first out."""

    def __init__(self, chunk: int = CHUNK, *, spool: SpoolLimit | None = None) -> None:
        self._chunk = chunk
        self._file = SpoolFile("keep what is to be written", limit=spool)
        self._chunks: list[int] = []
        """The offset of each chunk in the file."""
        self._top: list[bytes] = []
        self.push = self._top.append
        """Add a text."""
        self._counted = self._size = 0

    def spill(self) -> None:
        """Write what is in memory to the temporary file if it is a chunk. Raises OutputError.

        To be called when a few texts were added.
        """
        added = self._top[self._counted :]
        self._counted += len(added)
        self._size += sum(map(len, added)) + 40 * len(added)
        if self._size >= self._chunk:
            self._chunks.append(self._file.write(marshal.dumps(self._top)))
            self._top.clear()
            self._counted = self._size = 0

    def drain(self) -> Iterator[list[bytes]]:
        """Remove and return the texts, the last one first, as many together as are in memory."""
        while self._top or self._chunks:
            texts = self._top[::-1]
            self._top.clear()
            self._counted = self._size = 0
            yield texts
            if self._chunks:
                offset = self._chunks.pop()
                self._top += marshal.loads(self._file.read(offset, self._file.size - offset))
                self._file.truncate(offset)

    def close(self) -> None:
        """Close the temporary file."""
        self._file.close()
