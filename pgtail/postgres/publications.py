"""Selects the publications to read: the named ones, or the only one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from pgtail.errors import ServerError
from pgtail.postgres import catalog, rows
from pgtail.postgres.catalog import Publication, ServerFacts, Slot
from pgtail.postgres.connection import Connection
from pgtail.postgres.pgoutput_options import identifier

_OLDER: Final = """
SELECT p.pubname FROM pg_publication p, pg_replication_slots s
WHERE s.slot_name = %s AND (age(p.xmin) > age(s.catalog_xmin) OR age(p.xmin) < 0)
ORDER BY p.pubname
"""
"""A negative age means that the row was frozen more than two billion transactions ago."""


def choose(
    connection: Connection, names: Sequence[str], server: ServerFacts, *, allow_missing: bool
) -> list[Publication]:
    """The publications of these names, or the only one. Raises ServerError, with the existing ones and a cure."""
    found = catalog.publications(connection)
    if not names:
        return [_only(found, server)]
    by_name = {publication.name: publication for publication in found}
    missing = [name for name in names if name not in by_name]
    if missing and not (allow_missing and server.major >= 18):
        raise _missing(missing, found, server, allow_missing=allow_missing)
    return [by_name.get(name, Publication(name, 0)) for name in dict.fromkeys(names)]


def older(connection: Connection, slot: Slot) -> list[str]:
    """The publications that exist in every catalog snapshot the slot can use.

    Their rows are from transactions before the slot's catalog_xmin. The others may be newer than the slot's position,
    or they were altered later, or the slot's catalog_xmin is older than its position.
    """
    return [row.text("pubname") for row in rows.rows(connection, "the age of the publications", _OLDER, slot.name)]


def warnings(connection: Connection, chosen: Sequence[Publication], tables: Sequence[str]) -> list[str]:
    """Warnings about options that show nothing; `tables` are the patterns of --table."""
    names = [publication.name for publication in chosen]
    empty = [publication.name for publication in chosen if not publication.tables]
    found = [f"publication {name} has no tables: it shows nothing" for name in empty]
    if tables and len(empty) < len(chosen):
        published = catalog.published_tables(connection, names)
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
        cure=f"Name the ones to read: -P {shlex.quote(found[0].name)} (repeatable)",
    )


def _missing(missing: list[str], found: list[Publication], server: ServerFacts, *, allow_missing: bool) -> ServerError:
    names = " and ".join([identifier(name) for name in missing])
    there = f"It has: {_names(found)}." if found else "It has none."
    cure = "\n".join([f"Create it: CREATE PUBLICATION {identifier(name)} FOR TABLE some_table;" for name in missing])
    if allow_missing:
        cure += "\n--allow-missing-publication needs PostgreSQL 18: older servers stop at the first change."
    elif server.major >= 18:
        cure += "\nOr continue without it: --allow-missing-publication"
    return ServerError(f"database {server.database} has no publication {names}. {there}", cure=cure)


def _names(found: list[Publication]) -> str:
    return ", ".join([identifier(publication.name) for publication in found])
