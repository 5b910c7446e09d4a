"""The few things that a store needs of a file system, foremost to replace one file atomically.

Local folders by the operating system, HDFS by Hadoop's own rename. Object stores have no rename: they are refused.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pyspark.sql import SparkSession

from pgtail.errors import OptionError, OutputError
from pgtail.files.atomic import replace_file


class Stored(NamedTuple):
    """A file below the root: its path from there, its size in bytes, and when it was written (Unix time)."""

    path: str
    size: int
    written: float


class Files(Protocol):
    """A folder. Paths are relative to it, with slashes."""

    def read(self, path: str) -> bytes | None: ...
    def replace(self, path: str, data: bytes) -> None: ...
    def walk(self, path: str) -> Iterator[Stored]: ...
    def remove(self, path: str) -> None: ...
    def url(self, path: str) -> str: ...


def files_of(spark: SparkSession, root: str) -> Files:
    """The folder `root`. Raises OptionError where a file in it cannot be replaced atomically."""
    scheme = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*):", root)
    if scheme is None:
        return LocalFiles(Path(root))
    if scheme[1] == "file":
        return LocalFiles(Path(re.sub("^file:/*", "/", root)))
    if scheme[1] in ("hdfs", "viewfs"):
        return HadoopFiles(spark, root)
    raise OptionError(
        f"state cannot be kept on {scheme[1]}: it needs a file system whose rename replaces a file in one step "
        "(a local folder or HDFS). Keep it there, or MERGE from `changes` into a table format."
    )


class LocalFiles:
    """A folder of this machine, or one that is mounted everywhere under the same path."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def read(self, path: str) -> bytes | None:
        """The file's bytes; None where there is none. Raises OutputError."""
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OutputError(f"cannot read {self._root / path}: {error.strerror}") from error

    def replace(self, path: str, data: bytes) -> None:
        """Put `data` in the file's place, whole or not at all. Raises OutputError."""
        target = self._root / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(target, data)
        except OSError as error:
            raise OutputError(f"cannot write {target}: {error.strerror}") from error

    def walk(self, path: str) -> Iterator[Stored]:
        """All files below a folder."""
        for folder, _, names in os.walk(self._root / path):
            for name in names:
                file = Path(folder, name)
                status = file.stat()
                yield Stored(file.relative_to(self._root).as_posix(), status.st_size, status.st_mtime)

    def remove(self, path: str) -> None:
        """Remove a file and the folders that it leaves empty."""
        file = self._root / path
        file.unlink(missing_ok=True)
        for folder in file.parents:
            if folder == self._root:
                break
            try:
                folder.rmdir()
            except OSError:
                break

    def url(self, path: str) -> str:
        """What Spark calls it."""
        return str(self._root / path)


class HadoopFiles:
    """A folder on a Hadoop file system with an atomic rename, through Spark's JVM (so not through Spark Connect)."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        try:
            jvm: Any = spark._jvm
            configuration: Any = spark._jsc.hadoopConfiguration()
        except AttributeError:
            raise OptionError(f"{root}: state on HDFS cannot be kept through Spark Connect") from None
        self._jvm = jvm
        self._root = root.rstrip("/")
        uri = jvm.java.net.URI.create(self._root)
        self._context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(uri, configuration)
        self._system = jvm.org.apache.hadoop.fs.FileSystem.get(uri, configuration)

    def read(self, path: str) -> bytes | None:
        """The file's bytes; None where there is none."""
        target = self._path(path)
        if not self._system.exists(target):
            return None
        stream = self._system.open(target)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def replace(self, path: str, data: bytes) -> None:
        """Put `data` in the file's place, whole or not at all."""
        draft = self._path(f"{path}.draft")
        stream = self._system.create(draft, True)
        stream.write(bytearray(data))
        stream.hsync()
        stream.close()
        options = self._jvm.java.lang.reflect.Array.newInstance(self._rename().getClass(), 1)
        options[0] = self._rename()
        self._context.rename(draft, self._path(path), options)

    def walk(self, path: str) -> Iterator[Stored]:
        """All files below a folder."""
        if not self._system.exists(self._path(path)):
            return
        found = self._system.listFiles(self._path(path), True)
        root = self._system.makeQualified(self._path("")).toUri().getPath().rstrip("/")
        while found.hasNext():
            status = found.next()
            name = status.getPath().toUri().getPath()
            yield Stored(name[len(root) + 1 :], status.getLen(), status.getModificationTime() / 1000)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._system.delete(self._path(path), False)

    def url(self, path: str) -> str:
        """What Spark calls it."""
        return f"{self._root}/{path}"

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._root}/{path}" if path else self._root)

    def _rename(self) -> Any:
        return getattr(self._jvm, "org.apache.hadoop.fs.Options$Rename").OVERWRITE


def now() -> float:
    """Unix time."""
    return time.time()
