"""The event triggers that send schema changes as logical messages: their SQL, and what a database has of them.

Both triggers call one function. It runs with the rights of the role whose command fires it, and errors in it are
caught: no command fails because of it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pgtail.changes.ddl import PREFIX, VERSION
from pgtail.errors import COMMAND, ServerError
from pgtail.postgres import rows
from pgtail.postgres.catalog import ServerFacts
from pgtail.postgres.connection import PINNED, Connection
from pgtail.postgres.rows import Row
from pgtail.terminal.escape import escape, shell_word

SINCE: Final = 14
"""Since this version pgoutput sends logical messages."""
TRIGGERS: Final = ("pgtail_ddl", "pgtail_ddl_drop")

# attmissingval, the value of an added column in older rows, is an array of one element.
_DESCRIPTION: Final = """convert_to(json_strip_nulls(json_build_object(
            'version', {version},
            'tag', {tag},
            'oid', c.oid::int8,
            'schema', n.nspname,
            'name', c.relname,
            'partitioned', nullif(c.relkind = 'p', false),
            'identity', CASE c.relreplident
                WHEN 'd' THEN 'default' WHEN 'i' THEN 'index' WHEN 'f' THEN 'full' ELSE 'nothing' END,
            'columns', (
                SELECT coalesce(json_agg(json_build_object(
                    'attnum', a.attnum,
                    'name', a.attname,
                    'type', format_type(a.atttypid, a.atttypmod),
                    'not_null', nullif(a.attnotnull, false),
                    'key', nullif(coalesce(a.attnum = ANY (k.attnums), false), false),
                    'generated', CASE a.attgenerated WHEN 's' THEN 'stored' WHEN 'v' THEN 'virtual' END,
                    'has_default', nullif(a.atthasdef OR y.typdefault IS NOT NULL, false),
                    'missing', CASE WHEN a.atthasmissing THEN array_to_string(a.attmissingval, '') END,
                    'default', CASE WHEN c.relkind = 'p' AND a.attgenerated = ''
                        THEN pg_get_expr(d.adbin, d.adrelid) END) ORDER BY a.attnum), '[]')
                FROM pg_attribute a JOIN pg_type y ON y.oid = a.atttypid
                    LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped){statement}
        ))::text, 'UTF8')
        FROM {tables} t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace
            LEFT JOIN LATERAL (
                SELECT (i.indkey::int2[])[0:i.indnkeyatts - 1] AS attnums FROM pg_index i
                WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
                    AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END) k ON true
        WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
        ORDER BY c.oid"""
_STATEMENT: Final = """,
                    'statement', current_query()"""

_FUNCTION: Final = """CREATE SCHEMA pgtail;
REVOKE ALL ON SCHEMA pgtail FROM PUBLIC;

CREATE FUNCTION pgtail.ddl() RETURNS event_trigger LANGUAGE plpgsql SECURITY INVOKER
{settings}
AS $pgtail$
DECLARE
    tables oid[];
    message bytea;
    messages bytea[];
BEGIN
    IF (SELECT NOT bool_and(has_function_privilege(oid, 'EXECUTE')) FROM pg_proc
            WHERE proname = 'pg_logical_emit_message' AND pronamespace = 'pg_catalog'::regnamespace) THEN
        RAISE WARNING '{prefix}: role % may not execute pg_logical_emit_message', current_user;
        RETURN;
    END IF;
    BEGIN
        IF TG_EVENT = 'sql_drop' THEN
            messages := array(
                SELECT convert_to(json_strip_nulls(json_build_object('version', {version}, 'tag', TG_TAG,
                    'oid', o.objid::int8, 'schema', o.schema_name, 'name', o.object_name, 'dropped', true{statement}))
                    ::text, 'UTF8')
                FROM pg_event_trigger_dropped_objects() o
                WHERE o.classid = 'pg_class'::regclass AND o.object_type = 'table' AND NOT o.is_temporary);
            -- Columns are dropped with their type, too. ALTER TABLE is described at its end.
            tables := array(SELECT o.objid FROM pg_event_trigger_dropped_objects() o
                WHERE o.object_type = 'table column' AND TG_TAG <> 'ALTER TABLE');
        ELSE
            tables := array(SELECT d.objid FROM pg_event_trigger_ddl_commands() d
                WHERE d.classid = 'pg_class'::regclass);
        END IF;
        IF tables <> '{{}}' THEN
            messages := messages || array(
                WITH RECURSIVE tree AS (  -- with partitions, and tables that inherit
                    SELECT unnest(tables) AS oid
                    UNION
                    SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid)
                SELECT {description});
        END IF;
    EXCEPTION WHEN OTHERS THEN
        message := convert_to(json_build_object('version', {version}, 'tag', TG_TAG, 'error',
            SQLSTATE || ' ' || regexp_replace(SQLERRM, '[^ -~]', '?', 'g'))::text, getdatabaseencoding());
        messages := ARRAY[message];
    END;
    -- Not inside the block above: its subtransaction would put a message after the row that follows it.
    FOREACH message IN ARRAY coalesce(messages, '{{}}') LOOP
        PERFORM pg_logical_emit_message(true, '{prefix}', message);
    END LOOP;
END
$pgtail$;
COMMENT ON FUNCTION pgtail.ddl() IS '{mark}';

CREATE EVENT TRIGGER pgtail_ddl ON ddl_command_end
    WHEN TAG IN ('CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO', 'ALTER TABLE', 'CREATE SCHEMA')
    EXECUTE FUNCTION pgtail.ddl();
CREATE EVENT TRIGGER pgtail_ddl_drop ON sql_drop
    EXECUTE FUNCTION pgtail.ddl();
"""
_BASELINE: Final = """
-- A first message for each published table.
SELECT count(pg_logical_emit_message(true, '{prefix}', message)) AS tables
FROM (
        SELECT {description}) published (message);
"""
_PUBLISHED: Final = """(
            SELECT DISTINCT r.oid FROM pg_publication_tables p JOIN pg_namespace s ON s.nspname = p.schemaname
                JOIN pg_class r ON r.relnamespace = s.oid AND r.relname = p.tablename)"""
# Values have the same text as in rows, which a walsender's session sends. pg_temp comes last: with an empty search_path
# it would be searched for tables and types first. To compile the query would take longer than to run it.
_SETTINGS: Final = {**PINNED, "jit": "off", "search_path": "pg_catalog, pg_temp"}
_REMOVE: Final = """DROP EVENT TRIGGER IF EXISTS pgtail_ddl;
DROP EVENT TRIGGER IF EXISTS pgtail_ddl_drop;
DROP FUNCTION IF EXISTS pgtail.ddl();
DROP SCHEMA IF EXISTS pgtail;
"""
_STATE: Final = """
SELECT rolsuper,
    to_regnamespace('pgtail') IS NOT NULL AS has_schema, p.oid IS NOT NULL AS has_function,
    obj_description(p.oid, 'pg_proc') AS mark, pg_get_userbyid(p.proowner) AS owner,
    (SELECT coalesce(json_agg(evtname::text), '[]') FROM pg_event_trigger
        WHERE evtfoid = p.oid AND evtname = ANY(%s) AND evtenabled IN ('O', 'A')) AS enabled
FROM pg_roles LEFT JOIN pg_proc p ON p.oid = to_regprocedure('pgtail.ddl()') WHERE rolname = current_user
"""


class Installed(Struct, frozen=True):
    """The function of a database: its comment, its owner, and the triggers that are there and enabled."""

    mark: str
    owner: str
    enabled: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return set(self.enabled) == set(TRIGGERS)

    @property
    def current(self) -> bool:
        return self.mark in (mark(with_statement=False), mark(with_statement=True))


def installed(connection: Connection, server: ServerFacts) -> Installed | None:
    """What the database has; None for nothing.

    Raises ServerError if the role may not change it, or if the server or the database cannot have it.
    """
    if server.major < SINCE:
        raise ServerError(
            f"the server is PostgreSQL {server.version_text}: pgoutput sends logical messages since version {SINCE}.",
            cure="An older server cannot send schema changes.",
        )
    row = rows.only(connection, "the event triggers", _STATE, list(TRIGGERS))
    if not row.boolean("rolsuper"):
        raise ServerError(
            f"role {escape(server.role)} is not a superuser, and only superusers may create event triggers.",
            cure="Connect as one (-U NAME). Where a provider lets another role create them, run the SQL as that role:"
            f"{COMMAND}pgtail ddl print | psql {shell_word(server.database)}",
        )
    found = _installed(row)
    if found is None and row.boolean("has_schema"):
        raise ServerError(
            f"database {escape(server.database)} has a schema pgtail, which pgtail ddl did not create.",
            cure=f"The triggers need this name. If the schema may have another one:"
            f"{COMMAND}ALTER SCHEMA pgtail RENAME TO another_name;",
        )
    return found


def state(connection: Connection) -> Installed | None:
    """What the database has, for any role; None for nothing. Raises ServerError."""
    return _installed(rows.only(connection, "the event triggers", _STATE, list(TRIGGERS)))


def _installed(row: Row) -> Installed | None:
    if not row.boolean("has_function"):
        return None
    return Installed(row.optional_text("mark") or "", row.text("owner"), tuple(row.texts("enabled")))


def mark(*, with_statement: bool) -> str:
    """The comment of the function, which says what it is."""
    return f"pgtail ddl, version {VERSION}{', with statement' if with_statement else ''}"


def install_sql(*, with_statement: bool, replace: bool = False) -> str:
    """The SQL that installs the triggers, and sends a first message for each published table.

    It is one transaction. With `replace` it first removes those that are there.
    """
    statement = _STATEMENT if with_statement else ""
    function = _FUNCTION.format(
        settings="\n".join([f"    SET {name} = {_setting(value)}" for name, value in _SETTINGS.items()]),
        description=_DESCRIPTION.format(version=VERSION, tag="TG_TAG", tables="tree", statement=statement).replace(
            "\n", "\n        "
        ),
        statement=statement,
        version=VERSION,
        prefix=PREFIX,
        mark=mark(with_statement=with_statement),
    )
    description = _DESCRIPTION.format(version=VERSION, tag="'baseline'", tables=_PUBLISHED, statement="")
    baseline = _BASELINE.format(prefix=PREFIX, description=description)
    local = "".join([f"SET LOCAL {name} = {_setting(value)};\n" for name, value in _SETTINGS.items()])
    return f"BEGIN;\n{local}\n{_REMOVE if replace else ''}{function}{baseline}COMMIT;\n"


def remove_sql() -> str:
    """The SQL that removes everything that install_sql() creates, in one transaction."""
    return f"BEGIN;\n{_REMOVE}COMMIT;\n"


def _setting(value: str) -> str:
    return value if "," in value else f"'{value}'"
