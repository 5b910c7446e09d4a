"""A forward stream of bytes that can be read ahead without keeping it all in memory.

Bytes read ahead are kept in memory, and beyond a limit in a temporary file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, Self

from pgtail.errors import InputError
from pgtail.files.spool import SpoolFile

CHUNK: Final = 1 << 20
"""Bytes to read at a time."""

_KEPT_IN_MEMORY: Final = 8 << 20
"""Bytes read ahead that stay in memory."""

SPOOL_PAST: Final = 64 << 20
"""Bytes of a temporary file that were read before the rest moves to a new one."""


class ByteStream(ABC):
    """Named bytes, read forwards. At damage of their container (gzip, packets) they end, and `damage` says why."""

    def __init__(self, name: str, *, live: bool) -> None:
        self.name = name
        self.position = 0
        """Offset of the next read."""
        self.live = live
        """Whether a read may have to wait for more bytes."""
        self.problem: str | None = None
        """Why the checksum of a closed segment without compression is wrong."""
        self.verified = False
        """Whether this is such a segment, and its checksum is right."""
        self.rereads = False
        """Whether bytes that are given back are read again from the file, at little cost."""
        self.unchecked = False
        """Whether this has segments that are not compressed, and no checksum was compared."""
        self._spool: SpoolFile | None = None
        self._spool_at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close temporary files."""
        self._drop_spool()

    @property
    @abstractmethod
    def damage(self) -> InputError | None:
        """Why the bytes ended early; None if they did not."""

    @property
    def checked(self) -> int | None:
        """Offset up to which checksums were compared; None if the bytes have none."""
        return 0 if self.unchecked else None

    @abstractmethod
    def skip_damage(self) -> bool:
        """Continue after damage. Returns whether that is possible."""

    @abstractmethod
    def _fetch(self, limit: int) -> bytes:
        """The next bytes from the source itself, at most `limit`; b"" at the end."""

    def read(self, limit: int = CHUNK) -> bytes:
        """The next bytes, at most `limit`; b"" at the end."""
        if self._spool is not None:
            data = self._spool.read(self._spool_at, limit)
            if data:
                self._spool_at += len(data)
                self.position += len(data)
                return data
            self._drop_spool()
        data = self._fetch(limit)
        self.position += len(data)
        return data

    def read_all(self, size: int) -> bytes:
        """The next `size` bytes, after reaches() said that they exist."""
        data = self.read(size)
        if len(data) < size:
            raise InputError("became shorter while it was read", source=self.name, offset=self.position)
        return data

    def give_back(self, data: bytes) -> None:
        """Take back all bytes that were read and not used: the next read starts with them."""
        self.position -= len(data)
        if self._spool is None:
            self._new_spool().write(data)
            return
        self._spool_at -= len(data)
        left = self._spool.size - self._spool_at
        if self._spool_at >= SPOOL_PAST and left <= _KEPT_IN_MEMORY:
            rest = self._spool.read(self._spool_at, left)
            self._drop_spool()
            self._new_spool().write(rest)

    def left(self) -> int | None:
        """Bytes from `position` to the end, if known without reading them."""
        return None

    def reaches(self, distance: int) -> bool:
        """Whether there are `distance` more bytes; may read them ahead."""
        left = self.left()
        if left is not None:
            return distance <= left
        spool = self._spool or self._new_spool()
        while spool.size - self._spool_at < distance:
            data = self._fetch(CHUNK)
            if not data:
                return False
            spool.write(data)
        return True

    def peek(self, distance: int, size: int) -> bytes:
        """`size` bytes from `position` + `distance` on, fewer only at the end, without consuming them."""
        self.reaches(distance + size)
        assert self._spool is not None
        return self._spool.read(self._spool_at + distance, size)

    def _new_spool(self) -> SpoolFile:
        self._spool = SpoolFile("keep what was read ahead", memory=_KEPT_IN_MEMORY, error=self._no_room)
        self._spool_at = 0
        return self._spool

    def _no_room(self, reason: str) -> InputError:
        return InputError(reason, source=self.name, offset=self.position)

    def _drop_spool(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None


def reason_of(error: Exception) -> str:
    """The text of an error of the system or of a library."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or "not open"
