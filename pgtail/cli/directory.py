"""Floor 7, a directory that takes one file per table: bytes by file name, gathered and written together.

No file is kept open, so that their number does not matter.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Final

from pgtail.cli.sinks import BATCH
from pgtail.errors import OutputError

_UNSAFE: Final = re.compile(r"[/%.\x00-\x1f\x7f]")


class _File:
    """One file of the directory: what waits to be written at its end."""

    def __init__(self, directory: DirectorySink, path: Path) -> None:
        self.path = path
        self.parts: list[bytes] = []
        self._directory = directory

    def write(self, data: bytes, /) -> None:
        self.parts.append(data)
        self._directory.wrote(self, len(data))


class DirectorySink:
    """Gathers bytes for files in a directory; `flush` writes what there is.

    The directory is made if it is not there. `append` goes on with files that are there, else it must hold none.
    `stopped` gives up, as StreamSink's.
    """

    fd = -1

    def __init__(self, name: str, *, append: bool) -> None:
        self.name = name
        self.stopped = False
        self.waits = True
        self._folder = Path(name)
        self._append = append
        self._files: dict[tuple[tuple[str, ...], bytes], _File] = {}
        self._taken: set[str] = set()
        self._dirty: dict[Path, _File] = {}
        self._unsynced: set[Path] = set()
        self._size = 0
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            held = next(self._folder.glob("*.csv"), None)
        except OSError as error:
            raise OutputError(f"cannot write to {name}: {error.strerror}") from error
        if held is not None and not append:
            raise OutputError(f"{name} holds {held.name} already: pgtail decode writes into an empty directory")

    @property
    def pending(self) -> int:
        """Bytes that flush() would write."""
        return self._size

    @property
    def may_not_wait(self) -> bool:
        """Files may have to wait for the disk."""
        return False

    def open(self, name: tuple[str, ...], header: bytes) -> _File:
        """The file of a table (`name`: its schema and its own) that begins with `header`. Raises OutputError."""
        file = self._files.get((name, header))
        if file is None:
            file = self._files[name, header] = self._find(".".join(map(_safe, name)), header)
        return file

    def _find(self, name: str, header: bytes) -> _File:
        """A new file, or (`append`) one that begins with that header."""
        number = 1
        while True:
            path = self._folder / (f"{name}.csv" if number == 1 else f"{name}.{number}.csv")
            number += 1
            folded = path.name.casefold()  # there are filesystems where only that counts
            if folded in self._taken:
                continue
            found = self._begins(path, len(header))
            if found not in (b"", header):
                continue
            self._taken.add(folded)
            file = _File(self, path)
            if not found:
                file.write(header)
            elif not self._ends_whole(path):
                file.write(b"\n")
            return file

    def _begins(self, path: Path, size: int) -> bytes:
        """The beginning of a file, empty where there is none."""
        try:
            with path.open("rb") as file:
                return file.read(size)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._failed(path, error) from error

    def _ends_whole(self, path: Path) -> bool:
        """Whether an earlier run left the file at the end of a line."""
        try:
            with path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                return file.read() == b"\n"
        except OSError as error:
            raise self._failed(path, error) from error

    def write(self, data: bytes, /) -> None:
        """Nothing goes to a directory itself."""
        raise OutputError(f"cannot write to {self.name}: it is a directory")

    def wrote(self, file: _File, size: int) -> None:
        """A file got bytes. Raises OutputError where it writes."""
        self._dirty[file.path] = file
        self._size += size
        if self._size >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the system. Raises OutputError."""
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
        """Flush, and wait until the bytes and the files' names are on the disk. Raises OutputError."""
        self.flush()
        for path in [*self._unsynced, self._folder]:
            try:
                fd = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EROFS, errno.ENOTSUP):
                    raise self._failed(path, error) from error
        self._unsynced.clear()

    def _failed(self, path: Path, error: OSError) -> OutputError:
        return OutputError(f"cannot write to {path}: {error.strerror}")


def _safe(name: str) -> str:
    """A part of a file's name: what would lead elsewhere, or ends a part, as %XX."""
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", name)
