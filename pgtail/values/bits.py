"""Bit strings (src/backend/utils/adt/varbit.c)."""

from __future__ import annotations

import struct
from typing import Final

from pgtail.values.codec import Kind, Loader, plain
from pgtail.values.render import strings

_AT_ONCE = 4096
_count = struct.Struct(">i").unpack_from


def bits_text(cell: bytes) -> str:
    """The number of bits, then the bits, padded with zeros to a full byte."""
    (count,) = _count(cell)
    size = len(cell) - 4
    if count < 0 or size != (count + 7) // 8:
        raise ValueError("bit string of another length")
    text = "".join([_digits(cell[start : start + _AT_ONCE]) for start in range(4, len(cell), _AT_ONCE)])
    if "1" in text[count:]:
        raise ValueError("bits beyond the end of a bit string")
    return text[:count]


def _digits(part: bytes) -> str:
    return f"{int.from_bytes(part):0{8 * len(part)}b}"


BIT: Final = Loader(Kind.TEXT, strings, plain(bits_text))
