"""Checks whether bytes are JSON (RFC 8259)."""

from __future__ import annotations

import re
from typing import Final

from pgtail._orjson import orjson

MAX_DEPTH: Final = 1000
"""The nesting depth that common JSON readers accept, also where the document is inside a row."""
_SPARE: Final = 24
"""How much deeper orjson reads."""

NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""A number, as a regular expression."""

_PARTS: Final = re.compile(
    rb"(?P<code>\\u[0-9a-fA-F]{4})|(?P<broken>\\u)|\\."
    rb"|(?P<exponent>(?<=[0-9])[eE][+-]?[0-9]+)|(?P<digits>[0-9]{2})[0-9]{18,}",
    re.DOTALL,
)
"""What orjson refuses in valid documents is of these: the escape of a lone surrogate, and numbers beyond a double's."""
_REPLACED: Final = {"code": b"\\n", "broken": b"\\x", "exponent": b"e1"}


def is_valid(document: bytes) -> bool:
    """Whether UTF-8 bytes are one JSON value that nests no deeper than MAX_DEPTH."""
    return _is_orjson(document) or _is_orjson(_PARTS.sub(_replaced, document))


def _replaced(part: re.Match[bytes]) -> bytes:
    """A part that is valid in the same places, and that orjson accepts if it is."""
    return _REPLACED.get(part.lastgroup or "", part["digits"] or part[0])


def _is_orjson(document: bytes) -> bool:
    if document.count(b"[") + document.count(b"{") > MAX_DEPTH:
        document = b"[" * _SPARE + document + b"]" * _SPARE
    try:
        orjson.loads(document)
    except orjson.JSONDecodeError:
        return False
    return True
