"""Writing files so that they survive a crash: data synced, files replaced in one step, directories synced."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

_CANNOT_SYNC: Final = (errno.EBADF, errno.EINVAL)
"""Some file systems do not sync directories (as in PostgreSQL's fsync_fname)."""


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_synced(fd: int, data: bytes) -> None:
    """Write all of `data` and fsync. Raises OSError."""
    write_all(fd, data)
    os.fsync(fd)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file's content: after a crash it has the old content or the new one. Raises OSError.

    Only its owner may read it.
    """
    draft = path.with_name(f"{path.name}.draft")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_synced(fd, data)
    finally:
        os.close(fd)
    rename_synced(draft, path)


def rename_synced(path: Path, to: Path) -> None:
    """Rename, and sync the target's directory. Raises OSError."""
    os.replace(path, to)
    sync_directory(to.parent)


def sync_directory(directory: Path) -> None:
    """Wait until a directory's entries are on disk, where its file system can do that. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(fd)
