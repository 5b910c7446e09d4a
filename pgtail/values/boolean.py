"""Bool (src/backend/utils/adt/bool.c)."""

from __future__ import annotations

from typing import Final

from pgtail.values.codec import Kind, Loader, plain
from pgtail.values.render import booleans

_TEXT: Final = {b"\x01": "t", b"\x00": "f"}


def bool_text(cell: bytes) -> str:
    """One byte, 0 or 1."""
    return _TEXT[cell]


BOOL: Final = Loader(Kind.BOOL, booleans, plain(bool_text))
