"""Floor 4, bytes that come one after another, and can be looked at ahead without being held; knows no file.

What was looked at waits in memory, and past a limit in a private temporary file.
"""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, Self

from pgtail.errors import InputError

CHUNK: Final = 1 << 20
"""How many bytes are asked for at a time."""

_KEPT_IN_MEMORY: Final = 8 << 20
"""How much of what was looked at ahead stays in memory; more goes to a temporary file."""

_SPOOL_PAST: Final = 64 << 20
"""How much of a temporary file may be done with before what is left of it moves to a new one."""


class Supply(ABC):
    """Named bytes, read forwards.

    `live` says that a read may have to wait for somebody. Damage of what the bytes come out of raises nothing: they
    end there, and `damage` says why.
    """

    def __init__(self, name: str, *, live: bool) -> None:
        self.name = name
        self.position = 0
        """Where the next read starts."""
        self.live = live
        """Whether a read may have to wait for somebody."""
        self._spool: tempfile.SpooledTemporaryFile[bytes] | None = None
        self._spool_at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what was kept."""
        self._drop_spool()

    @property
    @abstractmethod
    def damage(self) -> InputError | None:
        """Why the bytes ended, where that was not the end of them."""

    @abstractmethod
    def skip_damage(self) -> bool:
        """Go on behind damage; returns whether that was possible."""

    @abstractmethod
    def _fetch(self, limit: int) -> bytes:
        """The next bytes that were never read, at most `limit`; b"" at the end."""

    def read(self, limit: int = CHUNK) -> bytes:
        """The next bytes as they come, at most `limit`; b"" at the end."""
        if self._spool is not None:
            self._spool.seek(self._spool_at)
            data = self._spool.read(limit)
            if data:
                self._spool_at += len(data)
                self.position += len(data)
                return data
            self._drop_spool()
        data = self._fetch(limit)
        self.position += len(data)
        return data

    def read_all(self, size: int) -> bytes:
        """The next `size` bytes in one piece, which reaches() said are there."""
        data = self.read(size)
        if len(data) < size:
            raise InputError("became shorter while it was read", source=self.name, offset=self.position)
        return data

    def give_back(self, data: bytes) -> None:
        """Take back the last bytes read, all that is not done with: the next read starts with them again."""
        self.position -= len(data)
        if self._spool is None:
            self._write(data)
            self._spool_at = 0
            return
        self._spool_at -= len(data)
        if self._spool_at >= _SPOOL_PAST and self._spool_left() <= _KEPT_IN_MEMORY:
            self._spool.seek(self._spool_at)
            rest = self._spool.read()
            self._drop_spool()
            self._write(rest)

    def left(self) -> int | None:
        """How many bytes there are from `position` on, where that is known without reading them."""
        return None

    def reaches(self, distance: int) -> bool:
        """Whether there are so many bytes from `position` on; may read them, and never holds them."""
        left = self.left()
        if left is not None:
            return distance <= left
        if self._spool is None:
            self._write(b"")
            self._spool_at = 0
        while self._spool_left() < distance:
            data = self._fetch(CHUNK)
            if not data:
                return False
            self._write(data)
        return True

    def ahead(self, distance: int, size: int) -> bytes:
        """`size` bytes that lie `distance` behind `position`, fewer only at the end; they stay to be read."""
        self.reaches(distance + size)
        assert self._spool is not None
        self._spool.seek(self._spool_at + distance)
        return self._spool.read(size)

    def _spool_left(self) -> int:
        assert self._spool is not None
        return self._spool.seek(0, os.SEEK_END) - self._spool_at

    def _write(self, data: bytes) -> None:
        """Put bytes at the end of the spool."""
        try:
            if self._spool is None:
                self._spool = tempfile.SpooledTemporaryFile(max_size=_KEPT_IN_MEMORY, prefix="pgtail-")  # noqa: SIM115 - closed by _drop_spool
            self._spool.seek(0, os.SEEK_END)
            self._spool.write(data)
        except OSError as error:
            reason = (
                f"no room to look ahead in {tempfile.gettempdir()}: {reason_of(error)} (TMPDIR names another place)"
            )
            raise InputError(reason, source=self.name, offset=self.position) from None

    def _drop_spool(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None


def reason_of(error: Exception) -> str:
    """What an error of the system or of a library says."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or "not open"
