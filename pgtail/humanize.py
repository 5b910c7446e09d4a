"""Counts, sizes and durations as text for people, and what people write: durations, and names with a mistake."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_UNITS: Final = ((31_557_600, "y"), (86_400, "d"), (3_600, "h"), (60, "min"))


def size_text(size: int) -> str:
    """A number of bytes in its largest unit (of 1024): 512 bytes, 1.5 kB, 2.0 GB."""
    value, units = float(size), ["bytes", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{size} bytes" if units[0] == "bytes" else f"{value:.1f} {units[0]}"


def some_of(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def grouped(number: int) -> str:
    """A number with its digits in groups of three: 500 002."""
    return f"{number:,}".replace(",", " ")


def plural(number: int, noun: str) -> str:
    """The noun in the singular for 1, else in the plural."""
    return noun if number == 1 else f"{noun}s"


def counted(number: int, noun: str) -> str:
    """A number and its noun: 1 change, 500 002 changes."""
    return f"{grouped(number)} {plural(number, noun)}"


def span_text(micros: int) -> str:
    """A duration, given in microseconds: 12 ms, 1.5 s, 42 s, 3 min."""
    if micros < 1_000_000:
        return f"{micros // 1000} ms"
    if micros < 10_000_000:
        return f"{micros / 1_000_000:.1f} s"
    return seconds_text(micros // 1_000_000)


def seconds_text(seconds: int) -> str:
    """A duration, given in seconds, rounded down to its largest unit: 42 s, 3 min, 2 d."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def similar(name: str, names: Iterable[str]) -> str | None:
    """The most similar of these names, without regard to case; None if none is similar."""
    by_folded = {one.lower(): one for one in names}
    close = difflib.get_close_matches(name.lower(), by_folded, 1)
    return by_folded[close[0]] if close else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean NAME?` if one of these names is similar; else nothing."""
    meant = similar(name, names)
    return "" if meant is None else f"; did you mean {meant}?"


def parse_seconds(text: str) -> float:
    """A duration with or without a unit, in seconds: 30, 30s, 500ms, 2m, 1h, 1d. Raises ValueError."""
    match = re.fullmatch(r"(\d*\.?\d+)\s*(ms|s|min|m|h|d)?", text)
    if match is None:
        raise ValueError(f"{text!r} is not a time such as 30s, 500ms or 2m")
    return float(match[1]) * _SECONDS[match[2] or "s"]
