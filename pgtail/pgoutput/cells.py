"""The cells of TupleData: one column of a row as it was sent.

A cell is one of four things, which every output keeps apart:
    bytes      a value in text form ('t')
    Binary     a value in binary form ('b')
    None       NULL ('n'); in a key tuple also any column outside the replica identity (see Relation)
    UNCHANGED  a TOASTed value that was not sent ('u')
"""

from __future__ import annotations

import enum
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
