"""The folder of a table."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_MOST: Final = 200
"""Characters of a folder's name; file systems end at 255 bytes."""
_ODD: Final = re.compile(rb"[^a-z0-9_-]|\A_")


def folder_name(schema: str, table: str) -> str:
    """schema.table, with ~xx for all bytes but a-z, 0-9, _ and -, and for a first underscore.

    So are capitals: a file system may not distinguish them from small letters, but PostgreSQL does. What begins
    with an underscore is hidden from Spark. What would be too long is cut off, and ends with ~~ and a part of its
    SHA-256.
    """
    full = f"{_encoded(schema)}.{_encoded(table)}"
    if len(full) <= _MOST:
        return full
    return f"{full[: _MOST - 22]}~~{hashlib.sha256(full.encode()).hexdigest()[:20]}"


def _encoded(name: str) -> str:
    return _ODD.sub(lambda byte: b"~%02x" % byte[0][0], name.encode()).decode()
