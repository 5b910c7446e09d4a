"""The columns of typed tables: the table's own, of types that hold all versions, and pgtail's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import pyarrow as pa

from pgtail.arrow.schemas import CHANGES, fields
from pgtail.arrow.typed.arrow_types import RESCUED, STRING, Declared, arrow_type, delimiter, widest
from pgtail.arrow.typed.casts import TableColumn
from pgtail.arrow.typed.versions import Version

FORMER: Final = "\0former "
"""Begins the names of columns that another version has; no name in PostgreSQL has a NUL."""

TRUE_NAME: Final = "pgtail.name"
"""The key of a field's metadata that has the column's name in PostgreSQL."""

_COPIED: Final = (
    *("op", "xid", "seq", "position", "commit_lsn", "commit_ts", "prepare_lsn", "prepare_ts", "lsn", "origin", "gid"),
    *("state", "unchanged", "undecoded", "relid", "relation"),
)
"""The columns that a typed row has from its change, each with an underscore before its name."""

META: Final = [*(pa.field(f"_{name}", CHANGES.field(name).type) for name in _COPIED), pa.field("_rescued", RESCUED)]
"""pgtail's own columns of a table of changes, without those of the old row."""

ROW: Final = fields(
    "_position bigint, _seq bigint, _commit_ts time, _unknown texts, _rescued values, _undecoded texts, _relation text"
)
"""pgtail's own columns of a state."""

VALIDITY: Final = [
    *fields("_valid_from_position bigint, _valid_from_seq bigint, _valid_from time"),
    *fields("_valid_to_position bigint, _valid_to time"),
    *ROW[3:],
    *fields("_from_snapshot bool"),
]
"""pgtail's own columns of a history."""

VALID_FROM: Final = {"_position": "_valid_from_position", "_seq": "_valid_from_seq", "_commit_ts": "_valid_from"}
"""A history's names of the columns of a state that say how a row began."""

OWN: Final = frozenset([*(field.name for field in (*META, *ROW, *VALIDITY)), "_old", "_old_rescued"])


def columns_of(versions: Iterable[Version], own: Collection[str] = OWN) -> list[TableColumn]:
    """A column for every name that any of the versions has, of a type that holds them all.

    A name that is equal to an earlier one except for case, or to one of pgtail's `own`, is stored as NAME~2, NAME~3 ...
    """
    named: dict[str, list[Declared]] = {}
    for version in versions:
        for column in version.columns:
            named.setdefault(column.name, []).append(column.declared)
    taken = set(own)
    columns = []
    for name, types in named.items():
        stored, number = name, 1
        while stored.lower() in taken:
            number += 1
            stored = f"{name}~{number}"
        taken.add(stored.lower())
        delimiters = {delimiter(declared) for declared in types}
        if len(delimiters) > 1:
            columns.append(TableColumn(name, stored, STRING))
        else:
            columns.append(TableColumn(name, stored, widest(map(arrow_type, types)), delimiters.pop()))
    return columns


def own_columns(version: Version, columns: Sequence[TableColumn]) -> list[TableColumn]:
    """The columns that a version has, in its order."""
    by_name = {column.name: column for column in columns}
    return [by_name[column.name] for column in version.columns]


def former_columns(version: Version, columns: Sequence[TableColumn]) -> list[TableColumn]:
    """The columns of a history's table that only other versions have, as rows of this version carry them."""
    names = {column.name for column in version.columns}
    return [column._replace(stored=f"{FORMER}{column.name}") for column in columns if column.name not in names]


def schema_of(columns: Sequence[TableColumn], own: Sequence[pa.Field], *, old: bool = False) -> pa.Schema:
    """The table's schema: its columns, then pgtail's own; with `old` also those of the old row.

    A table without columns has no `_old`: no format stores a struct of nothing.
    """
    fields = [pa.field(c.stored, c.kind, metadata={TRUE_NAME: c.name}) for c in columns]
    sent = [pa.field("_old", pa.struct(fields)), pa.field("_old_rescued", RESCUED)] if old and columns else []
    return pa.schema([*fields, *own, *sent])
