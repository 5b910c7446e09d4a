"""The published tables with the columns that the server sends, as the catalog has them now."""

from __future__ import annotations

from itertools import groupby
from typing import Final, NamedTuple

from pgtail.changes.relations import Relation, Relations
from pgtail.pgoutput import schema
from pgtail.postgres import rows
from pgtail.postgres.catalog import BASE_TYPES
from pgtail.postgres.connection import Connection
from pgtail.values import Types

_COLUMNS: Final = """
WITH RECURSIVE {base_types}, published AS (
    SELECT DISTINCT ON (schemaname, tablename) schemaname, tablename, to_jsonb(t) -> 'attnames' AS attnames
    FROM pg_publication_tables t WHERE pubname = ANY(%s)
)
SELECT c.oid AS table_oid, n.nspname, c.relname, c.relreplident, a.attname, a.atttypid, a.atttypmod, y.typname,
    CASE WHEN m.nspname = 'pg_catalog' THEN '' ELSE m.nspname END AS type_schema,
    NOT a.attisdropped AND coalesce(p.attnames @> to_jsonb(a.attname), true)
        AND {stored} AS is_sent, a.xmin::text AS written_by,
    coalesce(age(a.xmin) <= (SELECT age(catalog_xmin) FROM pg_replication_slots WHERE slot_name = %s), false) AS is_new
FROM published p JOIN pg_namespace n ON n.nspname = p.schemaname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    LEFT JOIN base ON base.oid = a.atttypid LEFT JOIN pg_type y ON y.oid = base.type
    LEFT JOIN pg_namespace m ON m.oid = y.typnamespace
ORDER BY c.oid, a.attnum
"""
"""attnames, since PostgreSQL 15, names the columns of a publication's list. Dropped columns are read for the age of
their rows. A row of pg_attribute as a whole must not become JSON: it has a value of a user's type (attmissingval), and
the cast of that type to JSON is code of the user."""

_STORED: Final = "a.attgenerated = ''"
"""Generated columns, which PostgreSQL has since 12, are not sent before 18."""


class CheckedTable(NamedTuple):
    """A table, and whether it may have had other columns at the position of the slot."""

    relation: Relation
    altered: bool


def checked_tables(connection: Connection, publications: list[str], slot: str | None) -> list[CheckedTable]:
    """The tables of these publications; with a slot those that were altered later are marked. Raises ServerError."""
    relations = Relations(Types())
    checked = []
    stored = _STORED if 120_000 <= connection.pgconn.server_version < 180_000 else "true"
    query = _COLUMNS.format(base_types=BASE_TYPES, stored=stored)
    every = rows.rows(connection, "the published columns", query, publications, slot)
    for oid, group in groupby(every, lambda row: row.integer("table_oid")):
        table = [*group]
        sent = [row for row in table if row.boolean("is_sent")]
        for row in sent:
            relations.see_type(schema.Type(None, row.integer("atttypid"), row.text("type_schema"), row.text("typname")))
        first = table[0]
        columns = [
            schema.RelationColumn(0, row.text("attname"), row.integer("atttypid"), row.integer("atttypmod"))
            for row in sent
        ]
        _, relation = relations.see(
            schema.Relation(
                None, oid, first.text("nspname"), first.text("relname"), first.text("relreplident"), tuple(columns)
            )
        )
        created_whole = len({row.text("written_by") for row in table}) == 1  # and not altered since
        checked.append(CheckedTable(relation, not created_whole and any(row.boolean("is_new") for row in table)))
    return checked
