"""What a Source reads that is no file of its own: bytes in memory, and binary file objects."""

from __future__ import annotations

from typing import Protocol

from pgtail.errors import InputError


class BinaryFile(Protocol):
    """A file object of bytes; read1(), if it has that, does not wait for all that is asked for."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; b"" at the end."""


class Content:
    """Bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def __str__(self) -> str:
        return "<bytes>"

    def pread(self, size: int, offset: int) -> bytes:
        """`size` bytes from `offset` on, fewer only at the end."""
        return self._data[offset : offset + size]

    def close(self) -> None:
        """Nothing is open."""


class Opened:
    """A file object, which is read from where it is and stays open."""

    def __init__(self, file: BinaryFile) -> None:
        name = getattr(file, "name", None)
        self._name = name if isinstance(name, str) else "<file>"
        self._read = getattr(file, "read1", file.read)

    def __str__(self) -> str:
        return self._name

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; b"" at the end. Raises InputError for a file of text."""
        data = self._read(size)
        if not isinstance(data, bytes):
            raise InputError(f"it is no binary file: its read() returns {type(data).__name__}", source=self._name)
        return data
