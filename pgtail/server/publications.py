"""Floor 5, the publications to read: those that were named, or the only one there is; creates none."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from pgtail.errors import ServerError
from pgtail.server import facts
from pgtail.server.connection import Connection
from pgtail.server.facts import Publication, ServerFacts, Slot
from pgtail.server.options import identifier

_OLDER: Final = """
SELECT p.pubname::text FROM pg_publication p, pg_replication_slots s
WHERE s.slot_name = %s AND (age(p.xmin) > age(s.catalog_xmin) OR age(p.xmin) < 0)
ORDER BY p.pubname
"""
"""A number that seems to lie ahead is one of a row that was frozen two thousand million transactions ago."""


def choose(
    connection: Connection, names: Sequence[str], server: ServerFacts, *, allow_missing: bool
) -> list[Publication]:
    """The publications of these names, or the only one. Raises ServerError, with what there is and the SQL."""
    found = facts.publications(connection)
    if not names:
        return [_only(found, server)]
    by_name = {publication.name: publication for publication in found}
    missing = [name for name in names if name not in by_name]
    if missing and not (allow_missing and server.major >= 18):
        raise _missing(missing, found, server, allow_missing=allow_missing)
    return [by_name.get(name, Publication(name, 0)) for name in dict.fromkeys(names)]


def older(connection: Connection, slot: Slot) -> list[str]:
    """The publications that are in every snapshot of the catalog that the slot reads with.

    Their rows come from transactions before the slot's catalog_xmin. Of the others nobody knows: they may be younger
    than the slot's position, or were altered since, or the slot's catalog_xmin lags behind its position.
    """
    return [name for (name,) in connection.execute(_OLDER, (slot.name,)).fetchall()]


def warnings(connection: Connection, chosen: Sequence[Publication], tables: Sequence[str]) -> list[str]:
    """What makes it likely that nothing will be shown; `tables` are the globs of --table."""
    names = [publication.name for publication in chosen]
    empty = [publication.name for publication in chosen if not publication.tables]
    found = [f"publication {name} has no tables: nothing of it will be shown" for name in empty]
    if tables and len(empty) < len(chosen):
        published = facts.published_tables(connection, names)
        found += [
            f"--table {glob} matches none of the {len(published)} published tables"
            for glob in tables
            if not any(_matches(schema, table, glob) for schema, table in published)
        ]
    return found


def _matches(schema: str, table: str, glob: str) -> bool:
    return fnmatchcase(f"{schema}.{table}" if "." in glob else table, glob)


def _only(found: list[Publication], server: ServerFacts) -> Publication:
    if len(found) == 1:
        return found[0]
    if not found:
        raise ServerError(
            f"database {server.database} has no publication: pgoutput sends nothing without one.",
            cure="Create one there: CREATE PUBLICATION some_name FOR TABLE some_table, another_table;",
        )
    raise ServerError(
        f"database {server.database} has {len(found)} publications: {_names(found)}.",
        cure=f"Name those that you want: -P {shlex.quote(found[0].name)} (repeatable)",
    )


def _missing(missing: list[str], found: list[Publication], server: ServerFacts, *, allow_missing: bool) -> ServerError:
    names = " and ".join([identifier(name) for name in missing])
    there = f"It has: {_names(found)}." if found else "It has none at all."
    cure = "\n".join([f"Create it: CREATE PUBLICATION {identifier(name)} FOR TABLE some_table;" for name in missing])
    if allow_missing:
        cure += "\n--allow-missing-publication needs PostgreSQL 18: older servers stop at the first change."
    elif server.major >= 18:
        cure += "\nOr go on without it: --allow-missing-publication"
    return ServerError(f"database {server.database} has no publication {names}. {there}", cure=cure)


def _names(found: list[Publication]) -> str:
    return ", ".join([identifier(publication.name) for publication in found])
