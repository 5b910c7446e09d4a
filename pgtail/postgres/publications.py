"""Selects the publications to read: the named ones, the only one, or all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from pgtail.changes.complete_tables import EVERY, NONE, CompleteTables
from pgtail.changes.filters import name_matches
from pgtail.errors import COMMAND, ServerError
from pgtail.humanize import counted, did_you_mean
from pgtail.postgres import catalog, rows
from pgtail.postgres.catalog import Publication, ServerFacts, Slot
from pgtail.postgres.connection import Connection
from pgtail.postgres.pgoutput_options import Options
from pgtail.terminal.escape import escape, shell_word, sql_identifier

_OLDER: Final = """
SELECT p.pubname FROM pg_publication p, pg_replication_slots s
WHERE s.slot_name = %s AND (age(p.xmin) > age(s.catalog_xmin) OR age(p.xmin) < 0)
ORDER BY p.pubname
"""
"""A negative age means that the row was frozen more than two billion transactions ago."""
_OPERATIONS: Final = """
SELECT pubname, to_jsonb(p) AS publication FROM pg_publication p WHERE pubname = ANY(%s) ORDER BY pubname
"""
_LEFT_OUT: Final = """
SELECT p.pubname, (
    SELECT coalesce(json_agg(op), '[]') FROM unnest('{insert,update,delete,truncate}'::text[]) op
    WHERE NOT (to_jsonb(p) ->> ('pub' || op))::bool AND EXISTS (
        SELECT FROM pg_publication_tables t WHERE t.pubname = p.pubname AND NOT EXISTS (
            SELECT FROM pg_publication_tables o JOIN pg_publication q USING (pubname)
            WHERE q.pubname = ANY(%s) AND (to_jsonb(q) ->> ('pub' || op))::bool
                AND (o.schemaname, o.tablename) = (t.schemaname, t.tablename)))) AS operations, (
    SELECT coalesce(json_agg(format('of %%I.%%I only ', schemaname, tablename) || concat_ws(' and ',
            'rows with ' || filter, CASE WHEN has_list THEN 'columns ' || columns END)), '[]')
    FROM (
        SELECT t.schemaname, t.tablename, to_jsonb(t) ->> 'rowfilter' AS filter,
            (SELECT string_agg(one, ', ') FROM jsonb_array_elements_text(to_jsonb(t) -> 'attnames') one) AS columns,
            jsonb_array_length(to_jsonb(t) -> 'attnames') < (
                SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                    JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = t.schemaname AND c.relname = t.tablename AND a.attnum > 0 AND NOT a.attisdropped
                    AND to_jsonb(a) ->> 'attgenerated' = '') AS has_list
        FROM pg_publication_tables t WHERE t.pubname = p.pubname ORDER BY 1, 2) selected
    WHERE filter IS NOT NULL OR has_list) AS tables
FROM pg_publication p WHERE pubname = ANY(%s) ORDER BY pubname
"""
"""Row filters and column lists exist since PostgreSQL 15. An operation that any publication of a table has is sent."""
_MOST_TABLES: Final = 5
"""How many are named with what is left out of them."""
_PUBLISH_ALL: Final = """
SELECT count(*) AS publications, coalesce(bool_and(pubinsert AND pubupdate AND pubdelete), false) AS publish_all
FROM pg_publication WHERE pubname = ANY(%s)
"""
_COMPLETE: Final = """
SELECT schemaname, tablename FROM pg_publication_tables t JOIN pg_publication p USING (pubname)
WHERE pubname = ANY(%s)
GROUP BY schemaname, tablename HAVING bool_or(pubinsert) AND bool_or(pubupdate) AND bool_or(pubdelete)
    AND (bool_and(pubinsert AND pubupdate AND pubdelete) OR bool_and(to_jsonb(t)->>'rowfilter' IS NULL))
"""
"""The server joins the row filters of the publications for each operation."""


def choose(
    connection: Connection, names: Sequence[str], server: ServerFacts, *, allow_missing: bool, temporary: bool
) -> list[Publication]:
    """The publications of these names. Without names the only one, or for a temporary slot all of them.

    Raises ServerError, with the existing ones and a cure.
    """
    existing = catalog.publications(connection)
    if not names:
        return existing if temporary and len(existing) > 1 else [_only(existing, server)]
    by_name = {publication.name: publication for publication in existing}
    missing = [name for name in names if name not in by_name]
    if missing and not (allow_missing and server.major >= 18):
        raise _missing(missing, existing, server, allow_missing=allow_missing)
    return [by_name.get(name, Publication(name, 0)) for name in dict.fromkeys(names)]


def older(connection: Connection, slot: Slot) -> list[str]:
    """The publications that exist in every catalog snapshot the slot can use.

    Their rows are from transactions before the slot's catalog_xmin. The others may be newer than the slot's position,
    or they were altered later, or the slot's catalog_xmin is older than its position.
    """
    return [row.text("pubname") for row in rows.rows(connection, "the age of the publications", _OLDER, slot.name)]


def warnings(
    connection: Connection,
    chosen: Sequence[Publication],
    tables: Sequence[str],
    *,
    all_of_them: bool,
) -> list[str]:
    """Warnings about options without an effect; `tables` are the patterns of --table.

    Of `all_of_them`, which nobody named, some may be empty.
    """
    names = [publication.name for publication in chosen]
    empty = [publication.name for publication in chosen if not publication.tables]
    texts = [f"publication {escape(name)} has no tables: it shows nothing" for name in empty]
    if all_of_them and len(empty) < len(chosen):
        texts = []
    if tables and len(empty) < len(chosen):
        published = catalog.published_tables(connection, names)
        for glob in tables:
            if any(name_matches(schema, table, glob) for schema, table in published):
                continue
            known = [f"{schema}.{table}" if "." in glob else table for schema, table in published]
            similar = escape(did_you_mean(glob, known))
            texts.append(f"--table {escape(glob)} matches no published table (of {len(known)}){similar}")
    return texts


def _only(existing: list[Publication], server: ServerFacts) -> Publication:
    if len(existing) == 1:
        return existing[0]
    if not existing:
        raise ServerError(
            f"database {escape(server.database)} has no publication: pgoutput sends nothing without one.",
            cure=f"Create one there:{COMMAND}CREATE PUBLICATION some_name FOR TABLE some_table, another_table;",
        )
    names = [one.name for one in existing if one.tables] or [one.name for one in existing]
    raise ServerError(
        f"database {escape(server.database)} has {len(existing)} publications: {in_words(existing)}.",
        cure=f"Name the ones to read: {flags(names)}",
    )


def check_operations(connection: Connection, names: Sequence[str]) -> None:
    """Check that these publications leave out no operation. Raises ServerError, which names those that do."""
    for row in rows.rows(connection, "what the publications leave out", _OPERATIONS, list(names)):
        publication = row.object("publication")  # before PostgreSQL 11 there is no pubtruncate
        words = ("insert", "update", "delete", "truncate")
        left_out = [word for word in words if publication.optional_boolean(f"pub{word}") is False]
        if left_out:
            name = sql_identifier(row.text("pubname"))
            raise ServerError(
                f"publication {name} leaves out {', '.join(left_out)}: what its tables have does not follow from it.",
                cure=f"Publish them:{COMMAND}ALTER PUBLICATION {name}"
                " SET (publish = 'insert, update, delete, truncate');"
                "\nThen copy its tables again (pgtail record --snapshot-table).",
            )


def withheld(connection: Connection, names: Sequence[str], ops: Collection[str] = ()) -> list[str]:
    """For each publication that does not send all: what it leaves out of its tables, and which operations, unless
    another of them sends these.

    Not escaped. With `ops` other operations do not count.
    """
    texts = []
    for row in rows.rows(connection, "what the publications leave out", _LEFT_OUT, list(names), list(names)):
        tables = row.texts("tables")
        parts = tables[:_MOST_TABLES]
        if more := len(tables) - len(parts):
            parts.append(f"less than all of {counted(more, 'other table')}")
        left_out = [op for op in row.texts("operations") if not ops or op in ops]
        parts += [f"no {', '.join(left_out)}"] if left_out else []
        if parts:
            texts.append(f"publication {sql_identifier(row.text('pubname'))} sends {'; '.join(parts)}")
    return texts


def complete_tables(connection: Connection, options: Options) -> CompleteTables | None:
    """The tables of which a stream with these options has every insert, update and delete.

    None if that is not known, as a publication does not exist.
    """
    if options.origin == "none":
        return NONE
    names = list(options.publications)
    found = rows.only(connection, "what the publications leave out", _PUBLISH_ALL, names)
    if found.integer("publications") < len(names):
        return None
    if found.boolean("publish_all"):
        return EVERY
    tables = rows.rows(connection, "what the publications leave out", _COMPLETE, names)
    return CompleteTables(names=frozenset([(row.text("schemaname"), row.text("tablename")) for row in tables]))


def in_words(chosen: Sequence[Publication]) -> str:
    """Names of publications, each with its number of tables, for a message; quoted where a comma may be in one."""
    names = [one.name if one.name.isidentifier() else sql_identifier(one.name) for one in chosen]
    return ", ".join([f"{name} ({counted(one.tables, 'table')})" for name, one in zip(names, chosen, strict=True)])


def flags(names: Sequence[str]) -> str:
    """The options that select these publications."""
    return " ".join([f"-P {shell_word(name)}" for name in names])


def _missing(missing: list[str], known: list[Publication], server: ServerFacts, *, allow_missing: bool) -> ServerError:
    names = " and ".join([sql_identifier(name) for name in missing])
    there = f"It has: {', '.join([sql_identifier(one.name) for one in known])}." if known else "It has none."
    cure = "\n".join(
        [f"Create it:{COMMAND}CREATE PUBLICATION {sql_identifier(name)} FOR TABLE some_table;" for name in missing]
    )
    if allow_missing:
        cure += (
            "\npgtail stream --allow-missing-publication needs PostgreSQL 18: older servers stop at the first change."
        )
    elif server.major >= 18:
        cure += "\nOr let pgtail stream continue without it, with --allow-missing-publication"
    return ServerError(f"database {escape(server.database)} has no publication {names}. {there}", cure=cure)
