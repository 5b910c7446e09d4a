"""Errors in the text of --where, with a caret under the place."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from pgtail.errors import OptionError

INSTEAD: Final = {"&&": "AND", "||": "OR", "==": "="}
"""Operators of other languages, and what they are called here."""


def error_at(text: str, place: int, words: str, *, secret: bool) -> OptionError:
    """An error with a caret under the place, or the place's number if the text cannot be shown."""
    if secret or not text.isprintable():
        return OptionError(f"--where, character {place + 1}: {words}")
    return OptionError(f"--where: {words}\n{text}\n{' ' * _width(text[:place])}^")


def advice_on(rest: str) -> str:
    """What to do about surplus text."""
    if rest.startswith(")"):
        return ": no bracket is open"
    if re.match(r"(?:and|or)(?!\w)", rest, re.IGNORECASE):
        return "; a condition must follow AND and OR"
    if rest[:2] in INSTEAD:
        return f"; write {INSTEAD[rest[:2]]}, not {rest[:2]}"
    return "; double a quote inside a quoted value" if "'" in rest else ""


def _width(text: str) -> int:
    """The number of terminal columns of a text."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
