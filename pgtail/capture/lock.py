"""Creating a capture's directory, and locking it for one writer."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgtail.capture.format import CLOSED, OPEN
from pgtail.capture.state import read_state
from pgtail.errors import TRY_AGAIN, OptionError, OutputError
from pgtail.files.atomic import sync_directory
from pgtail.storage.local import LocalLocation


class DirectoryInUse(OptionError):
    """Another process records into the directory."""

    exit_status = TRY_AGAIN


@contextmanager
def open_directory(directory: Path, *, empty: bool = False) -> Iterator[Path]:
    """Create the directory if needed, and lock it. With `empty` it must not contain a capture.

    Raises OutputError, OptionError, and DirectoryInUse if another process has locked it.
    """
    try:
        _make(directory)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise OutputError(f"cannot use {directory}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DirectoryInUse(f"another process records into {directory}") from None
        if not os.access(directory, os.W_OK | os.X_OK):
            raise OutputError(f"cannot write to {directory}: it is read-only, or belongs to another user")
        if empty and (has_segments(directory) or read_state(LocalLocation(directory)).position):
            raise OptionError(f"{directory} holds a capture already: choose a new directory")
        yield directory
    finally:
        os.close(fd)


def _make(directory: Path) -> None:
    """Create a directory and its parents, synced."""
    if directory.is_dir():
        return
    _make(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    sync_directory(directory.parent)


def has_segments(directory: Path) -> bool:
    """Whether a directory has segments of a capture, closed or open."""
    return any(any(directory.glob(f"*{ending}")) for ending in (CLOSED, OPEN))
