"""Numeric: every digit of it (src/backend/utils/adt/numeric.c)."""

from __future__ import annotations

import struct
from typing import Final

from pgtail.values.codec import Loader, ValueKind, plain
from pgtail.values.render import large_numbers

NUMERIC_NEG: Final = 0x4000
NUMERIC_NAN: Final = 0xC000
NUMERIC_PINF: Final = 0xD000
NUMERIC_NINF: Final = 0xF000
NUMERIC_DSCALE_MASK: Final = 0x3FFF

_SPECIAL = {NUMERIC_NAN: "NaN", NUMERIC_PINF: "Infinity", NUMERIC_NINF: "-Infinity"}
_SIGNS = {0: "", NUMERIC_NEG: "-"}
_HEADER = struct.Struct(">HhHH")


def numeric_text(cell: bytes) -> str:
    """Number of digits, weight of the first, sign, digits after the point; then base-10000 digits."""
    count, weight, sign, scale = _HEADER.unpack_from(cell)
    if len(cell) != _HEADER.size + 2 * count:
        raise ValueError("numeric of another length")
    if scale > NUMERIC_DSCALE_MASK:
        raise ValueError("numeric with too many digits after the point")
    if sign in _SPECIAL:
        if count:
            raise ValueError("digits in a numeric that has none")
        return _SPECIAL[sign]
    groups = struct.unpack_from(f">{count}H", cell, _HEADER.size)
    if count and max(groups) > 9999:
        raise ValueError("a digit of numeric above 9999")
    return _SIGNS[sign] + _magnitude("%04d" * count % groups, 4 * (weight + 1), scale, negative=bool(sign))


def _magnitude(digits: str, point: int, scale: int, *, negative: bool) -> str:
    """`digits` with the decimal point after `point` of them (may be outside), and `scale` digits after it."""
    end = point + scale
    if point > 0:
        whole = digits[:point].ljust(point, "0").lstrip("0") or "0"
        fraction = digits[point:end]
    else:
        whole = "0"
        fraction = ("0" * min(-point, scale) + digits)[:scale]
    if digits[max(end, 0) :].strip("0") or (negative and not digits.strip("0")):
        raise ValueError("digits of a numeric beyond its scale, or a negative zero")
    return f"{whole}.{fraction.ljust(scale, '0')}" if scale else whole


TYPES: Final = {"numeric": Loader(ValueKind.NUMBER, large_numbers, plain(numeric_text))}
