"""Floor 7, the folder of a table: safe on every file system, and no two tables share one."""

from __future__ import annotations

import hashlib
import re
from typing import Final

MOST: Final = 200
"""Characters of a folder's name; file systems end at 255 bytes."""

_PLAIN: Final = re.compile(r"[a-z0-9_-]")


def folder_name(schema: str, table: str) -> str:
    """schema.table, with %XX for all bytes but a-z, 0-9, _ and -, and for a first underscore.

    Capitals are written so as well: a file system may not tell them from small letters, PostgreSQL does. Spark passes
    over what begins with an underscore. What would be too long is cut off, and ends with a part of its SHA-256.
    """
    full = f"{_encoded(schema)}.{_encoded(table)}"
    if len(full) <= MOST:
        return full
    return f"{full[: MOST - 21]}~{hashlib.sha256(full.encode()).hexdigest()[:20]}"


def _encoded(name: str) -> str:
    parts = [chr(byte) if _PLAIN.match(chr(byte)) else f"%{byte:02X}" for byte in name.encode()]
    if parts and parts[0] == "_":
        parts[0] = "%5F"
    return "".join(parts)
