"""Parses one --where condition, `COLUMN OP VALUE`, and points at the error if it is invalid."""

from __future__ import annotations

import re
import unicodedata
from typing import Final, NamedTuple

from pgtail.errors import OptionError

OPERATORS: Final = ("=", "!=", "<>", "<", "<=", ">", ">=", "~", "!~")

_HEAD: Final = re.compile(
    r"""\s*(?: "(?P<quoted>(?:[^"]|"")+)" | (?P<plain>[^\s=!<>~"]+) )\s*
        (?: (?P<op>[=!<>~]+(?:(?<=~)\*)?) | is\s+(?P<not>not\s+)?null(?!\w) )\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'(?!')\s*")
_SECOND: Final = re.compile(
    r"""(?<![^\s)'"]) (?P<word>and|or) (?=[\s('"]) [\s(]* (?:not\b[\s(]*)?
        (?: "(?:[^"]|"")+" | '(?:[^']|'')*' | \w+\([^()]*\) | [^\s=!<>~"]+ )\s*
        (?: [^\s\w'"(),.;=!<>~]*[=!<>~]
          | is\s+(?:not\s+)?(?:null|true|false|unknown|distinct)\b
          | (?:not\s+)?(?:i?like\s*'|similar\s+to\s|in\s*\(|between\s) )""",
    re.VERBOSE | re.IGNORECASE,
)
"""`and` or `or`, followed by the start of an SQL condition."""


class Parsed(NamedTuple):
    """A column, an operator (including `is null` and `is not null`) and the value to compare with."""

    column: str
    op: str
    value: str


def parse(text: str, *, secret: bool = False) -> Parsed:
    """Parse a condition. Raises OptionError, which does not quote a `secret` one.

    A value in single quotes ends at the closing quote; any other value extends to the end of the text.
    """
    head = _HEAD.match(text)
    if head is None:
        quoted = "" if secret else f" {text!r}"
        raise OptionError(
            f"--where{quoted}: expected COLUMN OP VALUE with one of = != < <= > >= ~ !~, or COLUMN is [not] null"
        )
    column = head["quoted"].replace('""', '"') if head["quoted"] else head["plain"]
    op, end = head["op"], head.end()
    if op is None:
        if end < len(text):
            raise _wrong(text, end, f"the condition ends before this{_advice(text[end:])}", secret)
        return Parsed(column, "is not null" if head["not"] else "is null", "")
    if op not in OPERATORS:
        words = f"there is no operator {op}, only {' '.join(OPERATORS)}; put a value that starts so in single quotes"
        raise _wrong(text, head.start("op"), words, secret)
    return Parsed(column, op, _value(text, end, secret))


def _value(text: str, start: int, secret: bool) -> str:
    if text.startswith("'", start):
        quoted = _QUOTED.match(text, start)
        if quoted is None:
            raise _wrong(text, start, "this quote is not closed; double a quote inside a quoted value", secret)
        if quoted.end() < len(text):
            words = f"the quoted value ends before this{_advice(text[quoted.end() :])}"
            raise _wrong(text, quoted.end(), words, secret)
        return quoted[1].replace("''", "'")
    value = text[start:].rstrip()
    second = _SECOND.search(value)
    if second is not None:
        whole = "..." if secret else value.replace("'", "''")
        before = "" if secret else text[:start].lstrip()
        words = f"{second['word']!r} begins a second condition; if it is part of the value: {before}'{whole}'"
        raise _wrong(text, start + second.start(), words + _advice(second["word"]), secret)
    return value


def _advice(rest: str) -> str:
    """What to do about surplus text."""
    if re.match(r"and\b", rest, re.IGNORECASE):
        return "; if both must be true, give each its own --where"
    if re.match(r"or\b", rest, re.IGNORECASE):
        return "; --where takes one condition, without OR"
    return "; double a quote inside a quoted value" if "'" in rest else ""


def _wrong(text: str, place: int, words: str, secret: bool) -> OptionError:
    """An error with a caret under the place, or the place's number if the text cannot be shown."""
    if secret or not text.isprintable():
        return OptionError(f"--where, character {place + 1}: {words}")
    return OptionError(f"--where: {words}\n{text}\n{' ' * _width(text[:place])}^")


def _width(text: str) -> int:
    """The number of terminal columns of a text."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
