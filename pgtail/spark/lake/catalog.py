"""The table that says which folder holds which table.

OUT/catalog     kind (tables, state, history), schema, table, relid, folder, since
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict

from pgtail.errors import InputError
from pgtail.spark.lake.delta import Commit, LakeTable
from pgtail.storage import Location

CATALOG: Final = "catalog"
_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("relid", pa.int64()),
        ("folder", pa.string()),
        ("since", pa.int64()),
    ]
)


class Entry(Struct, frozen=True):
    """A table: `kind` says what the folder has of it; `since` is the position from which it has its name."""

    kind: str
    schema: str
    table: str
    relid: int | None
    folder: str
    since: int


def entries(out: Location) -> list[Entry]:
    """Every table of OUT."""
    return [Entry(**row) for row in LakeTable(out / CATALOG).rows()]


def folder_in(out: Location, kind: str, name: str) -> str:
    """The folder of the table that has this name (schema.table) now. Raises InputError, which lists the tables."""
    own = [entry for entry in entries(out) if entry.kind == kind]
    found = [entry for entry in own if f"{entry.schema}.{entry.table}" == name]
    if not found:
        there = ", ".join(sorted({f"{entry.schema}.{entry.table}" for entry in own}))
        raise InputError(f"no table {name} in {kind}; there are {there or 'none'}", source=str(out))
    return max(found, key=lambda entry: (entry.since, entry.relid or 0)).folder


def changed(out: Location, new: Iterable[Entry], codec: str, vacated: Iterable[str] = ()) -> list[Commit]:
    """The commit that brings the catalog up to date: an entry replaces that of the same folder, and those of folders
    that are no table's any more go."""
    table = LakeTable(out / CATALOG)
    before = table.rows()
    now = {row["folder"]: row for row in [*before, *map(asdict, new)]}
    rows = [now[folder] for folder in sorted(now.keys() - {*vacated})]
    return [] if rows == before else [table.replacing(CATALOG, pa.Table.from_pylist(rows, _SCHEMA), codec)]
