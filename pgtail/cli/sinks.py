"""Floor 7, where an output's bytes go: standard output or a file."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import Final

from pgtail.cli.standard import ClosedPipe
from pgtail.errors import OptionError, OutputError

BATCH: Final = 64 * 1024
"""Bytes that are gathered before they are written, where nothing asks for them earlier."""


class FileSink:
    """Gathers bytes and writes them to a file descriptor; `flush` writes what there is."""

    def __init__(self, fd: int, name: str) -> None:
        self.fd = fd
        self.name = name
        self.waits = True
        """Whether it waits until bytes are written; else it keeps what is not taken at once until flush()."""
        self.may_not_wait = stat.S_ISFIFO(os.fstat(fd).st_mode)
        """Whether `waits` may be False: only pipes tell what they take at once."""
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def pending(self) -> int:
        """Bytes that flush() would write."""
        return self._size

    def write(self, data: bytes) -> None:
        """Take bytes. Raises ClosedPipe or OutputError, when it writes."""
        if not self.waits and not self._parts and not (data := self._rest(data)):
            return
        self._parts.append(data)
        self._size += len(data)
        if self._size >= BATCH and self.waits:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the system. Raises ClosedPipe where nobody reads any more, OutputError where it fails."""
        parts, self._parts, self._size = self._parts, [], 0
        for data in _joined(parts):
            view = memoryview(data)
            while view:
                view = view[self._write_some(view) :]

    def sync(self) -> None:
        """Flush, and wait until the bytes are on the disk, where the descriptor is a file on one."""
        self.flush()
        try:
            os.fsync(self.fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EROFS, errno.ENOTSUP):
                raise self._failed(error) from error

    def _rest(self, data: bytes) -> bytes:
        """What is not taken at once."""
        try:
            taken = _taken_at_once(self.fd, data)
        except OSError as error:
            raise self._failed(error) from error
        os.sched_yield()  # Linux likes to wake a reader on the writer's processor: he is not to wait until we sleep
        return data[taken:]

    def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self.fd, data)
        except BlockingIOError:
            # Somebody set the shared terminal or pipe to non-blocking.
            select.select([], [self.fd], [])
            return 0
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> ClosedPipe | OutputError:
        if isinstance(error, BrokenPipeError):
            return ClosedPipe()
        return OutputError(f"cannot write to {self.name}: {error.strerror}")


def _taken_at_once(fd: int, data: bytes) -> int:
    """Bytes that a pipe takes without waiting.

    Where the system has no word for that (Linux before 6.4, others), it is all of PIPE_BUF bytes if there is room.
    """
    try:
        if hasattr(os, "RWF_NOWAIT"):
            return os.pwritev(fd, [data], -1, os.RWF_NOWAIT)
    except BlockingIOError:
        return 0
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    room = select.poll()
    room.register(fd, select.POLLOUT)
    return os.write(fd, data) if len(data) <= select.PIPE_BUF and room.poll(0) == [(fd, select.POLLOUT)] else 0


def _joined(parts: list[bytes]) -> Iterator[bytes]:
    """Small parts joined, large ones by themselves."""
    small: list[bytes] = []
    for part in parts:
        if len(part) < BATCH:
            small.append(part)
            continue
        yield b"".join(small)
        small.clear()
        yield part
    yield b"".join(small)


def check_not_read(file: str | None, sources: Iterable[str]) -> None:
    """Raises OptionError where the file to write is one of those that are read: opening it would empty it."""
    for source in sources:
        with contextlib.suppress(OSError):
            if file is not None and os.path.samefile(file, source):
                raise OptionError(f"-f {file}: it is {source}, which is read: name another file")


@contextlib.contextmanager
def open_sink(file: str | None, *, append: bool = False) -> Iterator[FileSink]:
    """Standard output, or a file that is written anew, or (`append`) at its end. Raises OutputError."""
    if file is None or file == "-":
        if sys.stdout is None:
            raise OutputError("cannot write to standard output: it is closed")
        yield FileSink(sys.stdout.fileno(), "standard output")
        return
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC), 0o644)
    except OSError as error:
        raise OutputError(f"cannot write to {file}: {error.strerror}") from error
    try:
        yield FileSink(fd, file)
    finally:
        os.close(fd)


def put(line: str) -> None:
    """A line of a command whose output is short, on standard output. Raises ClosedPipe and OutputError."""
    with open_sink(None) as sink:
        sink.write(f"{line}\n".encode("utf-8", "backslashreplace"))
        sink.flush()
