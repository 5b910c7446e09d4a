"""The operators -> and ->> of json and jsonb on PostgreSQL's text of a document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pgtail.values import Undecoded

_BLANKS: Final = " \t\n\r"
_skip_blanks = re.compile(r"[ \t\n\r]*").match


def _reject(text: str) -> str:
    raise ValueError(f"{text} is no JSON")


# Numbers and strings become their texts.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_reject)
_TEXTS: Final = {True: "true", False: "false"}


def member(document: str, path: Sequence[str | int]) -> str | None:
    """The text that `->` for every key or index of the path and ->> for the last give; None for NULL.

    Raises Undecoded if the document is not JSON.
    """
    try:
        found = _DECODER.decode(document)
        for step in path:
            found = _child(found, step)
        return _as_written(document, path) if isinstance(found, dict | list) else _TEXTS.get(found, found)
    except (ValueError, RecursionError):
        raise Undecoded(document) from None


def _child(value: Any, step: str | int) -> Any:
    """The value of a key of an object, or of an index of an array; None if there is none."""
    if isinstance(step, str):
        return value.get(step) if isinstance(value, dict) else None
    return value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None


def _as_written(document: str, path: Sequence[str | int]) -> str:
    """An object or an array in a valid document, with its blanks; of equal keys the last."""
    found = document.strip(_BLANKS)
    for step in path:
        children = [*_children(found)]
        found = dict(children)[step] if isinstance(step, str) else children[step][1]
    return found


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
