"""A private temporary file: no name, read by this process alone, given back by close()."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO

from msgspec import Struct

from pgtail.errors import OutputError
from pgtail.humanize import size_text


class SpoolLimit(Struct):
    """How many bytes some files, all of one thread, may have together. `cure` is how the user can change that."""

    size: int
    cure: str
    used: int = 0


class SpoolFile:
    """Bytes to write, to read at any offset, and to cut off at the end; `size` is how many there are.

    The first `memory` bytes stay in memory; with more all of them are in a file, for which `limit` counts. `purpose`
    completes the message "cannot ... in /tmp", and `error` makes an exception of it; methods raise no other.
    """

    def __init__(
        self,
        purpose: str,
        *,
        memory: int = 0,
        error: Callable[[str], Exception] = OutputError,
        limit: SpoolLimit | None = None,
    ) -> None:
        self.size = 0
        self._purpose = purpose
        self._in_memory = memory
        self._limit = limit
        self._counted = 0
        """The bytes of the file that count for the limit."""
        self._error = error
        self._memory = bytearray()
        self._file: IO[bytes] | None = None

    def write(self, data: bytes, offset: int | None = None) -> int:
        """Write at `offset`, by default at the end. Returns the offset."""
        if offset is None:
            offset = self.size
        stop = offset + len(data)
        if self._file is None and stop <= self._in_memory:
            self._memory[offset:stop] = data
        else:
            self._count(max(self.size, stop))
            try:
                self._write(self._opened(), data, offset)
            except OSError as error:
                raise self._failed(error) from error
        self.size = max(self.size, stop)
        return offset

    def read(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset` on, fewer only at the end."""
        if self._file is None:
            with memoryview(self._memory) as view:
                return bytes(view[offset : offset + size])
        pieces: list[bytes] = []
        stop = min(offset + size, self.size)
        try:
            while offset < stop:
                piece = os.pread(self._file.fileno(), stop - offset, offset)
                assert piece  # it was written
                pieces.append(piece)
                offset += len(piece)
        except OSError as error:
            raise self._failed(error) from error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def truncate(self, size: int = 0) -> None:
        """Drop the bytes from `size` on."""
        self.size = size
        if self._file is None:
            del self._memory[size:]
        else:
            os.ftruncate(self._file.fileno(), size)
            self._count(size)

    def close(self) -> None:
        """Give the memory and the file back."""
        self.size = 0
        self._memory.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
        self._count(0)

    def _count(self, size: int) -> None:
        """The file is to have this size: more of it must be within the limit."""
        limit = self._limit
        if limit is None or size == self._counted:
            return
        used = limit.used + size - self._counted
        if size > self._counted and used > limit.size:
            raise self._error(
                f"cannot {self._purpose}: more than {size_text(limit.size)} would be on disk; {limit.cure}"
            )
        limit.used, self._counted = used, size

    def _opened(self) -> IO[bytes]:
        """The file, made with what is in memory where there is none yet. Raises OSError."""
        import tempfile

        if self._file is None:
            file = tempfile.TemporaryFile(prefix="pgtail-", buffering=0)  # noqa: SIM115 -- close() does
            try:
                self._write(file, self._memory, 0)
            except OSError:
                file.close()
                raise
            self._file = file
            self._memory.clear()
        return self._file

    @staticmethod
    def _write(file: IO[bytes], data: bytes | bytearray, offset: int) -> None:
        written = 0
        with memoryview(data) as view:
            while written < len(view):
                written += os.pwrite(file.fileno(), view[written:], offset + written)

    def _failed(self, error: OSError) -> Exception:
        import tempfile

        folder = tempfile.tempdir or "any temporary folder"
        reason = f"cannot {self._purpose} in {folder}: {error.strerror}"
        return self._error(f"{reason}; set TMPDIR to a directory with free space")
