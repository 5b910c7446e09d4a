"""Local files and folders."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pgtail.errors import InputError, OutputError
from pgtail.files.atomic import sync_directory, write_synced
from pgtail.files.small import read_small
from pgtail.storage.base import Entry, Location, Reader, Writer, after_name
from pgtail.storage.errors import Conflict


class LocalReader(Reader):
    """An open local file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _reading(path):
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            super().__init__(os.fstat(self._fd).st_size)

    def pread(self, size: int, offset: int) -> bytes:
        with _reading(self._path):
            return os.pread(self._fd, size, offset)

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            with _reading(self._path):
                self.size = os.fstat(self._fd).st_size
        return super().read(size)

    def close(self) -> None:
        os.close(self._fd)


class LocalWriter(Writer):
    """A new local file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("xb")

    def write(self, data: bytes) -> int:
        with _writing(self._path):
            return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def finish(self) -> None:
        with _writing(self._path):
            self._file.close()

    def abandon(self) -> None:
        with contextlib.suppress(OSError):  # of a full disk
            self._file.close()
        LocalLocation(self._path).delete()


def _entry(file: os.DirEntry[str] | Path) -> Entry | None:
    """The entry of a file; None for anything else, and if it is removed or renamed in this moment."""
    try:
        return Entry(file.name, file.stat().st_size) if file.is_file() else None
    except FileNotFoundError:
        return None


@dataclass(frozen=True)  # the metaclass of an abstract class is not that of a Struct
class LocalLocation(Location):
    """A local path."""

    local: Path

    @property
    def path(self) -> Path | None:
        return self.local

    def absolute(self) -> LocalLocation:
        return LocalLocation(Path(os.path.abspath(self.local)))

    def __str__(self) -> str:
        return str(self.local)

    def __truediv__(self, name: str) -> LocalLocation:
        return LocalLocation(self.local / name)

    def list(self, after: str = "") -> list[Entry]:
        with _reading(self.local), os.scandir(self.local) as found:
            entries = (_entry(one) for one in found if one.name > after)
            return after_name((entry for entry in entries if entry is not None), after)

    def head(self) -> Entry | None:
        with _reading(self.local):
            return _entry(self.local)

    def is_folder(self) -> bool:
        return self.local.is_dir()

    def open(self) -> Reader:
        return LocalReader(self.local)

    def read(self) -> tuple[bytes, str] | None:
        with _reading(self.local):
            try:
                return read_small(self.local), ""
            except FileNotFoundError:
                return None

    def create(self, data: bytes) -> str:
        draft = self.local.with_name(f".{self.local.name}.{secrets.token_hex(4)}")
        with _writing(self.local):
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                write_synced(fd, data)
                os.link(draft, self.local)  # fails if it exists, unlike rename()
            except FileExistsError:
                raise Conflict(f"{self} exists already") from None
            finally:
                os.close(fd)
                draft.unlink()
            sync_directory(self.local.parent)
        return ""

    def writer(self) -> Writer:
        return LocalWriter(self.local)

    def delete(self) -> None:
        try:
            self.local.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"cannot remove {self}: {error.strerror}") from error

    def delete_all(self) -> None:
        try:
            shutil.rmtree(self.local)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise OutputError(f"cannot remove {self}: {error.strerror}") from error


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Raises OutputError for OSError."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raises InputError for OSError."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"cannot be read: {reason}", source=str(path)) from None
