"""Floor 4, amounts as people say them; knows no output."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ((31_557_600, "y"), (86_400, "d"), (3_600, "h"), (60, "min"))


def size_text(size: int) -> str:
    """A number of bytes as people say it."""
    value, units = float(size), ["bytes", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{size} bytes" if units[0] == "bytes" else f"{value:.1f} {units[0]}"


def grouped(number: int) -> str:
    """A count for people: 500 002."""
    return f"{number:,}".replace(",", " ")


def counted(number: int, noun: str) -> str:
    """A count and what is counted: 1 change, 2 changes."""
    return f"{grouped(number)} {noun}{'s'[: number != 1]}"


def span_text(micros: int) -> str:
    """A length of time, given in microseconds."""
    seconds = micros / 1_000_000
    if seconds < 1:
        return f"{micros // 1000} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
