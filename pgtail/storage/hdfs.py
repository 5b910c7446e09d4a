"""HDFS through pyarrow.fs, which needs libhdfs: for reading."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyarrow.fs import FileSelector, FileSystem

from pgtail.errors import InputError, OptionError
from pgtail.storage.base import Entry, Location, Reader, after_name, check_small


@functools.cache
def file_system(server: str) -> FileSystem:
    """The file system of a URI. Raises OptionError if a library is missing, OSError."""
    try:
        return FileSystem.from_uri(server)[0]
    except OSError as error:
        if "libhdfs" not in str(error) and "libjvm" not in str(error):
            raise
        raise OptionError(
            f"{server} needs Java and Hadoop's libhdfs: install them, and set JAVA_HOME, HADOOP_HOME and CLASSPATH (the"
            " output of: hadoop classpath --glob)"
        ) from None


class HdfsReader(Reader):
    """An open file of HDFS."""

    def __init__(self, file: Any, size: int, source: str) -> None:
        super().__init__(size)
        self._file = file
        self._source = source

    def pread(self, size: int, offset: int) -> bytes:
        with _reading(self._source):
            return bytes(self._file.read_at(max(min(size, self.size - offset), 0), offset))

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)  # the metaclass of an abstract class is not that of a Struct
class HdfsLocation(Location):
    """A path on an HDFS server, `hdfs://HOST:PORT`."""

    server: str
    key: str

    def __str__(self) -> str:
        return f"{self.server}{self.key}"

    def __truediv__(self, name: str) -> HdfsLocation:
        return HdfsLocation(self.server, f"{self.key.rstrip('/')}/{name}")

    def list(self, after: str = "") -> list[Entry]:
        with _reading(str(self)):
            found = file_system(self.server).get_file_info(FileSelector(self.key))
            return after_name((Entry(one.base_name, one.size) for one in found if one.is_file), after)

    def head(self) -> Entry | None:
        with _reading(str(self)):
            found = file_system(self.server).get_file_info(self.key)
            return Entry(found.base_name, found.size) if found.is_file else None

    def open(self) -> Reader:
        with _reading(str(self)):
            file = file_system(self.server).open_input_file(self.key)
            return HdfsReader(file, file.size(), str(self))

    def read(self) -> tuple[bytes, str] | None:
        if self.head() is None:
            return None
        with self.open() as file:
            check_small(file.size, str(self))
            return file.read(), ""


@contextlib.contextmanager
def _reading(source: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot be read: {str(error).partition(chr(10))[0]}", source=source) from None
