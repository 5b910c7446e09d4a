"""Cells of every built-in type, and rows of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from pgtail.changes.relations import Column, Relation
from pgtail.values import Codec, Types, Undecoded
from pgtail.values.oids import BUILTIN
from tests.support.cells import binary_cells
from tests.support.encode import Cell, delete, insert, update
from tests.support.samples import SAMPLES

TYPES = sorted(BUILTIN)

BINARY: dict[int, list[bytes]] = {}
for _oid, _cell in binary_cells():
    BINARY.setdefault(_oid, []).append(_cell)


def first_readable(codec: Codec, cells: Sequence[bytes]) -> bytes | None:
    """A binary cell that can be decoded."""
    for cell in cells:
        with contextlib.suppress(Undecoded):
            codec.json_binary(cell)
            return cell
    return None


def one_of_each(types: Sequence[int], xid: int | None = None) -> tuple[Relation, list[bytes]]:
    """The table 100 with a column of each type, and rows that the scanner processes."""
    columns = [Column(f"c{oid}", oid, -1, index % 2 == 0, "", Types().codec(oid)) for index, oid in enumerate(types)]
    table = Relation(100, "public", "t", "default", tuple(columns))
    text: list[Cell] = [SAMPLES.get(BUILTIN[oid].name, [None])[0] for oid in types]
    binary: list[Cell] = [first_readable(column.codec, BINARY.get(column.type_oid, [])) for column in columns]
    key = [cell if index % 2 == 0 else None for index, cell in enumerate(text)]
    rows = [insert(*text, xid=xid), insert(*binary, xid=xid), update(binary, text, "O", xid=xid)]
    return table, [*rows, update(text, key, xid=xid), delete(*key, xid=xid)]
