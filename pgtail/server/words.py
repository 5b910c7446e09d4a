"""Floor 5, numbers as people say them."""

from __future__ import annotations


def size_text(size: int) -> str:
    """A number of bytes as people say it."""
    value, units = float(size), ["bytes", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{size} bytes" if units[0] == "bytes" else f"{value:.1f} {units[0]}"


def count_text(count: int, what: str) -> str:
    """A number of things: 1 transaction, 2 transactions."""
    return f"{count} {what}{'s'[: count != 1]}"
