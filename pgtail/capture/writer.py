"""Writes one segment: gzip members that are appended, and an end with its checksum."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pgtail.capture.checksum import Checksum
from pgtail.capture.format import (
    CLOSED,
    CONTENTS,
    END,
    OPEN,
    POSITION,
    START,
    SegmentName,
    copy_data,
    parameter,
)
from pgtail.errors import OutputError
from pgtail.files.atomic import rename_synced, sync_directory, write_all, write_synced
from pgtail.files.deflate import compress
from pgtail.pgoutput.scalars import lsn_text


class SegmentWriter:
    """A file with the suffix `ending`; close() renames it to one with the suffix `closed`.

    All methods raise OutputError. `size` and `pending` (what sync() would write) count uncompressed bytes, `begun` is
    a time.monotonic(), `messages` does not count those repeated at the beginning. `path` is where close() puts it.
    """

    def __init__(
        self, directory: Path, name: SegmentName, *, compress: bool, ending: str = OPEN, closed: str = CLOSED
    ) -> None:
        self.name = name
        self.begun = time.monotonic()
        self.messages = self.size = self.pending = 0
        self._compress = compress
        self._checksum = Checksum()
        self._parts: list[bytes] = []
        self._broken: OutputError | None = None
        self._path, self.path = directory / f"{name}{ending}", directory / f"{name}{closed}"
        try:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            sync_directory(directory)
        except OSError as error:
            raise _failed(self._path, error) from error

    def start(self, head: Mapping[str, str], repeated: list[bytes]) -> None:
        """Write the parameters, and the frames that following messages need."""
        for name, value in head.items():
            self.add_raw(parameter(name, value))
        for frame in repeated:
            self.add_raw(copy_data(frame))
        self.add_raw(parameter(START, ""))

    def add_frame(self, frame: bytes) -> None:
        self.messages += 1
        self.add_raw(copy_data(frame))

    def add_frames(self, parts: list[bytes], count: int) -> int:
        """Add this many frames, as the parts of CopyData messages. Returns their size."""
        size = sum(map(len, parts))
        self.messages += count
        self._parts += parts
        self.pending += size
        self.size += size
        return size

    def add_raw(self, data: bytes) -> None:
        self._parts.append(data)
        self.pending += len(data)
        self.size += len(data)

    def sync(self) -> None:
        """Write the added bytes as one member, fsync, and check that the file still has its name.

        After one failure every call fails: how much of the member is on disk is unknown.
        """
        self._write(write_synced)

    def flush(self) -> None:
        """As sync(), without fsync: the added bytes are on disk after the next sync()."""
        self._write(write_all)

    def _write(self, write: Callable[[int, bytes], None]) -> None:
        if self._broken is not None:
            raise self._broken
        try:
            if self._parts:
                write(self._fd, self._member())
            there = os.path.samestat(os.fstat(self._fd), os.stat(self._path))
        except FileNotFoundError:
            there = False
        except OSError as error:
            self._broken = _failed(self._path, error)
            raise self._broken from error
        if not there:
            self._broken = OutputError(f"{self._path} is gone: it or its directory was removed or renamed")
            raise self._broken

    def _member(self) -> bytes:
        """The bytes that were added, compressed."""
        data = b"".join(self._parts)
        self._parts.clear()
        self.pending = 0
        self._checksum.update(data)
        return compress(data) if self._compress else data

    def finish(self, whole: int, contents: str | None = None) -> None:
        """Write the end and close the file. `whole` is the LSN up to which the capture has everything.

        `contents` is the value of CONTENTS (contents.py), which readers find without reading anything before it.
        """
        if contents is not None:
            self.flush()
            self.add_raw(parameter(CONTENTS, contents))
        self.add_raw(parameter(POSITION, lsn_text(whole)))
        self.sync()
        self.add_raw(parameter(END, f"{self.messages} {self.size} {self._checksum.hexdigest()}"))
        self.sync()
        self.leave()

    def leave(self) -> None:
        """Close the file as it is."""
        os.close(self._fd)

    def abandon(self) -> None:
        self.leave()
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise _failed(self._path, error) from error

    def close(self) -> None:
        """Rename it to its final name: it never changes again."""
        rename(self._path, self.path)


def rename(path: Path, to: Path) -> None:
    """Rename a file within its directory, synced. Raises OutputError."""
    try:
        rename_synced(path, to)
    except OSError as error:
        raise _failed(to, error) from error


def _failed(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot write {path}: {error.strerror}")
