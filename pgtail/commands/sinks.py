"""Where the bytes of an output go: standard output, a file, or a directory with one file per table."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from pgtail.commands.pager import pager_in_use
from pgtail.commands.stderr import say
from pgtail.errors import ClosedPipe, OptionError, OutputError
from pgtail.files.atomic import sync_directory
from pgtail.files.deflate import compress
from pgtail.files.gzip_end import gzip_end
from pgtail.humanize import counted
from pgtail.terminal.escape import escape

GZIP: Final = ".gz"
"""The end of the name of a file that is compressed."""

_NOT_COMPRESSED: Final = (".zst", ".bz2", ".xz", ".lz4", ".zip")
"""Ends of names that promise a compression that pgtail does not have."""

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

    @property
    def on_terminal(self) -> bool:
        """Whether people see what is written: on a terminal, or in a pager."""
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
        """Write everything. Raises ClosedPipe if the reader is gone, and OutputError."""
        parts, self._parts, self._size = self._parts, [], 0
        for data in _joined(parts, self._batch):
            for piece in _members(data) if self.gzip else (data,):
                self._write_all(piece)

    def begin(self) -> None:
        """Write an empty member to an empty gzip file, which is not gzip without. Raises ClosedPipe and OutputError."""
        if self.gzip and os.fstat(self.fd).st_size == 0:
            self._write_all(compress(b""))

    def sync(self) -> None:
        """Flush, and fsync if the descriptor supports it. Raises ClosedPipe and OutputError."""
        self.flush()
        try:
            _fsync(self.fd)
        except OSError as error:
            raise self._failed(error) from error

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._write_some(view) :]

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


def _fsync(fd: int) -> None:
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
    view = memoryview(data)
    return (compress(view[at : at + _MOST_IN_MEMBER]) for at in range(0, len(view), _MOST_IN_MEMBER))


def continue_file(sink: FileSink, tell: Callable[[str], None]) -> None:
    """Prepare to append to a file: make its name durable, and start a new line if an earlier run ended inside one.

    In a gzip file, cut off the member that a kill left unfinished. Raises OutputError if that is not possible.
    """
    if not stat.S_ISREG(os.fstat(sink.fd).st_mode):
        return
    with contextlib.suppress(OSError):
        sync_directory(Path(sink.name).parent)
    if sink.gzip:
        last = _cut_member(sink, tell)
    else:
        last = b""
        with contextlib.suppress(OSError):
            last = _last_byte(Path(sink.name))
    if last not in (b"", b"\n"):
        sink.write(b"\n")


def _last_byte(path: Path) -> bytes:
    """The last byte of a file; none if it is empty. Raises OSError."""
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        return file.read()


def _cut_member(sink: FileSink, tell: Callable[[str], None]) -> bytes:
    """Cut off an unfinished gzip member; returns the last byte of the content. Raises OutputError."""
    try:
        with open(sink.name, "rb") as file:
            end = gzip_end(file)
        if end.problem is not None:
            raise OutputError(f"cannot append to {sink.name}: {end.problem}")
        if end.torn:
            os.ftruncate(sink.fd, end.offset)
            sink.begin()
            tell(f"note: {sink.name}: {counted(end.torn, 'byte')} of an unfinished gzip member cut off")
    except OSError as error:
        raise OutputError(f"cannot append to {sink.name}: {error.strerror}") from error
    return end.last


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
    if file.endswith(_NOT_COMPRESSED):
        say(escape(f"note: {file} will not be compressed: only a file named *{GZIP} is"))
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


_NAME_LIMIT: Final = 255
"""Bytes of a file name on most file systems."""

_UNSAFE: Final = re.compile(r"[/%.\x00-\x1f\x7f]")


class _File:
    """One file of the directory, with the bytes to append to it."""

    def __init__(self, directory: DirectorySink, path: Path) -> None:
        self.path = path
        self.parts: list[bytes] = []
        self._directory = directory

    def write(self, data: bytes, /) -> None:
        self.parts.append(data)
        self._directory.wrote(self, len(data))


class DirectorySink:
    """Buffers bytes for files in a directory, which is created if missing; `flush` writes them.

    With `append` existing files are continued, without it the directory must have no CSV files. No file stays open,
    so that any number of tables works. `stopped` is set to end a stream, as in StreamSink. Raises OutputError.
    """

    fd = -1

    def __init__(self, name: str, *, append: bool) -> None:
        self.name = name
        self.stopped = False
        self._folder = Path(name)
        self._files: dict[tuple[tuple[str, ...], bytes], _File] = {}
        self._names: set[str] = set()
        self._dirty: dict[Path, _File] = {}
        self._unsynced: set[Path] = set()
        self._size = 0
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            existing = next(self._folder.glob("*.csv"), None)
        except OSError as error:
            raise OutputError(f"cannot write to {name}: {error.strerror}") from error
        if existing is not None and not append:
            raise OutputError(f"{name} already contains {existing.name}: pgtail decode writes to an empty directory")

    def open(self, name: tuple[str, ...], header: bytes) -> _File:
        """The file of a table, given as (schema, table), that begins with `header`. Raises OutputError."""
        file = self._files.get((name, header))
        if file is None:
            file = self._files[name, header] = self._find(".".join(map(_safe, name)), header)
        return file

    def _find(self, name: str, header: bytes) -> _File:
        """A new file, or an existing one that begins with the same header."""
        number = 1
        while True:
            path = self._folder / _fitting(name, ".csv" if number == 1 else f".{number}.csv")
            number += 1
            folded = path.name.casefold()  # some file systems ignore case
            if folded in self._names:
                continue
            found = self._begins(path, len(header))
            if found not in (b"", header):
                continue
            self._names.add(folded)
            file = _File(self, path)
            if not found:
                file.write(header)
            elif self._last_byte(path) != b"\n":  # an earlier run may have been killed
                file.write(b"\n")
            return file

    def _begins(self, path: Path, size: int) -> bytes:
        """The first bytes of a file, empty if it does not exist."""
        try:
            with path.open("rb") as file:
                return file.read(size)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._failed(path, error) from error

    def _last_byte(self, path: Path) -> bytes:
        try:
            return _last_byte(path)
        except OSError as error:
            raise self._failed(path, error) from error

    def write(self, data: bytes, /) -> None:
        """Raises OutputError: bytes go to the directory's files."""
        raise OutputError(f"cannot write to {self.name}: it is a directory")

    def wrote(self, file: _File, size: int) -> None:
        """Note bytes that a file buffered, and write a full buffer. Raises OutputError."""
        self._dirty[file.path] = file
        self._size += size
        if self._size >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Write everything. Raises OutputError."""
        dirty, self._dirty, self._size = self._dirty, {}, 0
        for path, file in dirty.items():
            parts, file.parts = file.parts, []
            try:
                with path.open("ab") as opened:
                    opened.writelines(parts)
            except OSError as error:
                raise self._failed(path, error) from error
            self._unsynced.add(path)

    def sync(self) -> None:
        """Flush, and fsync the files and the directory. Raises OutputError."""
        self.flush()
        for path in [*self._unsynced, self._folder]:
            try:
                fd = os.open(path, os.O_RDONLY)
                try:
                    _fsync(fd)
                finally:
                    os.close(fd)
            except OSError as error:
                raise self._failed(path, error) from error
        self._unsynced.clear()

    def _failed(self, path: Path, error: OSError) -> OutputError:
        return OutputError(f"cannot write to {path}: {error.strerror}")


def _safe(name: str) -> str:
    """A schema or table name in a file name: separators and control characters as %XX."""
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", name)


def _fitting(name: str, ending: str) -> str:
    """A file name; one that is too long is cut, and ends with a part of its SHA-256."""
    full = name.encode()
    if len(full) + len(ending) <= _NAME_LIMIT:
        return name + ending
    mark = f"~{hashlib.sha256(full).hexdigest()[:20]}{ending}"
    cut = full[: _NAME_LIMIT - len(mark)].decode(errors="ignore")
    return re.sub(r"%.?\Z", "", cut) + mark  # not inside of %XX
