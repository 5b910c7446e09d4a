"""Arrays in binary form, which includes the OID of the element type.

Sources: src/backend/utils/adt/arrayfuncs.c, int.c (int2vector), oid.c (oidvector).
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Callable, Iterator
from typing import Final

from pgtail.values import arraytext
from pgtail.values.arraytext import MAXDIM, SPACES
from pgtail.values.codec import DAMAGED, BinaryText, Context, Json, Loader, ValueKind
from pgtail.values.nested import joined, one_level_deeper
from pgtail.values.render import strings

_header = struct.Struct(">iiI")
_vector_header = struct.Struct(">iiIii")
_bounds = [struct.Struct(f">{2 * dimensions}i") for dimensions in range(MAXDIM + 1)]
_length = struct.Struct(">i").unpack_from
_INT32_MAX = 2**31 - 1
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

    return Loader(ValueKind.ARRAY, json, binary)


def array_named(element: Loader, otherwise: Loader, delimiter: str) -> Loader:
    """A user's type whose name is that of the array type over `element`; `otherwise` reads it if it is not an array."""

    def json(context: Context) -> Json:
        return arraytext.user_array(context, delimiter)

    def binary(context: Context) -> BinaryText:
        by_name = element.binary(context)
        array = _array(context, lambda oid: context.binary(oid) if context.known(oid) else by_name, delimiter)
        not_array = otherwise.binary(context)

        def text(cell: bytes) -> str:
            try:
                return array(cell)
            except DAMAGED:
                return not_array(cell)

        return text

    return Loader(ValueKind.ARRAY, json, binary)


def vector_of(element_oid: int) -> Loader:
    """int2vector and oidvector: an array in binary form, numbers and spaces as text."""

    def binary(context: Context) -> BinaryText:
        element = context.binary(element_oid)

        def text(cell: bytes) -> str:
            dimensions, has_nulls, oid, count, lower = _vector_header.unpack_from(cell)
            if (dimensions, has_nulls, oid, lower) != (1, 0, element_oid, 0):
                raise ValueError("not a vector")
            return joined(_elements(cell, _vector_header.size, count, element, None), " ", len(cell))

        return text

    return Loader(ValueKind.TEXT, strings, binary)


def _array(context: Context, find: _FindElement, delimiter: str) -> BinaryText:
    needs_quotes = re.compile(rf'["\\{{}}{SPACES}{delimiter}]|\A(?:(?i:null))?\Z').search

    def quoted(read: BinaryText) -> BinaryText:
        def text(cell: bytes) -> str:
            element = read(cell)
            if needs_quotes(element):
                return '"{}"'.format(element.replace("\\", "\\\\").replace('"', '\\"'))
            return element

        return text

    def text(cell: bytes) -> str:
        """Number of dimensions, has-NULLs flag, element type; size and lower bound per dimension; the elements."""
        dimensions, has_nulls, oid = _header.unpack_from(cell)
        if not 0 <= dimensions <= MAXDIM or has_nulls not in (0, 1):
            raise ValueError("not an array")
        bounds = _bounds[dimensions].unpack_from(cell, _header.size)
        sizes, lower = bounds[::2], bounds[1::2]
        if any(size < 0 or low + size > _INT32_MAX for size, low in zip(sizes, lower, strict=True)):
            raise ValueError("size or lower bound of a dimension")
        count = math.prod(sizes) if sizes else 0
        elements = _elements(cell, _header.size + 8 * dimensions, count, quoted(find(oid)), "NULL")
        body = _braced(elements, sizes, delimiter, len(cell)) if count else "{}"
        # No element is left, but this makes the generator check that nothing follows.
        next(elements, None)
        if count and lower.count(1) != dimensions:
            return "".join([f"[{low}:{low + size - 1}]" for low, size in zip(lower, sizes, strict=True)]) + f"={body}"
        return body

    return one_level_deeper(context, text)


def _elements(cell: bytes, position: int, count: int, element: BinaryText, null: str | None) -> Iterator[str]:
    """`count` values up to the end of the cell. `null` is the text of NULL; if it is None, NULL is an error."""
    end = len(cell)
    if not 0 <= count <= (end - position) // 4:
        raise ValueError("number of elements")
    for _ in range(count):
        (length,) = _length(cell, position)
        position += 4
        if 0 <= length <= end - position:
            yield element(cell[position : position + length])
            position += length
        elif length == -1 and null is not None:
            yield null
        else:
            raise ValueError("length of an element")
    if position != end:
        raise ValueError("bytes after the last element")


def _braced(elements: Iterator[str], sizes: tuple[int, ...], delimiter: str, size: int) -> str:
    if len(sizes) == 1:
        return "{" + joined(itertools.islice(elements, sizes[0]), delimiter, size) + "}"
    rows = (_braced(elements, sizes[1:], delimiter, size) for _ in range(sizes[0]))
    return "{" + joined(rows, delimiter, size) + "}"


TYPES: Final = {"int2vector": vector_of(21), "oidvector": vector_of(26)}
