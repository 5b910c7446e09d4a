"""What every kind of storage offers: the base classes Location and Reader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from pgtail.errors import InputError, OutputError
from pgtail.files.small import MOST
from pgtail.storage.options import NO_OPTIONS, StorageOptions

if TYPE_CHECKING:
    from pathlib import Path


class Entry(NamedTuple):
    """A file: its name within its folder, and its size in bytes."""

    name: str
    size: int


class Reader(ABC):
    """An open file. `size` in bytes; `version` changes with the content (empty if the storage has no versions).

    Methods raise InputError, also if the file changed since it was opened.
    """

    def __init__(self, size: int, version: str = "") -> None:
        self.size = size
        self.version = version
        self._position = 0

    @abstractmethod
    def pread(self, size: int, offset: int) -> bytes:
        """`size` bytes from `offset` on, fewer only at the end."""

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most `size`; all that are left if it is negative."""
        data = self.pread(self.size - self._position if size < 0 else size, self._position)
        self._position += len(data)
        return data

    def seek(self, offset: int) -> int:
        self._position = offset
        return offset

    def close(self) -> None:  # noqa: B027 -- most readers have nothing to close
        """Release what the reader has open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Writer(ABC):
    """A new file, which takes any number of bytes in bounded memory. It counts when finish() has returned.

    It has what pyarrow asks of a file object. Methods raise OutputError.
    """

    closed = False

    @abstractmethod
    def write(self, data: bytes) -> int:
        """Add these bytes; returns how many."""

    @abstractmethod
    def tell(self) -> int:
        """How many bytes there are."""

    def flush(self) -> None:  # noqa: B027 -- finish() does it
        """Does nothing."""

    @abstractmethod
    def finish(self) -> None:
        """Complete the file."""

    @abstractmethod
    def abandon(self) -> None:
        """Leave nothing behind."""


class Location(ABC):
    """A file or a folder, whether it exists or not. str() is its path or URI.

    Reading raises InputError, writing OutputError; if that may pass (network, server), both are one of UNAVAILABLE.
    """

    replaces: ClassVar[bool] = False
    """Whether replace() is possible."""

    @property
    def path(self) -> Path | None:
        """The path of a local one."""
        return None

    @property
    def storage(self) -> StorageOptions:
        """The options that it was located with, for a library that opens its URI."""
        return NO_OPTIONS

    def absolute(self) -> Location:
        """The same for a process with another working directory."""
        return self

    @property
    def name(self) -> str:
        return str(self).rstrip("/").rpartition("/")[2]

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def __truediv__(self, name: str) -> Self:
        """What has this name in this folder."""

    @abstractmethod
    def list(self, after: str = "") -> list[Entry]:
        """The files in this folder whose names sort after `after`, in the order of their names.

        Does not include what is in folders inside of it. An object store has no folders: one that does not exist is
        empty.
        """

    @abstractmethod
    def head(self) -> Entry | None:
        """Name and size of this file; None if there is no such file."""

    def is_folder(self) -> bool:
        """Whether this is a folder; of an object store, whether there is no object of this name."""
        return self.head() is None

    @abstractmethod
    def open(self) -> Reader:
        """Open this file for reading."""

    @abstractmethod
    def read(self) -> tuple[bytes, str] | None:
        """Content and version of this file, at once; None if there is none. Of a large file that is an error."""

    def create(self, data: bytes) -> str:
        """Write this file, atomically, and return its version. Raises Conflict if it exists already."""
        raise self._only_read()

    def writer(self) -> Writer:
        """Write this file, which does not exist, piece by piece; makes its folder."""
        raise self._only_read()

    def replace(self, data: bytes, version: str) -> str:
        """Replace this file, atomically, and return the new version. Raises Conflict if it has another `version`."""
        raise OutputError(f"cannot write {self}: only an object store replaces a file on a condition")

    def delete(self) -> None:
        """Delete this file; does nothing if there is none."""
        raise self._only_read()

    def delete_all(self) -> None:
        """Delete this folder with everything in it; does nothing if there is none."""
        raise self._only_read()

    def _only_read(self) -> OutputError:
        return OutputError(f"cannot write {self}: pgtail only reads there")


def check_small(size: int, source: str) -> None:
    """Raises InputError for a file of more bytes than Location.read() reads."""
    if size > MOST:
        raise InputError(f"cannot be read: it has {size} bytes, and at most {MOST} are expected", source=source)


def after_name(entries: Iterable[Entry], after: str) -> list[Entry]:
    """The entries whose names sort after `after`, in order."""
    return sorted(entry for entry in entries if entry.name > after)
