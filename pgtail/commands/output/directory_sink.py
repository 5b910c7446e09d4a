"""A directory with one file per table, where the bytes of an output go."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from pgtail.commands.output.file_sink import FileSink
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
    """Buffers bytes for files in a directory without CSV files, which is created if missing; `flush` writes them.

    No file stays open, so that any number of tables works. Raises OutputError.
    """

    fd = -1

    def __init__(self, name: str) -> None:
        self.name = name
        self._folder = Path(name)
        self._files: dict[tuple[tuple[str, ...], bytes], _File] = {}
        self._names: set[str] = set()
        self.unwritten: list[_File] = []
        """The files with bytes to write, which are `size` together."""
        self.size = 0
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            existing = next(self._folder.glob("*.csv"), None)
        except OSError as error:
            raise OutputError(f"cannot write to {name}: {error.strerror}") from error
        if existing is not None:
            raise OutputError(f"{name} already contains {existing.name}: pgtail decode writes to an empty directory")

    def open(self, name: tuple[str, ...], header: bytes) -> _File:
        """The file of a table, given as (schema, table), that begins with `header`. Raises OutputError."""
        file = self._files.get((name, header))
        if file is None:
            file = self._files[name, header] = _File(self, self._path(".".join(map(_safe, name))))
            file.write(header)
        return file

    def _path(self, name: str) -> Path:
        number = 1
        while (file := _fitting(name, ".csv" if number == 1 else f".{number}.csv")).casefold() in self._names:
            number += 1
        self._names.add(file.casefold())  # some file systems ignore case
        return self._folder / file

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
                raise OutputError(f"cannot write to {path}: {error.strerror}") from error


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
