"""Geometric types (src/backend/utils/adt/geo_ops.c)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from pgtail.values.codec import BinaryText, Loader, ValueKind, plain
from pgtail.values.floats import float8
from pgtail.values.nested import joined
from pgtail.values.render import strings

_PATHS = {0: "[{}]", 1: "({})"}
_three = struct.Struct(">3d").unpack
_count = struct.Struct(">i").unpack_from


def _fixed(size: int, layout: str) -> BinaryText:
    unpack = struct.Struct(f">{size}d").unpack
    return lambda cell: layout.format(*map(float8, unpack(cell)))


def _points(cell: bytes, position: int) -> str:
    """The number of points, then the points; a path or polygon has at least one."""
    (count,) = _count(cell, position)
    if count < 1 or len(cell) - position - 4 != 16 * count:
        raise ValueError("number of points")
    points = struct.iter_unpack(">2d", memoryview(cell)[position + 4 :])
    return joined((f"({float8(x)},{float8(y)})" for x, y in points), ",", len(cell))


def circle_text(cell: bytes) -> str:
    """The centre, and the radius, which must not be negative."""
    x, y, radius = _three(cell)
    if radius < 0:
        raise ValueError("radius of a circle")
    return f"<({float8(x)},{float8(y)}),{float8(radius)}>"


def _loader(text: Callable[[bytes], str]) -> Loader:
    return Loader(ValueKind.TEXT, strings, plain(text))


TYPES: Final = {
    "point": _loader(_fixed(2, "({},{})")),
    "lseg": _loader(_fixed(4, "[({},{}),({},{})]")),
    "box": _loader(_fixed(4, "({},{}),({},{})")),
    "line": _loader(_fixed(3, "{{{},{},{}}}")),
    "circle": _loader(circle_text),
    # Whether it is closed, then the points.
    "path": _loader(lambda cell: _PATHS[cell[0]].format(_points(cell, 1))),
    "polygon": _loader(lambda cell: f"({_points(cell, 0)})"),
}
