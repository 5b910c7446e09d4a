"""Floor 4, the directory of a capture while it is written: made, and held by one writer alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgtail.captures.names import CLOSED
from pgtail.errors import OptionError, OutputError


@contextmanager
def open_directory(directory: Path, *, empty: bool = False) -> Iterator[Path]:
    """Make the directory where there is none, and lock it; `empty`: it must hold no capture yet.

    Raises OutputError, and OptionError where somebody else writes to it.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise OutputError(f"cannot use {directory}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OptionError(f"another process records into {directory}") from None
        if empty and any(directory.glob(f"*{CLOSED}")):
            raise OptionError(f"{directory} holds a capture already: name a new directory")
        yield directory
    finally:
        os.close(fd)
