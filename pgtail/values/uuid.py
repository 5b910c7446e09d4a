"""Uuid (src/backend/utils/adt/uuid.c)."""

from __future__ import annotations

from typing import Final

from pgtail.values.codec import Kind, Loader, plain
from pgtail.values.render import strings


def uuid_text(cell: bytes) -> str:
    """16 bytes, in the order of their digits."""
    if len(cell) != 16:
        raise ValueError("uuid of another length")
    digits = cell.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


UUID: Final = Loader(Kind.TEXT, strings, plain(uuid_text))
