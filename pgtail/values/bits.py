"""Types of bits and bytes: bool, bit strings, bytea and uuid.

Sources: src/backend/utils/adt/bool.c, varbit.c, bytea.c, uuid.c.
"""

from __future__ import annotations

import struct
from typing import Final

from pgtail.values.codec import Loader, ValueKind, hex_text, plain
from pgtail.values.render import booleans, hex_pieces, strings

_AT_ONCE = 4096
_count = struct.Struct(">i").unpack_from
_BOOLEANS: Final = {b"\x01": "t", b"\x00": "f"}


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


def uuid_text(cell: bytes) -> str:
    """16 bytes, in the order of their digits."""
    if len(cell) != 16:
        raise ValueError("uuid of another length")
    digits = cell.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


TYPES: Final = {
    "bool": Loader(ValueKind.BOOL, booleans, plain(_BOOLEANS.__getitem__)),
    "bit": Loader(ValueKind.TEXT, strings, plain(bits_text)),
    "varbit": Loader(ValueKind.TEXT, strings, plain(bits_text)),
    "bytea": Loader(ValueKind.TEXT, strings, plain(hex_text), hex_pieces),
    "uuid": Loader(ValueKind.TEXT, strings, plain(uuid_text)),
}
"""The types by name. Bytea is in the format of bytea_output hex."""
