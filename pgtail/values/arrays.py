"""Floor 2, arrays: the binary form, which names its element type, and what an array type is made of.

Sources: src/backend/utils/adt/arrayfuncs.c, int.c (int2vector), oid.c (oidvector). Knows of element types only that the
context can read them.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Callable, Iterator

from pgtail.values import arraytext
from pgtail.values.arraytext import MAXDIM, SPACES
from pgtail.values.codec import DAMAGED, BinaryText, Context, Json, Kind, Loader
from pgtail.values.nested import joined, one_level_deeper, value_at
from pgtail.values.render import strings

_header = struct.Struct(">iiI")
_FindElement = Callable[[int], BinaryText]


def array_of(element_oid: int, element: Loader, delimiter: str) -> Loader:
    """The array type over a built-in type."""

    def json(context: Context) -> Json:
        return arraytext.builtin_array(context, element.kind, context.json(element_oid), delimiter)

    def binary(context: Context) -> BinaryText:
        read = context.binary(element_oid)

        def find(oid: int) -> BinaryText:
            if oid != element_oid:
                raise ValueError("an array of another element type")
            return read

        return _array(context, find, delimiter)

    return Loader(Kind.ARRAY, json, binary)


def array_named(element: Loader, otherwise: Loader, delimiter: str) -> Loader:
    """A user's type that is named as the array type over `element` is; `otherwise` reads it if it is none."""

    def json(context: Context) -> Json:
        return arraytext.user_array(context, delimiter)

    def binary(context: Context) -> BinaryText:
        by_name = element.binary(context)
        array = _array(context, lambda oid: context.binary(oid) if context.known(oid) else by_name, delimiter)
        no_array = otherwise.binary(context)

        def text(cell: bytes) -> str:
            try:
                return array(cell)
            except DAMAGED:
                return no_array(cell)

        return text

    return Loader(Kind.ARRAY, json, binary)


def vector_of(element_oid: int) -> Loader:
    """int2vector and oidvector: an array in binary form, numbers and spaces as text."""

    def binary(context: Context) -> BinaryText:
        element = context.binary(element_oid)

        def text(cell: bytes) -> str:
            dimensions, _, oid = _header.unpack_from(cell)
            if dimensions != 1 or oid != element_oid:
                raise ValueError("not a vector")
            (count,) = struct.unpack_from(">i", cell, _header.size)
            return joined(_not_null(_elements(cell, _header.size + 8, count, element)), " ", len(cell))

        return text

    return Loader(Kind.TEXT, strings, binary)


def _not_null(elements: Iterator[str | None]) -> Iterator[str]:
    for element in elements:
        if element is None:
            raise ValueError("NULL in a vector")
        yield element


def _array(context: Context, find: _FindElement, delimiter: str) -> BinaryText:
    needs_quotes = re.compile(rf'["\\{{}}{SPACES}{delimiter}]|\A(?:(?i:null))?\Z').search

    def quoted(text: str | None) -> str:
        if text is None:
            return "NULL"
        if needs_quotes(text):
            return '"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))
        return text

    def text(cell: bytes) -> str:
        """Number of dimensions, whether there are NULLs, element type; size and lower bound of each; the elements."""
        dimensions, has_nulls, oid = _header.unpack_from(cell)
        if not 0 <= dimensions <= MAXDIM or has_nulls not in (0, 1):
            raise ValueError("not an array")
        bounds = struct.unpack_from(f">{2 * dimensions}i", cell, _header.size)
        sizes, lower = bounds[::2], bounds[1::2]
        if min(sizes, default=0) < 0:
            raise ValueError("size of a dimension")
        count = math.prod(sizes) if sizes else 0
        elements = _elements(cell, _header.size + 8 * dimensions, count, find(oid))
        body = _braced(map(quoted, elements), sizes, delimiter, len(cell)) if count else "{}"
        # There is none left, but only then does the generator see that nothing follows.
        next(elements, None)
        if count and any(bound != 1 for bound in lower):
            return "".join([f"[{low}:{low + size - 1}]" for low, size in zip(lower, sizes, strict=True)]) + f"={body}"
        return body

    return one_level_deeper(context, text)


def _elements(cell: bytes, position: int, count: int, element: BinaryText) -> Iterator[str | None]:
    """`count` values that fill the cell to its end."""
    if not 0 <= count <= (len(cell) - position) // 4:
        raise ValueError("number of elements")
    for _ in range(count):
        value, position = value_at(cell, position)
        yield None if value is None else element(value)
    if position != len(cell):
        raise ValueError("bytes after the last element")


def _braced(elements: Iterator[str], sizes: tuple[int, ...], delimiter: str, size: int) -> str:
    if len(sizes) == 1:
        return "{" + joined(itertools.islice(elements, sizes[0]), delimiter, size) + "}"
    rows = (_braced(elements, sizes[1:], delimiter, size) for _ in range(sizes[0]))
    return "{" + joined(rows, delimiter, size) + "}"
