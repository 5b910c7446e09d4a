"""The types of extensions that come with PostgreSQL, recognized by the name in their Type message.

Sources: contrib/hstore/hstore_io.c, contrib/ltree/ltree_io.c, contrib/cube/cube.c, contrib/citext.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

from pgtail.values.codec import BinaryText, Context, Loader, ValueKind, plain
from pgtail.values.floats import float8
from pgtail.values.nested import joined, value_at
from pgtail.values.render import strings
from pgtail.values.text import TEXT, versioned

CUBE_POINT: Final = 0x80000000
CUBE_MAX_DIM: Final = 100

_is_hstore = re.compile(r'(?:"(?:[^"\\]|\\.)*"=>(?:NULL|"(?:[^"\\]|\\.)*")(?:, |\Z))*', re.DOTALL).fullmatch
_hstore_pair = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:NULL|"((?:[^"\\]|\\.)*)")', re.DOTALL).finditer
_unescaped = re.compile(r"\\(.)", re.DOTALL).sub
_count = struct.Struct(">i").unpack_from
_cube_header = struct.Struct(">I").unpack_from


def hstore(context: Context) -> BinaryText:
    """The number of pairs; for each the key and the value (or NULL), each after its length."""
    return lambda cell: joined(_pairs(cell, context), ", ", len(cell))


def _pairs(cell: bytes, context: Context) -> Iterator[str]:
    (count,) = _count(cell)
    if not 0 <= count <= len(cell) // 8:
        raise ValueError("number of pairs")
    position = 4
    for _ in range(count):
        key, position = value_at(cell, position)
        value, position = value_at(cell, position)
        if key is None:
            raise ValueError("a key that is NULL")
        yield f"{_quoted(key, context)}=>{'NULL' if value is None else _quoted(value, context)}"
    if position != len(cell):
        raise ValueError("bytes after an hstore")


def _quoted(part: bytes, context: Context) -> str:
    return '"{}"'.format(context.decode(part).replace("\\", "\\\\").replace('"', '\\"'))


def hstore_pairs(text: str) -> dict[str, str | None]:
    """The keys and values of an hstore's text. Raises ValueError."""
    if not _is_hstore(text):
        raise ValueError("not an hstore")
    pairs = {}
    for pair in _hstore_pair(text):
        pairs[_unescaped(r"\1", pair[1])] = None if pair[2] is None else _unescaped(r"\1", pair[2])
    return pairs


def cube_text(cell: bytes) -> str:
    """A point flag and the number of dimensions; the lower left corner and, unless it is a point, the upper right."""
    (header,) = _cube_header(cell)
    dimensions = header & ~CUBE_POINT
    corners = 1 if header & CUBE_POINT else 2
    if dimensions > CUBE_MAX_DIM or len(cell) != 4 + 8 * corners * dimensions:
        raise ValueError("not a cube")
    numbers = struct.unpack_from(f">{corners * dimensions}d", cell, 4)
    lower, upper = numbers[:dimensions], numbers[dimensions:]
    if corners == 1 or lower == upper:
        return _corner(lower)
    return f"{_corner(lower)},{_corner(upper)}"


def _corner(numbers: tuple[float, ...]) -> str:
    return f"({', '.join(map(float8, numbers))})"


_LTREE: Final = Loader(ValueKind.TEXT, strings, versioned)

TYPES: Final[dict[str, Loader]] = {
    "citext": TEXT,
    "cube": Loader(ValueKind.TEXT, strings, plain(cube_text)),
    "hstore": Loader(ValueKind.TEXT, strings, hstore),
    "lquery": _LTREE,
    "ltree": _LTREE,
    "ltxtquery": _LTREE,
}

DELIMITERS: Final = {"geography": ":", "geometry": ":"}
"""The array delimiters of types that do not use a comma (PostGIS), by the element type's name."""
