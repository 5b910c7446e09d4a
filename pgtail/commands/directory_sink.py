"""A directory with one file per table, where the bytes of an output go."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Final

from pgtail.commands.sinks import FileSink, fsync, last_byte
from pgtail.errors import OutputError
from pgtail.terminal.escape import hides

_NAME_LIMIT: Final = 255
"""Bytes of a file name on most file systems."""

_BATCH: Final = 256 * 1024
"""Buffered bytes that cause a write without a flush; each opens all files."""

_SEPARATORS: Final = "/%."


class _File:
    """One file of the directory, with the bytes to append to it."""

    def __init__(self, directory: DirectorySink, path: Path) -> None:
        self.path = path
        self.parts: list[bytes] = []
        self._directory = directory

    def write(self, data: bytes, /) -> None:
        """Buffer bytes, or write a full buffer. Raises OutputError."""
        directory = self._directory
        if not self.parts:
            directory.unwritten.append(self)
        self.parts.append(data)
        directory.size += len(data)
        if directory.size >= _BATCH:
            directory.flush()


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
        self.unwritten: list[_File] = []
        """The files with bytes to write, which are `size` together."""
        self.size = 0
        self._unsynced: set[Path] = set()
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
            return last_byte(path)
        except OSError as error:
            raise self._failed(path, error) from error

    def write(self, data: bytes, /) -> None:
        """Raises OutputError: bytes go to the directory's files."""
        raise OutputError(f"cannot write to {self.name}: it is a directory")

    def flush(self) -> None:
        """Write everything. Raises OutputError."""
        unwritten, self.unwritten, self.size = self.unwritten, [], 0
        for file in unwritten:
            path, parts, file.parts = file.path, file.parts, []
            try:
                with path.open("ab") as opened:
                    sink = FileSink(opened.fileno(), str(path))
                    sink.write(b"".join(parts))
                    sink.flush()
            except OSError as error:
                raise self._failed(path, error) from error
            self._unsynced.add(path)

    def reopen(self) -> bool:
        """No file stays open."""
        return False

    def sync(self) -> None:
        """Flush, and fsync the files and the directory. Raises OutputError."""
        self.flush()
        for path in [*self._unsynced, self._folder]:
            try:
                fd = os.open(path, os.O_RDONLY)
                try:
                    fsync(fd)
                finally:
                    os.close(fd)
            except OSError as error:
                raise self._failed(path, error) from error
        self._unsynced.clear()

    def _failed(self, path: Path, error: OSError) -> OutputError:
        return OutputError(f"cannot write to {path}: {error.strerror}")


def _safe(name: str) -> str:
    """A schema or table name in a file name: separators and hidden characters as the %XX of their bytes."""
    return "".join([_percent(char) if char in _SEPARATORS or hides(char) else char for char in name])


def _percent(char: str) -> str:
    return "".join([f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass")])


def _fitting(name: str, ending: str) -> str:
    """A file name; one that is too long is cut, and ends with a part of its SHA-256."""
    full = name.encode()
    if len(full) + len(ending) <= _NAME_LIMIT:
        return name + ending
    mark = f"~{hashlib.sha256(full).hexdigest()[:20]}{ending}"
    cut = full[: _NAME_LIMIT - len(mark)].decode(errors="ignore")
    return re.sub(r"%.?\Z", "", cut) + mark  # not inside of %XX
