"""LIKE patterns: `%` is any text, `_` any character, a backslash escapes the next character."""

from __future__ import annotations

import itertools
import re


class Like:
    """A pattern. Raises ValueError if it ends with a backslash that escapes nothing."""

    def __init__(self, pattern: str) -> None:
        pieces = _pieces(pattern)
        places = [place for place, piece in enumerate(pieces) if piece == "%"]
        ends = [-1, *places, len(pieces)]
        segments = [pieces[start + 1 : end] for start, end in itertools.pairwise(ends)]
        self._first, *self._later = [_fixed(segment) for segment in segments]
        self._size, self._last_size = len(segments[0]), len(segments[-1])

    def matches(self, text: str) -> bool:
        """Whether it matches the whole text. Takes the leftmost place for each part between two %."""
        if self._first.match(text) is None:
            return False
        if not self._later:
            return len(text) == self._size
        place, end = self._size, len(text) - self._last_size
        if end < place or self._later[-1].match(text, end) is None:
            return False
        for segment in self._later[:-1]:
            found = segment.search(text, place, end)
            if found is None:
                return False
            place = found.end()
        return True


def _pieces(pattern: str) -> list[str]:
    """The pattern in characters, each with its backslash."""
    found = [match[0] for match in re.finditer(r"\\?.", pattern, re.DOTALL)]
    if found and found[-1] == "\\":
        raise ValueError("the pattern ends with a backslash that escapes nothing; double it")
    return found


def _fixed(pieces: list[str]) -> re.Pattern[str]:
    """A part without %."""
    return re.compile("".join(["." if piece == "_" else re.escape(piece[-1]) for piece in pieces]), re.DOTALL)
