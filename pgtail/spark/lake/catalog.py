"""The catalog: the folder of each table, and tables that have a name and a folder after others had them.

That happens by DROP TABLE and CREATE TABLE, or by renaming both; the stream does not show which.

OUT/catalog     kind (tables, state, history), schema, table, relid, folder, since
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict

from pgtail.arrow.schemas import fields
from pgtail.errors import InputError
from pgtail.spark.lake.batches import TableNotes
from pgtail.spark.lake.decoding import Names, folder_name
from pgtail.spark.lake.delta import Commit, LakeTable
from pgtail.storage import Location


def owners(tables: Mapping[int, TableNotes], names: Mapping[int, Names]) -> dict[Names, int]:
    """The table, by its OID, that took each name last."""
    return {names[relid]: relid for relid in sorted(tables, key=lambda relid: (tables[relid].since, relid))}


def former_owners(
    tables: Mapping[int, TableNotes], names: Mapping[int, Names], before: Mapping[int, Names]
) -> dict[int, int]:
    """The tables whose name belonged to another one `before`, as far as the stream shows, and that one."""
    former = {}
    for name, relid in owners(tables, names).items():
        others = {other: notes for other, notes in tables.items() if other != relid and names[other] == name}
        if others and before.get(relid) != name:
            former[relid] = owners(others, names)[name]
    return former


def folders_to_take(
    kind: str, tables: Mapping[int, TableNotes], names: Mapping[int, Names], before: Mapping[int, Names]
) -> dict[int, str]:
    """The new folders of tables that move: a table that took its name later than the folder's table took its own, or
    that had another name `before`, takes the folder of the name.

    The table that leaves it takes the folder of its own name, if no table has had that, or else one with its OID.
    """
    plain = {relid: f"{kind}/{folder_name(*name)}" for name, relid in owners(tables, names).items()}
    users = {notes.folder: relid for relid, notes in tables.items()}
    taken = {}
    for relid, folder in plain.items():
        user = users.get(folder, relid)
        later = (tables[relid].since, relid) > (tables[user].since, user)
        if user != relid and (later or before.get(relid) != names[relid]):
            taken[relid] = folder
    for folder in [*taken.values()]:
        if (user := users[folder]) not in taken:
            own = plain.get(user, folder)
            taken[user] = f"{folder}~~{user}" if own in users else own
    return taken


CATALOG: Final = "catalog"
_SCHEMA: Final = pa.schema(fields("kind text, schema text, table text, relid bigint, folder text, since bigint"))


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
    named = [entry for entry in own if f"{entry.schema}.{entry.table}" == name]
    if not named:
        there = ", ".join(sorted({f"{entry.schema}.{entry.table}" for entry in own}))
        raise InputError(f"no table {name} in {kind}; there are {there or 'none'}", source=str(out))
    return max(named, key=lambda entry: (entry.since, entry.relid or 0)).folder


def changed(out: Location, new: Iterable[Entry], codec: str, vacated: Iterable[str] = ()) -> list[Commit]:
    """The commit that brings the catalog up to date: an entry replaces that of the same folder, and those of
    vacated folders are removed."""
    table = LakeTable(out / CATALOG)
    before = table.rows()
    now = {row["folder"]: row for row in [*before, *map(asdict, new)]}
    rows = [now[folder] for folder in sorted(now.keys() - {*vacated})]
    return [] if rows == before else [table.replacing(CATALOG, pa.Table.from_pylist(rows, _SCHEMA), codec)]
