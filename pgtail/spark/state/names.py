"""Which table has a name, and which folder, after the name passed from one table to another; no Spark.

That happens by DROP TABLE and CREATE TABLE, or by renaming both; the stream does not show which.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgtail.spark.lake.batches import TableNotes
from pgtail.spark.lake.decoding import Names, folder_name


def owners(tables: Mapping[int, TableNotes], names: Mapping[int, Names]) -> dict[Names, int]:
    """The table, by its OID, that got each name last."""
    return {names[relid]: relid for relid in sorted(tables, key=lambda relid: (tables[relid].since, relid))}


def former_owners(
    tables: Mapping[int, TableNotes], names: Mapping[int, Names], before: Mapping[int, Names]
) -> dict[int, int]:
    """The tables whose name belonged to another one `before`, as far as the stream shows, and that one."""
    found = {}
    for name, relid in owners(tables, names).items():
        others = {other: one for other, one in tables.items() if other != relid and names[other] == name}
        if others and before.get(relid) != name:
            found[relid] = owners(others, names)[name]
    return found


def folders_to_take(
    kind: str, tables: Mapping[int, TableNotes], names: Mapping[int, Names], before: Mapping[int, Names]
) -> dict[int, str]:
    """The tables that get another folder, and which: a table that got its name later than the folder's table got its
    own, or that had another name `before`, takes the folder of the name.

    The table that leaves it gets the folder of its own name, if nobody has had that, or else one with its OID.
    """
    plain = {relid: f"{kind}/{folder_name(*name)}" for name, relid in owners(tables, names).items()}
    users = {one.folder: relid for relid, one in tables.items()}
    found = {}
    for relid, folder in plain.items():
        user = users.get(folder, relid)
        later = (tables[relid].since, relid) > (tables[user].since, user)
        if user != relid and (later or before.get(relid) != names[relid]):
            found[relid] = folder
    for folder in [*found.values()]:
        if (user := users[folder]) not in found:
            own = plain.get(user, folder)
            found[user] = f"{folder}~~{user}" if own in users else own
    return found
