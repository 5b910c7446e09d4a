"""The operators -> and ->> of json and jsonb on PostgreSQL's text of a document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from pgtail.values import Undecoded

_BLANKS: Final = " \t\n\r"
_skip_blanks = re.compile(r"[ \t\n\r]*").match


def _reject(text: str) -> str:
    raise ValueError(f"{text} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_reject)


def member(document: str, path: Sequence[str | int]) -> str | None:
    """The text that `->` for every key or index of the path and ->> for the last give; None for NULL.

    Raises Undecoded if the document is not JSON.
    """
    try:
        _DECODER.decode(document)
        found: str | None = document.strip(_BLANKS)
        for step in path:
            found = _child(found, step)
            if found is None:
                return None
    except (ValueError, RecursionError):
        raise Undecoded(document) from None
    assert found is not None
    if found.startswith('"'):
        text: str = _DECODER.decode(found)
        return text
    return None if found == "null" else found


def _child(value: str | None, step: str | int) -> str | None:
    """A value in an object or an array as it is written; of equal keys the last; None if there is none."""
    if not value or value[0] != ("{" if isinstance(step, str) else "["):
        return None
    children = _children(value)
    if isinstance(step, str):
        found = [child for key, child in children if key == step]
        return found[-1] if found else None
    items = [child for _, child in children]
    return items[step] if -len(items) <= step < len(items) else None


def _children(value: str) -> Iterator[tuple[str, str]]:
    """The keys (empty in an array) and values of a valid object or array."""
    place = _after(value, 1)
    while value[place] not in "}]":
        key = ""
        if value[0] == "{":
            key, place = _DECODER.raw_decode(value, place)
            place = _after(value, _after(value, place) + 1)
        _, end = _DECODER.raw_decode(value, place)
        yield key, value[place:end]
        place = _after(value, end)
        if value[place] == ",":
            place = _after(value, place + 1)


def _after(value: str, place: int) -> int:
    found = _skip_blanks(value, place)
    assert found is not None
    return found.end()
