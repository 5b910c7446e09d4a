"""Floor 4, texts that come out in the opposite order: in memory, and past a limit in one private temporary file.

Knows nothing of what they say. Nothing but this process ever reads the file; it has no name.
"""

from __future__ import annotations

import pickle
import tempfile
from typing import IO, Final

from pgtail.errors import OutputError

CHUNK: Final = 1024 * 1024
"""Bytes of texts that are kept together: at most about two such chunks, or the longest text, are in memory."""


class Stack:
    """Texts, the last one first; len() is their number."""

    def __init__(self, chunk: int = CHUNK) -> None:
        self._chunk = chunk
        self._file: IO[bytes] | None = None
        self._extents: list[tuple[int, int, int]] = []
        """Of each chunk in the file: where it begins, its bytes, its number of texts."""
        self._top: list[bytes] = []
        self._size = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def held(self) -> int:
        """About how many bytes of them are in memory."""
        return self._size

    def push(self, text: bytes) -> None:
        """One more text. Raises OutputError where the temporary file cannot be written."""
        self._top.append(text)
        self._size += len(text) + 40
        self._count += 1
        if self._size >= self._chunk:
            self._spill()

    def pop(self) -> bytes:
        """The last one. Raises IndexError where there is none."""
        if not self._top and self._extents:
            self._take_back()
        text = self._top.pop()
        self._size -= len(text) + 40
        self._count -= 1
        return text

    def cut(self, count: int) -> None:
        """Forget all but the first `count` texts."""
        while self._count > count:
            if self._top or not self._extents or self._count - self._extents[-1][2] < count:
                self.pop()
            else:
                _, _, texts = self._extents.pop()
                self._count -= texts

    def close(self) -> None:
        """Give the temporary file back to the system."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _spill(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="pgtail-")  # noqa: SIM115 -- lives as long as the stack
            offset = sum(self._extents[-1][:2]) if self._extents else 0
            data = pickle.dumps(self._top, pickle.HIGHEST_PROTOCOL)
            self._file.seek(offset)
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise OutputError(
                f"cannot keep what is to be written in {tempfile.gettempdir()}: {error.strerror}; set TMPDIR to a"
                " folder with room"
            ) from error
        self._extents.append((offset, len(data), len(self._top)))
        self._top, self._size = [], 0

    def _take_back(self) -> None:
        assert self._file is not None
        offset, size, _ = self._extents.pop()
        self._file.seek(offset)
        self._top = pickle.loads(self._file.read(size))
        self._size = sum(len(text) + 40 for text in self._top)
