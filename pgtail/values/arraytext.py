"""An array's text to JSON (src/backend/utils/adt/arrayfuncs.c, array_out)."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from pgtail.values.codec import Context, Json, NativeForm, Undecoded, ValueKind
from pgtail.values.render import string, strings_or_null

MAXDIM: Final = 6
"""The maximum number of dimensions (src/include/utils/array.h)."""

SHORT: Final = 64 * 1024
"""Bytes; a longer array is converted element by element, without a list of its elements."""

SPACES: Final = r" \t\n\r\v\f"
"""The white space that array_out quotes, for a character set of a regular expression."""

_Items: TypeAlias = list[str] | list[str | None]
_NATIVE: Final[dict[NativeForm, NativeForm]] = {"string": "strings", "number": "numbers", "boolean": "booleans"}
"""Json.native of an array by that of its elements."""
bounds = re.compile(r"(?:\[-?[0-9]+:-?[0-9]+\]){1,6}=\{").match
"""The bounds of an array that has them in its text, and its first brace."""
# The number of escapes per match is limited, because the regular expression engine keeps state for each.
_quoted_part = re.compile(r'[^"\\]*(?:\\.[^"\\]*){0,1000}', re.DOTALL).match


class NotAnArray(Exception):
    """The text is not what array_out writes."""


class _Syntax(Struct, frozen=True):
    """The regular expressions for one delimiter."""

    delimiter: str
    are_bare: Callable[[str], re.Match[str] | None]
    """A complete one-dimensional array without quotes (but elements may be missing)."""
    are_items: Callable[[str], re.Match[str] | None]
    """A complete one-dimensional array."""
    items: Callable[[str], list[str]]
    bare: Callable[[str, int], re.Match[str] | None]
    """One element without quotes."""
    between: Callable[[str, int], re.Match[str] | None]
    """The text after an element: closing braces, then optionally a delimiter and opening braces."""


@functools.cache
def _syntax(delimiter: str) -> _Syntax:
    bare = rf'[^{{}}"\\{SPACES}{delimiter}]+'
    item = rf'(?:"[^"\\]*(?:\\.[^"\\]*)*"|{bare})'
    return _Syntax(
        delimiter,
        re.compile(rf'\{{[^{{}}"\\{SPACES}]+\}}').fullmatch,
        re.compile(rf"\{{{item}(?:{delimiter}{item})*\}}", re.DOTALL).fullmatch,
        re.compile(item, re.DOTALL).findall,
        re.compile(bare).match,
        re.compile(rf"(\}}*)(?:({delimiter})(\{{*))?").match,
    )


def builtin_array(context: Context, kind: ValueKind, element: Json, delimiter: str) -> Json:
    """The JSON of an array of known element type. Raises Undecoded if the array or an element is invalid."""
    read = reader(kind, element.of_text, delimiter)

    def of_text(text: str) -> bytes:
        try:
            return read(text)
        except (NotAnArray, Undecoded):
            raise Undecoded(text) from None

    native = _NATIVE.get(element.native, "") if delimiter == "," and not element.quoted else ""
    return Json(lambda cell: of_text(context.text(cell)), of_text, native)


def user_array(context: Context, delimiter: str) -> Json:
    """The JSON of a type that is named like an array: an array of strings, or a string if it is not an array."""
    read = reader(ValueKind.TEXT, string, delimiter)

    def of_text(text: str) -> bytes:
        try:
            return read(text)
        except NotAnArray:
            return string(text)

    return Json(lambda cell: of_text(context.text(cell)), of_text)


def reader(kind: ValueKind, element: Callable[[str], bytes], delimiter: str) -> Callable[[str], bytes]:
    """Converts an array's text to JSON. `element` converts non-text elements; unusual lower bounds give a string."""
    syntax = _syntax(delimiter)
    are_bare = syntax.are_bare
    listed = strings_or_null if kind is ValueKind.TEXT else functools.partial(_listed, element)

    def read(text: str) -> bytes:
        """Raises NotAnArray, and Undecoded from an element."""
        if are_bare(text):
            if len(text) < SHORT:
                return listed(_bare_items(text[1:-1].split(delimiter)))
            return _in_parts(text, delimiter, listed)
        if len(text) < SHORT and syntax.are_items(text):
            return listed([_item(item) for item in syntax.items(text[1:-1])])
        if text == "{}":
            return b"[]"
        if bounds(text):
            return string(text)
        return _nested(text, syntax, element)

    return read


def _in_parts(text: str, delimiter: str, listed: Callable[[_Items], bytes]) -> bytes:
    """A long one-dimensional array without quotes."""
    out = io.BytesIO()
    start = 1
    while start < len(text):
        end = text.find(delimiter, start + SHORT)
        if end < 0:
            end = len(text) - 1
        out.write(b"[" if start == 1 else b",")
        out.write(listed(_bare_items(text[start:end].split(delimiter)))[1:-1])
        start = end + 1
    out.write(b"]")
    return out.getvalue()


def _unescape(text: str) -> str:
    """Remove the backslashes that escape the next character."""
    return "\\".join([part.replace("\\", "") for part in text.split("\\\\")])


def _bare_items(items: list[str]) -> _Items:
    if "" in items:
        raise NotAnArray
    return [None if item == "NULL" else item for item in items] if "NULL" in items else items


def _item(item: str) -> str | None:
    if not item.startswith('"'):
        return None if item == "NULL" else item
    return _unescape(item[1:-1]) if "\\" in item else item[1:-1]


def _listed(element: Callable[[str], bytes], items: _Items) -> bytes:
    return b"[%b]" % b",".join([b"null" if item is None else element(item) for item in items])


def _nested(text: str, syntax: _Syntax, element: Callable[[str], bytes]) -> bytes:
    """An array of any size and any number of dimensions, element by element."""
    position = len(text) - len(text.lstrip("{"))
    dimensions = position
    if not 1 <= dimensions <= MAXDIM:
        raise NotAnArray
    out = io.BytesIO()
    out.write(b"[" * dimensions)
    # For each dimension, the elements so far and the required number (0: not known yet).
    counts, sizes = [0] * dimensions, [0] * dimensions
    while True:
        item, position = _item_at(text, position, syntax)
        out.write(b"null" if item is None else element(item))
        counts[-1] += 1
        between = syntax.between(text, position)
        assert between is not None  # it may be empty
        closed, opened = len(between[1]), len(between[3] or "")
        _close(closed, counts, sizes)
        out.write(b"]" * closed)
        position = between.end()
        if closed == dimensions:
            if position != len(text) or between[2]:
                raise NotAnArray
            return out.getvalue()
        if closed != opened or not between[2]:
            raise NotAnArray
        out.write(b"," + b"[" * opened)


def _close(closed: int, counts: list[int], sizes: list[int]) -> None:
    """End the innermost `closed` dimensions; each must have the same number of elements every time it ends."""
    if closed > len(counts):
        raise NotAnArray
    for dimension in range(len(counts) - 1, len(counts) - 1 - closed, -1):
        if sizes[dimension] not in (0, counts[dimension]):
            raise NotAnArray
        sizes[dimension] = counts[dimension]
        counts[dimension] = 0
        if dimension:
            counts[dimension - 1] += 1


def _item_at(text: str, position: int, syntax: _Syntax) -> tuple[str | None, int]:
    """The element that starts at `position`, and the position after it."""
    if not text.startswith('"', position):
        bare = syntax.bare(text, position)
        if bare is None:
            raise NotAnArray
        return None if bare[0] == "NULL" else bare[0], bare.end()
    position += 1
    parts: list[str] = []
    while True:
        part = _quoted_part(text, position)
        end = part.end() if part else position
        parts.append(_unescape(text[position:end]))
        if text.startswith('"', end):
            return "".join(parts), end + 1
        if end == position:
            raise NotAnArray
        position = end
