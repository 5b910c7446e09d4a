"""Names of a server's objects, for completion on a command line."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from pgtail.postgres.connection import Connection
from pgtail.postgres.rows import rows

Named: TypeAlias = Literal["slots", "publications", "tables", "databases"]

_QUERIES: Final[dict[Named, str]] = {
    "slots": "SELECT slot_name AS name FROM pg_replication_slots WHERE slot_type = 'logical' ORDER BY 1",
    "publications": "SELECT pubname AS name FROM pg_publication ORDER BY 1",
    "databases": "SELECT datname AS name FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY 1",
    "tables": """
        SELECT n.nspname || '.' || c.relname AS name
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
            AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' ORDER BY 1
    """,
}


def names(connection: Connection, named: Named) -> list[str]:
    """The names of all logical slots, or of the database's publications or tables. Raises ServerError."""
    return [row.text("name") for row in rows(connection, f"the list of {named}", _QUERIES[named])]
