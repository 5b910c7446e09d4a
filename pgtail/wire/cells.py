"""Floor 1, the cells of TupleData: what the wire says of one column, and nothing of its type.

A cell is one of four things, and they stay apart in every output:
    bytes      a value in text form ('t')
    Binary     a value in binary form ('b')
    None       NULL ('n'); in a key tuple also "not part of the identity", which only the Relation tells
    UNCHANGED  a TOASTed value that was not sent ('u')
"""

from __future__ import annotations

import enum
from typing import TypeAlias


class Binary(bytes):
    """A value in the type's binary form (its send function's bytes)."""

    __slots__ = ()


class Unchanged(enum.Enum):
    """The type of UNCHANGED, so that it can be told by identity and by type."""

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged.UNCHANGED

Cell: TypeAlias = bytes | Binary | None | Unchanged
TupleData: TypeAlias = tuple[Cell, ...]
