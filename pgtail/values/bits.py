"""Floor 2, bit strings (src/backend/utils/adt/varbit.c); knows nothing of other types."""

from __future__ import annotations

import struct
from typing import Final

from pgtail.values.codec import Kind, Loader, plain
from pgtail.values.render import strings

_count = struct.Struct(">i").unpack_from


def bits_text(cell: bytes) -> str:
    """The number of bits, then the bits, filled up with zeros to a whole byte."""
    (count,) = _count(cell)
    size = len(cell) - 4
    if count < 0 or size != (count + 7) // 8:
        raise ValueError("bit string of another length")
    spare = 8 * size - count
    bits = int.from_bytes(cell[4:])
    if bits & ((1 << spare) - 1):
        raise ValueError("bits beyond the end of a bit string")
    return f"{bits >> spare:0{count}b}" if count else ""


BIT: Final = Loader(Kind.TEXT, strings, plain(bits_text))
