"""Floor 2, geometric types (src/backend/utils/adt/geo_ops.c); knows of other types only how float8 prints."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from pgtail.values.codec import BinaryText, Kind, Loader, plain
from pgtail.values.floats import float8
from pgtail.values.render import strings

_PATHS = {0: "[{}]", 1: "({})"}
_count = struct.Struct(">i").unpack_from


def _fixed(size: int, layout: str) -> BinaryText:
    unpack = struct.Struct(f">{size}d").unpack

    def text(cell: bytes) -> str:
        return layout.format(*map(float8, unpack(cell)))

    return text


def _points(cell: bytes, position: int) -> str:
    """The number of points and the points; a path or polygon has at least one."""
    (count,) = _count(cell, position)
    if count < 1 or len(cell) - position - 4 != 16 * count:
        raise ValueError("number of points")
    numbers = list(map(float8, struct.unpack_from(f">{2 * count}d", cell, position + 4)))
    return ",".join([f"({x},{y})" for x, y in zip(numbers[::2], numbers[1::2], strict=True)])


def path_text(cell: bytes) -> str:
    """Whether it is closed, then the points."""
    return _PATHS[cell[0]].format(_points(cell, 1))


def polygon_text(cell: bytes) -> str:
    """The points."""
    return f"({_points(cell, 0)})"


def _loader(text: Callable[[bytes], str]) -> Loader:
    return Loader(Kind.TEXT, strings, plain(text))


POINT: Final = _loader(_fixed(2, "({},{})"))
LSEG: Final = _loader(_fixed(4, "[({},{}),({},{})]"))
BOX: Final = _loader(_fixed(4, "({},{}),({},{})"))
LINE: Final = _loader(_fixed(3, "{{{},{},{}}}"))
CIRCLE: Final = _loader(_fixed(3, "<({},{}),{}>"))
PATH: Final = _loader(path_text)
POLYGON: Final = _loader(polygon_text)
