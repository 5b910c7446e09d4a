"""LIKE patterns: `%` is any text, `_` any character, a backslash escapes the next character."""

from __future__ import annotations

import re


def like(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression for fullmatch(). Raises ValueError if its last backslash escapes nothing.

    Each part between two % takes the leftmost place that it fits, which no later part changes: the groups are atomic.
    """
    pieces = re.findall(r"\\?.", pattern, re.DOTALL)
    if pieces and pieces[-1] == "\\":
        raise ValueError("the pattern ends with a backslash that escapes nothing; double it")
    parts = [""]
    for piece in pieces:
        if piece == "%":
            parts.append("")
        else:
            parts[-1] += "." if piece == "_" else re.escape(piece[-1])
    first, *later = parts
    between = "".join([f"(?>.*?{part})" for part in later[:-1]])
    return re.compile(first + between + (f".*{later[-1]}" if later else ""), re.DOTALL)
