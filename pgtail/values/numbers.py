"""Integers, object and transaction ids, money and numeric.

Sources: src/backend/utils/adt/int.c, int8.c, oid.c, xid.c, xid8funcs.c, cash.c, numeric.c.
"""

from __future__ import annotations

import struct
from typing import Final

from pgtail.values.codec import BinaryText, Kind, Loader, plain
from pgtail.values.render import large_numbers, numbers, strings

NUMERIC_NEG: Final = 0x4000
NUMERIC_NAN: Final = 0xC000
NUMERIC_PINF: Final = 0xD000
NUMERIC_NINF: Final = 0xF000
NUMERIC_DSCALE_MASK: Final = 0x3FFF

_SPECIAL = {NUMERIC_NAN: "NaN", NUMERIC_PINF: "Infinity", NUMERIC_NINF: "-Infinity"}
_SIGNS = {0: "", NUMERIC_NEG: "-"}
_HEADER = struct.Struct(">HhHH")
_cents = struct.Struct(">q").unpack


def _integer(layout: str) -> BinaryText:
    unpack = struct.Struct(layout).unpack

    def text(cell: bytes) -> str:
        (value,) = unpack(cell)
        return str(value)

    return text


def money_text(cell: bytes) -> str:
    """Cents, printed as with lc_monetary C, as the stream does not contain the server's locale (cash.c, cash_out)."""
    (value,) = _cents(cell)
    dollars, cents = divmod(abs(value), 100)
    return f"{'-' if value < 0 else ''}${dollars:,}.{cents:02d}"


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
        integer = digits[:point].ljust(point, "0").lstrip("0") or "0"
        fraction = digits[point:end]
    else:
        integer = "0"
        fraction = ("0" * min(-point, scale) + digits)[:scale]
    if digits[max(end, 0) :].strip("0") or (negative and not digits.strip("0")):
        raise ValueError("digits of a numeric beyond its scale, or a negative zero")
    return f"{integer}.{fraction.ljust(scale, '0')}" if scale else integer


OID: Final = Loader(Kind.NUMBER, numbers, plain(_integer(">I")))

LOADERS: Final[dict[str, Loader]] = {
    "cid": Loader(Kind.TEXT, strings, plain(_integer(">I"))),
    "int2": Loader(Kind.NUMBER, numbers, plain(_integer(">h"))),
    "int4": Loader(Kind.NUMBER, numbers, plain(_integer(">i"))),
    "int8": Loader(Kind.NUMBER, large_numbers, plain(_integer(">q"))),
    "money": Loader(Kind.TEXT, strings, plain(money_text)),
    "numeric": Loader(Kind.NUMBER, large_numbers, plain(numeric_text)),
    "oid": OID,
    "xid": OID,
    "xid8": Loader(Kind.TEXT, strings, plain(_integer(">Q"))),
}
