"""Floor 5, numbers as people say them."""

from __future__ import annotations

from pgtail.outputs.amounts import size_text

__all__ = ["count_text", "size_text"]


def count_text(count: int, what: str) -> str:
    """A number of things: 1 transaction, 2 transactions."""
    return f"{count} {what}{'s'[: count != 1]}"
