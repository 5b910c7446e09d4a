"""Floor 4, one segment being written: gzip members that are only ever added, and an end that says it is whole."""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pgtail.captures.framing import END, POSITION, START, copy_data, parameter, parameters
from pgtail.captures.names import CLOSED, OPEN, SegmentName
from pgtail.errors import OutputError
from pgtail.wire.scalars import lsn_text

_GZIP: Final = 31
"""zlib's code for "gzip"."""
_LEVEL: Final = 1
"""Higher levels take longer than the server does to send."""


class Segment:
    """A file with one of the endings of an unfinished segment, and `NAME.pgcap` from close() on.

    All methods raise OutputError. `size` and `pending` (what sync() would write) count raw bytes, `begun` is of
    time.monotonic(), `messages` counts those of the stream, without what is repeated at the beginning.
    """

    def __init__(self, directory: Path, name: SegmentName, *, compress: bool, ending: str = OPEN) -> None:
        self.name = name
        self.begun = time.monotonic()
        self.messages = self.size = self.pending = 0
        self._compress = compress
        self._directory = directory
        self._digest = hashlib.sha256()
        self._parts: list[bytes] = []
        self._broken: OutputError | None = None
        self._path = directory / f"{name}{ending}"
        try:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            sync_directory(directory)
        except OSError as error:
            raise _failed(self._path, error) from error

    def start(self, head: Mapping[str, str], repeated: list[bytes]) -> None:
        """Begin with what the stream's messages need to decode."""
        self.add_raw(parameters(head))
        for frame in repeated:
            self.add_raw(copy_data(frame))
        self.add_raw(parameter(START, ""))

    def add(self, frame: bytes) -> None:
        """Take a walsender frame."""
        self.messages += 1
        self.add_raw(copy_data(frame))

    def add_raw(self, data: bytes) -> None:
        """Take bytes as they are."""
        self._parts.append(data)
        self.pending += len(data)
        self.size += len(data)

    def sync(self) -> None:
        """Write what was taken as one member, and wait until it is on the disk, in a file that has its name still.

        Once that has failed it fails for ever: what the disk then has of the member nobody knows.
        """
        if self._broken is not None:
            raise self._broken
        try:
            if self._parts:
                write_synced(self._fd, self._member())
            there = os.path.samestat(os.fstat(self._fd), os.stat(self._path))
        except FileNotFoundError:
            there = False
        except OSError as error:
            self._broken = _failed(self._path, error)
            raise self._broken from error
        if not there:
            self._broken = OutputError(f"{self._path} is gone: it, or its directory, was removed or renamed meanwhile")
            raise self._broken

    def _member(self) -> bytes:
        """What was taken, as it is written."""
        data = b"".join(self._parts)
        self._parts.clear()
        self.pending = 0
        self._digest.update(data)
        if not self._compress:
            return data
        member = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        return member.compress(data) + member.flush()

    def finish(self, whole: int) -> None:
        """Write the end; `whole` is the position up to which the capture has everything. Nothing can be added then."""
        self.add_raw(parameter(POSITION, lsn_text(whole)))
        self.sync()
        self.add_raw(parameter(END, f"{self.messages} {self.size} {self._digest.hexdigest()}"))
        self.sync()
        self.leave()

    def leave(self) -> None:
        """Let go of the file as it is."""
        os.close(self._fd)

    def close(self) -> None:
        """Give it its name for good: it never changes from now on."""
        rename(self._path, self._directory / f"{self.name}{CLOSED}")


def rename(path: Path, to: Path) -> None:
    """Rename a file of the same directory, for good. Raises OutputError."""
    try:
        os.rename(path, to)
        sync_directory(to.parent)
    except OSError as error:
        raise _failed(to, error) from error


def write_synced(fd: int, data: bytes) -> None:
    """Write all of it, and wait until it is on the disk. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.fsync(fd)


def sync_directory(directory: Path) -> None:
    """Wait until the names in a directory are on the disk. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _failed(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot write {path}: {error.strerror}")
