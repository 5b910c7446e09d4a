"""Read small files whole."""

from __future__ import annotations

import errno
import os
from typing import Final

MOST: Final = 16 << 20
"""Bytes; no file that is read whole has more."""


def read_small(path: str | os.PathLike[str]) -> bytes:
    """The content of a file. Raises OSError, also if it has more than MOST bytes, as a device may have."""
    with open(path, "rb") as file:
        data = file.read(MOST + 1)
    if len(data) > MOST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data
