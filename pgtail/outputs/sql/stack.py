"""A stack of texts: in memory, and beyond a limit in a temporary file."""

from __future__ import annotations

import pickle
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
        self._size = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def in_memory(self) -> int:
        """About how many bytes are in memory."""
        return self._size

    def push(self, text: bytes) -> None:
        """Add a text. Raises OutputError if the temporary file cannot be written."""
        self._top.append(text)
        self._size += len(text) + 40
        self._count += 1
        if self._size >= self._chunk:
            self._spill()

    def pop(self) -> bytes:
        """Remove and return the last text. Raises IndexError if there is none."""
        if not self._top and self._chunks:
            offset = self._chunks.pop()
            self._top = pickle.loads(self._file.read(offset, self._file.size - offset))
            self._file.truncate(offset)
            self._size = sum(len(text) + 40 for text in self._top)
        text = self._top.pop()
        self._size -= len(text) + 40
        self._count -= 1
        return text

    def close(self) -> None:
        """Close the temporary file."""
        self._file.close()

    def _spill(self) -> None:
        offset = self._file.write(pickle.dumps(self._top, pickle.HIGHEST_PROTOCOL))
        self._chunks.append(offset)
        self._top, self._size = [], 0
