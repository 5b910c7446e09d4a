"""Checks whether bytes are JSON (RFC 8259), in constant memory."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable
from typing import Final, TypeAlias

MAX_DEPTH: Final = 1000
"""The nesting depth that common JSON readers accept."""

NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""A number, as a regular expression."""

_Matcher: TypeAlias = Callable[[bytes, int], re.Match[bytes] | None]

# Repetitions are limited, because the regular expression engine keeps state for each.
_WS = r"[ \t\n\r]*"
_PLAIN = r'[^"\\\x00-\x1f]*'
_ESCAPE = r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_STRING = rf'"{_PLAIN}(?:{_ESCAPE}{_PLAIN}){{0,1000}}"'
_SCALAR = rf"(?:{NUMBER}|true|false|null)"


def _list_of(opening: str, item: str, closing: str) -> str:
    return rf"{opening}{_WS}(?:{item}{_WS}(?:,{_WS}{item}{_WS}){{0,100}})?{closing}"


def _value_with(value: str) -> str:
    """A scalar, or an array or object of such values."""
    member = rf"{_STRING}{_WS}:{_WS}{value}"
    return rf"(?:{_STRING}|{_SCALAR}|{_list_of(chr(92) + '[', value, ']')}|{_list_of('{', member, '}')})"


def _matcher(pattern: str) -> _Matcher:
    return re.compile(pattern.encode()).match


_SIMPLE_DEPTH: Final = 2


@functools.cache
def _simple() -> tuple[_Matcher, _Matcher]:
    """Items and members with little nesting, each with its comma. Slow to compile, rarely used."""
    value = _value_with(_value_with(rf"(?:{_STRING}|{_SCALAR})"))
    items = _matcher(rf"(?:{_WS}{value}{_WS},){{0,100}}")
    return items, _matcher(rf"(?:{_WS}{_STRING}{_WS}:{_WS}{value}{_WS},){{0,100}}")


_token = _matcher(rf'{_WS}(?:([{{}}\[\],:"])|{_SCALAR})')
_string_part = _matcher(rf"{_PLAIN}(?:{_ESCAPE}{_PLAIN}){{0,1000}}")
_only_space = re.compile(_WS.encode()).fullmatch


class _Next(enum.IntEnum):
    """What may come next. An IntEnum, because a set lookup of a plain Enum is slow."""

    VALUE = 0
    FIRST_ITEM = 1
    ITEM = 2
    FIRST_KEY = 3
    KEY = 4
    COLON = 5
    COMMA = 6


_CLOSING = {b"{": b"}", b"[": b"]"}
_VALUES = frozenset({_Next.VALUE, _Next.FIRST_ITEM, _Next.ITEM})
_KEYS = frozenset({_Next.FIRST_KEY, _Next.KEY})
_MAY_CLOSE = frozenset({_Next.FIRST_ITEM, _Next.FIRST_KEY, _Next.COMMA})


def is_valid(document: bytes) -> bool:
    """Whether UTF-8 bytes are one JSON value that nests no deeper than MAX_DEPTH."""
    open_: list[bytes] = []
    expected = _Next.VALUE
    position = 0
    while True:
        # Only after a comma: while nesting gets deeper it would fail every time.
        if (expected is _Next.ITEM or expected is _Next.KEY) and len(open_) <= MAX_DEPTH - _SIMPLE_DEPTH:
            position = _skip_simple(document, position, _simple()[expected is _Next.KEY])
        token = _token(document, position)
        if token is None:
            return False
        position = token.end()
        following = _follow(token[1], expected, open_)
        if following is None or len(open_) > MAX_DEPTH:
            return False
        if token[1] == b'"':
            position = _string_end(document, position)
            if position < 0:
                return False
        if following is _Next.COMMA and not open_:
            return _only_space(document, position) is not None
        expected = following


def _follow(sign: bytes | None, expected: _Next, open_: list[bytes]) -> _Next | None:
    """What may follow a token (None: a scalar other than a string); None if the token is not allowed here."""
    if expected in _VALUES and (sign is None or sign == b'"'):
        return _Next.COMMA
    if expected in _VALUES and sign in _CLOSING:
        open_.append(_CLOSING[sign])
        return _Next.FIRST_KEY if sign == b"{" else _Next.FIRST_ITEM
    if expected in _KEYS and sign == b'"':
        return _Next.COLON
    if expected is _Next.COLON and sign == b":":
        return _Next.VALUE
    if expected is _Next.COMMA and sign == b",":
        return _Next.KEY if open_[-1] == b"}" else _Next.ITEM
    if expected in _MAY_CLOSE and sign == open_[-1]:
        open_.pop()
        return _Next.COMMA
    return None


def _skip_simple(document: bytes, position: int, simple: _Matcher) -> int:
    """Skip items or members with little nesting, each with its comma, by regular expression."""
    while True:
        match = simple(document, position)
        if match is None or match.end() == position:
            return position
        position = match.end()


def _string_end(document: bytes, position: int) -> int:
    """The position after the string that starts before `position`; -1 if it is not a string."""
    while True:
        match = _string_part(document, position)
        end = match.end() if match else position
        if document[end : end + 1] == b'"':
            return end + 1
        if end == position:
            return -1
        position = end
