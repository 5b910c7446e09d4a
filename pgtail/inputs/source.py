"""Floor 4, a source: named bytes from a file or a pipe, gzip unwrapped, read forwards; knows nothing of what they mean.

What lies ahead can be looked at without being held: in the file itself, else in a private temporary file.
"""

from __future__ import annotations

import os
import select
import stat
import tempfile
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from pgtail.errors import InputError
from pgtail.inputs.gunzip import MAGIC, Gunzip

CHUNK: Final = 1 << 20
"""How many bytes are asked for at a time."""

_STDIN: Final = 0

_KEPT_IN_MEMORY: Final = 8 << 20
"""How much of what was looked at ahead stays in memory; more goes to a temporary file."""

_SPOOL_PAST: Final = 64 << 20
"""How much of a temporary file may be done with before what is left of it moves to a new one."""


class Source:
    """Named bytes; `-` is standard input, shown as <stdin>. Offsets are those of the unwrapped bytes.

    `on_wait` is called before a read that may have to wait. Raises InputError where the file cannot be opened or read.
    Damage of the wrapping raises nothing: the bytes end there, and `damage` says why.
    """

    def __init__(self, path: str, *, on_wait: Callable[[], None] | None = None) -> None:
        self.name = "<stdin>" if path == "-" else path
        self.position = 0
        """Where the next read starts."""
        self._on_wait = on_wait
        self._spool: tempfile.SpooledTemporaryFile[bytes] | None = None
        self._owned = path != "-"
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if self._owned else _STDIN
            status = os.fstat(self._fd)
        except (OSError, ValueError) as error:
            raise InputError(_reason(error), source=self.name) from None
        if stat.S_ISDIR(status.st_mode):
            self.close()
            raise InputError("is a directory, not a file", source=self.name)
        regular = stat.S_ISREG(status.st_mode) and status.st_size > 0
        self._start = os.lseek(self._fd, 0, os.SEEK_CUR) if regular else 0
        self.size: int | None = status.st_size - self._start if regular else None
        """Bytes of the file, wrapped as they are, where it has a size."""
        self.consumed = 0
        """How many of them were read."""
        self.live = not regular
        """Whether a read may have to wait for somebody."""
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._gunzip: Gunzip | None = None
        self._seekable = regular
        self._first: bytes | None = None
        self._spool_at = 0
        self._detect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._drop_spool()
        if self._owned and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def damage(self) -> InputError | None:
        """Why the bytes ended, where that was not the end of them."""
        if self._gunzip is None or self._gunzip.damage is None:
            return None
        return InputError(self._gunzip.damage, source=self.name, offset=self.position)

    def skip_damage(self) -> bool:
        """Go on behind damage of the wrapping; returns whether that was possible."""
        return self._gunzip is not None and self._gunzip.skip_damage()

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
        if self._seekable:
            return
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
        if not self._seekable:
            return None
        return max(os.fstat(self._fd).st_size - self._start - self.position, 0)

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
        if self._seekable:
            return self._pread(size, self.position + distance)
        self.reaches(distance + size)
        assert self._spool is not None
        self._spool.seek(self._spool_at + distance)
        return self._spool.read(size)

    def _detect(self) -> None:
        """A regular file's first bytes are looked at here; those of a pipe at the first read, which may wait."""
        if self._seekable and self._pread(len(MAGIC), 0) == MAGIC:
            self._gunzip = Gunzip(self._raw)
            self._seekable = False

    def _fetch(self, limit: int) -> bytes:
        if self._seekable:
            data = self._pread(limit, self.position)
            self.consumed = self.position + len(data)
            return data
        if self._gunzip is None and self._first is None:
            self._first = self._two_bytes()
            if self._first.startswith(MAGIC):
                self._gunzip = Gunzip(self._raw)
        return self._raw(limit) if self._gunzip is None else self._gunzip.read(limit)

    def _two_bytes(self) -> bytes:
        """The first bytes of a pipe: two at least, if the first could begin gzip."""
        first = self._receive(CHUNK)
        while first and len(first) < len(MAGIC) and MAGIC.startswith(first):
            more = self._receive(CHUNK)
            if not more:
                break
            first += more
        return first

    def _raw(self, limit: int) -> bytes:
        """The next bytes as they lie in the file or come through the pipe."""
        if self._first:
            data, self._first = self._first[:limit], self._first[limit:]
        elif self.live:
            data = self._receive(limit)
        else:
            data = self._pread(limit, self.consumed)
        self.consumed += len(data)
        return data

    def _receive(self, limit: int) -> bytes:
        try:
            if not self._poll.poll(0):
                if self._on_wait is not None:
                    self._on_wait()
                self._poll.poll()
            return os.read(self._fd, limit)
        except OSError as error:
            raise InputError(_reason(error), source=self.name, offset=self.position) from None

    def _pread(self, size: int, position: int) -> bytes:
        try:
            return os.pread(self._fd, size, self._start + position)
        except OSError as error:
            raise InputError(_reason(error), source=self.name, offset=self.position) from None

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
            reason = f"no room to look ahead in {tempfile.gettempdir()}: {_reason(error)} (TMPDIR names another place)"
            raise InputError(reason, source=self.name, offset=self.position) from None

    def _drop_spool(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or "not open"
