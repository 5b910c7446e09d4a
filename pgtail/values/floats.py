"""Float4 and float8: the fewest digits strictly inside the rounding interval, and of those the nearest.

Python's repr() finds the fewest digits too, but accepts a decimal on the edge of the interval if the value's last
bit is even, which PostgreSQL never does (src/common/d2s.c and f2s.c, acceptBounds).
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Final

from pgtail.values.codec import Loader, ValueKind, plain
from pgtail.values.render import numbers

_double = struct.Struct(">d").unpack
_single = struct.Struct(">f").unpack
_bits = struct.Struct(">I").unpack
_from_bits = struct.Struct(">I").pack

EDGES_FROM: Final = 2.0**52
EDGES_TO: Final = 1e41
"""The range in which a decimal of at most 17 digits can be on the edge of a double's interval: an edge has exactly 54
significant bits, so d * 10**k is one only if d * 5**k (for k < 0: d / 5**-k) has 54, and d < 10**17 leaves
-1 <= k <= 23."""


def float8_text(cell: bytes) -> str:
    """Eight bytes, IEEE 754."""
    (value,) = _double(cell)
    return float8(value)


def float8(value: float) -> str:
    """A double as PostgreSQL prints it: in exponent form below 1e-4 and from 1e15."""
    magnitude = abs(value)
    if 1e-4 <= magnitude < 1e15:
        text = repr(value)
        return text.removesuffix(".0")
    if magnitude < 1e-4:
        return repr(value) if magnitude else _zero(value)
    if not math.isfinite(value):
        return _not_finite(value)
    digits, exponent = _digits(repr(magnitude))
    if EDGES_FROM <= magnitude < EDGES_TO and _is_edge(digits, exponent):
        digits, exponent = _search(
            Fraction(magnitude), Fraction(math.nextafter(magnitude, 0)), Fraction(math.nextafter(magnitude, math.inf))
        )
    return _lay_out(value < 0, digits, exponent, 15)


def float4_text(cell: bytes) -> str:
    """Four bytes, IEEE 754; in exponent form below 1e-4 and from 1e6."""
    (value,) = _single(cell)
    magnitude = abs(value)
    if magnitude == 0:
        return _zero(value)
    if not math.isfinite(value):
        return _not_finite(value)
    digits, exponent = _single_digits(magnitude)
    return _lay_out(value < 0, digits, exponent, 6)


def _single_digits(magnitude: float) -> tuple[str, int]:
    mantissa, exponent = math.frexp(magnitude)
    # Values below 2**-125 are equally spaced; above, the interval of a power of two is narrower on one side.
    half = math.ldexp(1.0, max(exponent, -125) - 25)
    narrow = mantissa == 0.5 and exponent > -125
    low, high = magnitude - (half / 2 if narrow else half), magnitude + half
    # A normal float keeps six digits: if fewer are enough, the rest of the six are zeros.
    for places in range(5 if exponent >= -125 else 0, 6 if narrow else 9):
        text = f"{magnitude:.{places}e}"
        nearest = float(text)
        if low < nearest < high:
            return _digits(text)
        if nearest in (low, high):
            break
    (bits,) = _bits(struct.pack(">f", magnitude))
    below, above = (Fraction(_neighbour(bits + step)) for step in (-1, 1))
    return _search(Fraction(magnitude), below, above)


def _neighbour(bits: int) -> float:
    (value,) = _single(_from_bits(bits))
    return float(value)


def _search(value: Fraction, below: Fraction, above: Fraction) -> tuple[str, int]:
    """The rule in exact arithmetic: digits and decimal exponent, from the value and its two neighbours."""
    low, high = (below + value) / 2, (value + above) / 2
    exponent = Decimal(float(value)).adjusted()
    while True:
        unit = Fraction(10) ** exponent
        down = value // unit
        inside = [digits for digits in (down, down + 1) if low < digits * unit < high]
        if inside:
            nearest = min(inside, key=lambda digits: (abs(digits * unit - value), digits % 2))
            return str(nearest).rstrip("0"), exponent + len(str(nearest)) - 1
        exponent -= 1


def _is_edge(digits: str, exponent: int) -> bool:
    doubled = int(2 * Fraction(f"{digits[0]}.{digits[1:] or 0}e{exponent}"))
    return (doubled // (doubled & -doubled)).bit_length() == 54


def _digits(text: str) -> tuple[str, int]:
    """The significant digits of a positive number in Python's text, and the decimal exponent of the first."""
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    return (whole + fraction).rstrip("0"), int(exponent or 0) + len(whole) - 1


def _lay_out(negative: bool, digits: str, exponent: int, exponent_from: int) -> str:
    sign = "-" if negative else ""
    if not -4 <= exponent < exponent_from:
        point = "." if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{point}{digits[1:]}e{exponent:+03d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    if len(digits) <= exponent + 1:
        return sign + digits.ljust(exponent + 1, "0")
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :]}"


def _zero(value: float) -> str:
    return "-0" if math.copysign(1, value) < 0 else "0"


def _not_finite(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


TYPES: Final = {
    "float4": Loader(ValueKind.NUMBER, numbers, plain(float4_text)),
    "float8": Loader(ValueKind.NUMBER, numbers, plain(float8_text)),
}
