"""Floor 4, a source: named bytes from a file or a pipe, gzip unwrapped, read forwards; knows nothing of what they mean.

What lies ahead can be looked at without being held: in the file itself, else in a private temporary file.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable
from typing import Final

from pgtail.errors import InputError
from pgtail.inputs.gunzip import MAGIC, Gunzip
from pgtail.inputs.supply import CHUNK, Supply, reason_of

_STDIN: Final = 0


class Source(Supply):
    """Named bytes; `-` is standard input, shown as <stdin>. Offsets are those of the unwrapped bytes.

    `on_wait` is called before a read that may have to wait. Raises InputError where the file cannot be opened or read.
    Damage of the wrapping raises nothing: the bytes end there, and `damage` says why.
    """

    def __init__(self, path: str, *, on_wait: Callable[[], None] | None = None) -> None:
        super().__init__("<stdin>" if path == "-" else path, live=False)
        self._on_wait = on_wait
        self._owned = path != "-"
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if self._owned else _STDIN
            status = os.fstat(self._fd)
        except (OSError, ValueError) as error:
            raise InputError(reason_of(error), source=self.name) from None
        if stat.S_ISDIR(status.st_mode):
            self.close()
            raise InputError("is a directory: name the files in it", source=self.name)
        regular = stat.S_ISREG(status.st_mode) and status.st_size > 0
        self._start = os.lseek(self._fd, 0, os.SEEK_CUR) if regular else 0
        self.size: int | None = status.st_size - self._start if regular else None
        """Bytes of the file, wrapped as they are, where it has a size."""
        self.consumed = 0
        """How many of them were read."""
        self.live = not regular
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._gunzip: Gunzip | None = None
        self._seekable = regular
        self._first: bytes | None = None
        self._detect()

    def close(self) -> None:
        """Let go of the file."""
        super().close()
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

    def give_back(self, data: bytes) -> None:
        if self._seekable:
            self.position -= len(data)
        else:
            super().give_back(data)

    def left(self) -> int | None:
        if not self._seekable:
            return None
        return max(os.fstat(self._fd).st_size - self._start - self.position, 0)

    def ahead(self, distance: int, size: int) -> bytes:
        return self._pread(size, self.position + distance) if self._seekable else super().ahead(distance, size)

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
            raise InputError(reason_of(error), source=self.name, offset=self.position) from None

    def _pread(self, size: int, position: int) -> bytes:
        try:
            return os.pread(self._fd, size, self._start + position)
        except OSError as error:
            raise InputError(reason_of(error), source=self.name, offset=self.position) from None
