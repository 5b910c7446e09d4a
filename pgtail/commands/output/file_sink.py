"""Where the bytes of an output go: standard output or a file; a directory is in directory_sink.py."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import Final

from pgtail.commands.console.pager import pager_in_use
from pgtail.errors import COMMAND, ClosedPipe, OptionError, OutputError
from pgtail.files import MAGIC
from pgtail.files.stopping import postponed
from pgtail.terminal.escape import shell_word

GZIP: Final = ".gz"
"""The end of the name of a file that is compressed."""

_MEMBER_SIZE: Final = 1 << 20
"""Buffered bytes from which on a gzip member is written without a flush."""

_MOST_IN_MEMBER: Final = 16 << 20
"""More bytes than this are several members, because a member is compressed in memory."""

BATCH: Final = 64 * 1024
"""Buffered bytes that cause a write without a flush."""


class FileSink:
    """Buffers bytes for a file descriptor; `flush` writes them, to a file named *.gz as whole gzip members."""

    def __init__(self, fd: int, name: str) -> None:
        self.fd = fd
        self.name = name
        self.gzip = name.endswith(GZIP)
        self._batch = _MEMBER_SIZE if self.gzip else BATCH
        self._parts: list[bytes] = []
        self._size = 0
        self._given_up = False
        """Whether a request to stop broke off a write."""

    @property
    def on_terminal(self) -> bool:
        """Whether people see the output: on a terminal, or in a pager."""
        return os.isatty(self.fd) or (pager_in_use() and self.fd == sys.stdout.fileno())

    def write(self, data: bytes) -> None:
        """Buffer bytes, or write a full buffer. Raises ClosedPipe and OutputError."""
        self._parts.append(data)
        self._size += len(data)
        if self._size >= self._batch:
            self.flush()

    def show(self, text: str) -> None:
        """Write a text at once. Raises ClosedPipe and OutputError."""
        self.write(text.encode("utf-8", "backslashreplace"))
        self.flush()

    def flush(self) -> None:
        """Write everything. Raises ClosedPipe if the reader is gone, and OutputError.

        A request to stop waits until that is done, so that no line is cut off; a second one does not, and then nothing
        more is written.
        """
        with postponed():
            try:
                self._flush()
            except KeyboardInterrupt:
                self._given_up = True
                raise

    def _flush(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if self._given_up:
            return
        for data in _joined(parts, self._batch):
            for piece in _members(data) if self.gzip else (data,):
                self._write_all(piece)

    def begin(self) -> None:
        """Write an empty member to an empty gzip file, which is not gzip without. Raises ClosedPipe and OutputError."""
        if self.gzip and os.fstat(self.fd).st_size == 0:
            from pgtail.files.deflate import compress

            self._write_all(compress(b""))

    def sync(self) -> None:
        """Flush, and fsync if the descriptor supports it. Raises ClosedPipe and OutputError."""
        self.flush()
        try:
            fsync(self.fd)
        except OSError as error:
            raise self._failed(error) from error

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[self._write_some(view) :]
        except OutputError:
            self._cut(len(data) - len(view))
            raise

    def _cut(self, written: int) -> None:
        """Cut off the part of lines or of a member that did not fit: the next run would continue in the middle."""
        if self.fd > 2:  # other processes may write to the standard ones, too
            with contextlib.suppress(OSError):
                end = os.lseek(self.fd, 0, os.SEEK_CUR)
                if end == os.fstat(self.fd).st_size:  # nobody has appended to the file since
                    os.ftruncate(self.fd, end - written)

    def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self.fd, data)
        except BlockingIOError:
            # Another process set the shared terminal or pipe to non-blocking.
            select.select([], [self.fd], [])
            return 0
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> ClosedPipe | OutputError:
        if isinstance(error, BrokenPipeError):
            return ClosedPipe()
        return OutputError(f"cannot write to {self.name}: {error.strerror}")


def fsync(fd: int) -> None:
    """Sync a descriptor, if it supports that. Raises OSError."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EROFS, errno.ENOTSUP):
            raise


def _joined(parts: list[bytes], large: int) -> Iterator[bytes]:
    """Small parts joined, those of `large` bytes or more as they are: copying them costs more than a write."""
    small: list[bytes] = []
    for part in parts:
        if len(part) < large:
            small.append(part)
            continue
        yield b"".join(small)
        small.clear()
        yield part
    yield b"".join(small)


def _members(data: bytes) -> Iterator[bytes]:
    """Bytes as gzip members; none for no bytes."""
    from pgtail.files.deflate import compress

    view = memoryview(data)
    return (compress(view[at : at + _MOST_IN_MEMBER]) for at in range(0, len(view), _MOST_IN_MEMBER))


def continue_file(sink: FileSink) -> None:
    """Prepare to append to a file: make its name durable, and start a new line if an earlier run ended inside one.

    Raises OutputError if it is gzip.
    """
    if not stat.S_ISREG(os.fstat(sink.fd).st_mode):
        return
    from pathlib import Path

    from pgtail.files.atomic import sync_directory

    with contextlib.suppress(OSError):
        sync_directory(Path(sink.name).parent)
    last = b""
    with contextlib.suppress(OSError), open(sink.name, "rb") as file:
        if file.read(len(MAGIC)) == MAGIC:
            raise OutputError(f"cannot append to {sink.name}: it is gzip")
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        last = file.read()
    if last not in (b"", b"\n"):
        sink.write(b"\n")


def check_appended(file: str | None) -> None:
    """Raises OptionError if the file to append to is a compressed one, or a directory."""
    if file is None:
        return
    if file.endswith("/") or os.path.isdir(file):
        raise OptionError(
            f"-f {file} is a directory, which only decode writes; record the slot first:"
            f"{COMMAND}pgtail record -S SLOT -D captures --until now"
            f"{COMMAND}pgtail decode -o csv -f {shell_word(file)} captures"
        )
    if file.endswith(GZIP):
        raise OptionError(
            f"-f {file}: nothing is appended to a gzip file; omit -f and compress the output (| gzip > {file}), or let"
            " pgtail record keep what a slot sends"
        )


def check_not_read(file: str | None, sources: Iterable[str]) -> None:
    """Raises OptionError if the file to write is also read: opening it would empty it."""
    for source in sources:
        with contextlib.suppress(OSError):
            if file is not None and os.path.samefile(file, source):
                raise OptionError(f"-f {file} is the same file as {source}, which is read: name another one")


@contextlib.contextmanager
def open_sink(file: str | None, *, append: bool = False) -> Iterator[FileSink]:
    """Standard output, or a file that is overwritten or, with `append`, appended to. Raises OutputError."""
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
        sink = FileSink(fd, file)
        sink.begin()
        yield sink
    finally:
        os.close(fd)


def put(line: str) -> None:
    """Write a line to standard output at once. Raises ClosedPipe and OutputError."""
    with open_sink(None) as sink:
        sink.show(f"{line}\n")
