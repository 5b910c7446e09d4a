"""The cells of TupleData: one column of a row as it was sent.

A cell is one of four things, which every output keeps apart:
    bytes      a value in text form ('t')
    Binary     a value in binary form ('b')
    None       NULL ('n'); in a key tuple also any column outside the replica identity (see Relation)
    UNCHANGED  a TOASTed value that was not sent ('u')
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TypeAlias


class Binary(bytes):
    """A value in the type's binary form (its send function's bytes)."""

    __slots__ = ()


class Unchanged(enum.Enum):
    """The type of UNCHANGED: an enum, so that type checkers can narrow a Cell."""

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged.UNCHANGED

Cell: TypeAlias = bytes | Binary | None | Unchanged
TupleData: TypeAlias = tuple[Cell, ...]


def packed(cells: Iterable[Cell]) -> bytes:
    """Cells as in a message (TupleData), without their number."""
    parts = []
    for cell in cells:
        if cell is None:
            parts.append(b"n")
        elif cell is UNCHANGED:
            parts.append(b"u")
        else:
            parts += (b"b" if cell.__class__ is Binary else b"t", len(cell).to_bytes(4, "big"), cell)
    return b"".join(parts)


def unpacked(data: bytes) -> TupleData:
    """The cells of packed()."""
    cells: list[Cell] = []
    pos, end = 0, len(data)
    while pos < end:
        kind = data[pos : pos + 1]
        if kind in b"nu":
            cells.append(None if kind == b"n" else UNCHANGED)
            pos += 1
        else:
            stop = pos + 5 + int.from_bytes(data[pos + 1 : pos + 5], "big")
            cells.append(Binary(data[pos + 5 : stop]) if kind == b"b" else data[pos + 5 : stop])
            pos = stop
    return tuple(cells)
