"""PostgreSQL's text of a value -> the expected JSON value, by the name of its type. Imports nothing of pgtail.

A second implementation of the rules of the JSON outputs, written for clarity: JSON numbers are kept as their digits
(Digits), JSON objects as lists of pairs, so that digits, order and repetitions count.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Digits:
    """A JSON number, as it is written; equal to no string and no number."""

    text: str

    def __int__(self) -> int:
        return int(self.text)


class Pairs(tuple[tuple[str, Any], ...]):
    """A JSON object, in its order."""

    __slots__ = ()


def parse(document: str | bytes) -> Any:
    """JSON without loss. Raises ValueError."""
    return json.loads(document, parse_int=Digits, parse_float=Digits, parse_constant=_none, object_pairs_hook=Pairs)


def _none(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


NUMBERS = {"smallint", "integer", "bigint", "oid", "xid", "real", "double precision", "numeric"}
DOMAINS = {"posint": "integer", "tags": "text[]", "email": "text"}
"""The captures' domains over types that are not strings in JSON."""

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_BOUNDS = re.compile(r"(\[-?\d+:-?\d+\])+=")


def expected(type_name: str, text: str | None) -> Any:
    """The result that parse() must have for the value's token; `type_name` as format_type() gives it."""
    if text is None:
        return None
    type_name = DOMAINS.get(type_name, type_name)
    base = type_name.split("(")[0]
    if type_name.endswith("[]"):
        element = type_name[:-2]
        if _BOUNDS.match(text):
            return text
        return array(text, element if builtin(element) else "text", ";" if element == "box" else ",")
    if base == "boolean":
        return {"t": True, "f": False}[text]
    if base in NUMBERS:
        return Digits(text) if _NUMBER.fullmatch(text) else text
    if base in ("json", "jsonb"):
        return parse(text)
    return text


def builtin(element: str) -> bool:
    """Whether the elements of an array have their own JSON kind. Those of a user-defined type are strings."""
    return element.split("(", maxsplit=1)[0] in NUMBERS | {"boolean", "jsonb"}


def array(text: str, element: str, delimiter: str) -> Any:
    """An array without bounds, as nested lists."""
    value, rest = _level(text, element, delimiter)
    assert rest == "", text
    return value


def _level(text: str, element: str, delimiter: str) -> tuple[list[Any], str]:
    assert text[0] == "{", text
    text, values = text[1:], list[Any]()
    if text[0] == "}":
        return values, text[1:]
    while True:
        if text[0] == "{":
            value, text = _level(text, element, delimiter)
            values.append(value)
        elif text[0] == '"':
            found = re.match(r'"((?:[^"\\]|\\.)*)"', text, re.DOTALL)
            assert found, text
            values.append(expected(element, re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL)))
            text = text[found.end() :]
        else:
            found = re.match(rf"[^{delimiter}}}]+", text)
            assert found, text
            values.append(None if found[0] == "NULL" else expected(element, found[0]))
            text = text[found.end() :]
        end, text = text[0], text[1:]
        if end == "}":
            return values, text
        assert end == delimiter, text
