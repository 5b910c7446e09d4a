"""Floor 4, the directory of a capture while it is written: made, and held by one writer alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgtail.captures.names import CLOSED, OPEN
from pgtail.captures.position import remembered
from pgtail.captures.segment import sync_directory
from pgtail.errors import OptionError, OutputError


@contextmanager
def open_directory(directory: Path, *, empty: bool = False) -> Iterator[Path]:
    """Make the directory where there is none, and lock it; `empty`: it must hold no capture yet.

    Raises OutputError, and OptionError where somebody else writes to it.
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
            raise OptionError(f"another process records into {directory}") from None
        if not os.access(directory, os.W_OK | os.X_OK):
            raise OutputError(f"cannot write to {directory}: it is read-only, or another user's")
        if empty and _holds_something(directory):
            raise OptionError(f"{directory} holds a capture already: name a new directory")
        yield directory
    finally:
        os.close(fd)


def _make(directory: Path) -> None:
    """Make it where there is none, with those above it, for good."""
    if directory.is_dir():
        return
    _make(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    sync_directory(directory.parent)


def _holds_something(directory: Path) -> bool:
    known = remembered(directory)
    return any(any(directory.glob(f"*{ending}")) for ending in (CLOSED, OPEN)) or (
        known is not None and known.position > 0
    )
