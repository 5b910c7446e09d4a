"""Catalog queries: facts about the server, its slots, its publications and its sessions.

Views whose columns differ between versions are read as jsonb and by name, so one query fits all versions.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from pgtail.humanize import seconds_text
from pgtail.postgres import rows
from pgtail.postgres.connection import Connection
from pgtail.postgres.rows import Row

POSITION: Final = "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END"
"""The end of the server's flushed WAL, on a standby of the replayed WAL, in SQL."""
BASE_TYPES: Final = """base AS (
    SELECT oid, oid AS type FROM pg_type WHERE typtype <> 'd'
    UNION ALL
    SELECT d.oid, base.type FROM pg_type d JOIN base ON d.typtype = 'd' AND d.typbasetype = base.oid
)"""
"""A recursive query: each type with itself, or with the type that the domain is over."""

_SERVER = f"""
SELECT current_setting('server_version_num') AS server_version_num, current_setting('server_version') AS server_version,
    current_setting('wal_level') AS wal_level,
    coalesce(current_setting('effective_wal_level', true), current_setting('wal_level')) AS effective_wal_level,
    pg_is_in_recovery() AS in_recovery,
    current_setting('server_encoding') AS server_encoding, current_database() AS database, current_user AS role,
    (SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout') AS wal_sender_timeout,
    current_setting('synchronous_standby_names') AS synchronous_standby_names,
    (SELECT version || ', ' || cipher FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl) AS tls,
    {POSITION} AS position
"""
_POSITION = f"SELECT {POSITION} AS position"
_CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 946684800000000 AS micros"
_WAITING = f"""
{_CLOCK} FROM pg_replication_slots s JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = %s AND lower(a.wait_event) = 'walsenderwaitforwal'
"""
_SLOTS = "SELECT to_jsonb(s) AS slot FROM pg_replication_slots s ORDER BY slot_name"
_SLOT = "SELECT to_jsonb(s) AS slot FROM pg_replication_slots s WHERE slot_name = %s"
_PUBLICATIONS = """
SELECT pubname, (SELECT count(*) FROM pg_publication_tables t WHERE t.pubname = p.pubname) AS tables
FROM pg_publication p ORDER BY pubname
"""
_TABLES = """
SELECT DISTINCT schemaname, tablename FROM pg_publication_tables WHERE pubname = ANY(%s)
"""
_SESSION = """
SELECT usename, application_name, coalesce(client_hostname, host(client_addr), 'local') AS client
FROM pg_stat_activity WHERE pid = %s
"""
_BLOCKERS = r"""
SELECT a.pid, a.usename, a.application_name, a.state,
    left(regexp_replace(regexp_replace(a.query, '[''$].*', '...'), '\s+', ' ', 'g'), 60) AS query,
    extract(epoch FROM clock_timestamp() - a.xact_start)::bigint AS age
FROM unnest(pg_blocking_pids(%s)) AS b JOIN pg_stat_activity a ON a.pid = b ORDER BY a.xact_start
"""
"""The query ends before its first literal, which may be a password."""
_PREPARED_BLOCKERS = """
SELECT p.gid, p.owner, extract(epoch FROM clock_timestamp() - p.prepared)::bigint AS age
FROM pg_locks l JOIN pg_prepared_xacts p ON p.transaction = l.transactionid
WHERE l.pid = %s AND NOT l.granted AND l.locktype = 'transactionid'
"""
_ENUMS = f"""
WITH RECURSIVE {BASE_TYPES} SELECT base.oid FROM base JOIN pg_type y ON y.oid = base.type WHERE y.typtype = 'e'
"""

SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")

Named: TypeAlias = Literal["slots", "publications", "tables", "columns", "databases"]

_NAMES: Final[dict[Named, str]] = {
    "slots": """
        SELECT slot_name AS name FROM pg_replication_slots WHERE slot_type = 'logical' AND NOT temporary ORDER BY 1
    """,
    "publications": "SELECT pubname AS name FROM pg_publication ORDER BY 1",
    "databases": "SELECT datname AS name FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY 1",
    "tables": """
        SELECT n.nspname || '.' || c.relname AS name
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
            AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' ORDER BY 1
    """,
    "columns": """
        SELECT n.nspname || '.' || c.relname || '.' || a.attname AS name
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND a.attnum > 0 AND NOT a.attisdropped
            AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' ORDER BY c.relname, a.attnum
    """,
}


class ServerFacts(Struct, frozen=True):
    """The state of the server. `position` is the end of its flushed WAL, on a standby of the replayed WAL."""

    address: str
    version: int
    version_text: str
    wal_level: str
    effective_wal_level: str
    """The wal_level of the WAL. Since PostgreSQL 19 slots raise it, and a standby has that of its primary."""
    in_recovery: bool
    encoding: str
    database: str
    role: str
    sender_timeout: float
    synchronous_standby_names: str
    position: int
    encryption: str
    """How the connection is encrypted, in words."""

    @property
    def major(self) -> int:
        return self.version // 10_000

    @property
    def copies_slots(self) -> bool:
        """Whether it can copy slots, as --fork does: since PostgreSQL 12."""
        return self.major >= 12

    @property
    def has_effective_wal_level(self) -> bool:
        """Whether logical slots raise the level of the WAL, and that of standbys: since PostgreSQL 19."""
        return self.major >= 19

    @property
    def raises_wal_level(self) -> bool:
        """Whether the first logical slot makes the WAL have what decoding needs."""
        return self.has_effective_wal_level and self.wal_level == "replica" and not self.in_recovery


class Slot(Struct, frozen=True):
    """A row of pg_replication_slots. Columns that the server's version lacks are None or False."""

    name: str
    plugin: str | None
    physical: bool
    database: str | None
    temporary: bool
    active_pid: int | None
    restart_lsn: int | None
    confirmed_flush_lsn: int | None
    two_phase: bool
    invalid: str | None
    """Why it is invalidated; None if it is not."""
    failover: bool
    synced: bool
    safe_wal_size: int | None
    """How many bytes of WAL can be written until max_slot_wal_keep_size invalidates it; None without a limit."""

    @property
    def confirmed(self) -> int:
        """The LSN up to which its consumer has everything; 0 if it has none yet."""
        return self.confirmed_flush_lsn or 0

    @classmethod
    def of(cls, row: Row) -> Slot:
        """Read it from a JSON object. Raises ServerError."""
        invalid = row.optional_text("invalidation_reason")
        if invalid is None and row.optional_text("wal_status") == "lost":
            invalid = "wal_removed"
        if invalid is None and row.optional_boolean("conflicting"):
            invalid = "conflict with recovery"
        return cls(
            name=_slot_name(row),
            plugin=row.optional_text("plugin"),
            physical=row.text("slot_type") == "physical",
            database=row.optional_text("database"),
            temporary=row.boolean("temporary"),
            active_pid=row.optional_integer("active_pid"),
            restart_lsn=row.optional_lsn("restart_lsn"),
            confirmed_flush_lsn=row.optional_lsn("confirmed_flush_lsn"),
            two_phase=bool(row.optional_boolean("two_phase")),
            invalid=invalid,
            failover=bool(row.optional_boolean("failover")),
            synced=bool(row.optional_boolean("synced")),
            safe_wal_size=row.optional_integer("safe_wal_size"),
        )


def _slot_name(row: Row) -> str:
    """The name of a slot. Commands to paste have it as it is, so it must be one that PostgreSQL allows."""
    name = row.text("slot_name")
    if SLOT_NAME.fullmatch(name) is None:
        raise rows.unreadable("the slots", f"{rows.shown(name)} is not the name of a slot")
    return name


class Publication(Struct, frozen=True):
    """A publication and its number of tables."""

    name: str
    tables: int


def server_facts(connection: Connection) -> ServerFacts:
    """The current state of the server."""
    row = rows.only(connection, "itself", _SERVER)
    pgconn = connection.pgconn
    host, port = (value.decode(errors="replace") for value in (pgconn.host, pgconn.port))
    return ServerFacts(
        address=f"{host}:{port}" if host and not host.startswith("/") else f"{host or 'a local socket'} (port {port})",
        version=row.integer("server_version_num"),
        version_text=row.text("server_version"),
        wal_level=row.text("wal_level"),
        effective_wal_level=row.text("effective_wal_level"),
        in_recovery=row.boolean("in_recovery"),
        encoding=row.text("server_encoding"),
        database=row.text("database"),
        role=row.text("role"),
        sender_timeout=max(0, row.integer("wal_sender_timeout")) / 1000,
        synchronous_standby_names=row.text("synchronous_standby_names"),
        position=row.optional_lsn("position") or 0,
        encryption=_encryption(pgconn.ssl_in_use, row.optional_text("tls"), local=not host or host.startswith("/")),
    )


def _encryption(tls: bool, described: str | None, *, local: bool) -> str:
    """libpq knows whether its connection uses TLS, the server which version; that of the pooler, if there is one."""
    if tls:
        return "TLS" if described is None else f"TLS ({described})"
    return "a local socket" if local else "not encrypted by TLS"


def position(connection: Connection) -> int:
    """The end of the server's flushed WAL, on a standby of the replayed WAL."""
    return rows.only(connection, "the server's position", _POSITION).optional_lsn("position") or 0


def clock(connection: Connection) -> int:
    """The server's clock in microseconds since 2000-01-01 UTC."""
    return rows.only(connection, "its clock", _CLOCK).integer("micros")


def waiting_for_wal(connection: Connection, slot: str) -> int | None:
    """The server's clock, as clock() returns it, if the walsender that reads the slot waits for WAL; else None."""
    row = rows.first(connection, f"slot {slot}", _WAITING, slot)
    return None if row is None else row.integer("micros")


def slots(connection: Connection) -> list[Slot]:
    """All slots of the server, by name."""
    return [Slot.of(row.object("slot")) for row in rows.rows(connection, "the slots", _SLOTS)]


def slot(connection: Connection, name: str) -> Slot | None:
    """The slot of this name, or None."""
    row = rows.first(connection, f"slot {name}", _SLOT, name)
    return None if row is None else Slot.of(row.object("slot"))


def publications(connection: Connection) -> list[Publication]:
    """All publications of the database, by name."""
    found = rows.rows(connection, "the publications", _PUBLICATIONS)
    return [Publication(row.text("pubname"), row.integer("tables")) for row in found]


def published_tables(connection: Connection, names: list[str]) -> list[tuple[str, str]]:
    """Schema and name of every table in these publications."""
    found = rows.rows(connection, "the published tables", _TABLES, names)
    return [(row.text("schemaname"), row.text("tablename")) for row in found]


def session_words(connection: Connection, pid: int) -> str:
    """The session with this process id, as far as the role may see it; not escaped."""
    row = rows.first(connection, "the session", _SESSION, pid)
    words: list[str | None] = [f"pid {pid}"]
    if row is not None:
        user = row.optional_text("usename")
        words += [user and f"user {user}", row.optional_text("application_name"), row.text("client")]
    return ", ".join(filter(None, words))


def blockers(connection: Connection, pid: int) -> list[str]:
    """Descriptions of the transactions that a session waits for, oldest first."""
    descriptions = [
        f"pid {row.integer('pid')}, user {row.optional_text('usename') or ''},"
        f" {row.optional_text('application_name') or 'no application name'}, {row.optional_text('state') or ''}:"
        f" {row.optional_text('query') or 'its query cannot be seen'},"
        f" running for {seconds_text(row.optional_integer('age') or 0)}"
        for row in rows.rows(connection, "the blocking transactions", _BLOCKERS, pid)
    ]
    descriptions += [
        f"the prepared transaction {row.text('gid')!r}, user {row.text('owner')},"
        f" prepared {seconds_text(row.integer('age'))} ago"
        for row in rows.rows(connection, "the blocking prepared transactions", _PREPARED_BLOCKERS, pid)
    ]
    return descriptions


def enums(connection: Connection) -> list[int]:
    """The OIDs of all enum types and the domains over them."""
    return [row.integer("oid") for row in rows.rows(connection, "the enum types", _ENUMS)]


def names(connection: Connection, named: Named) -> list[str]:
    """The names of all logical slots, or of the database's publications, tables or columns. Raises ServerError."""
    return [row.text("name") for row in rows.rows(connection, f"the list of {named}", _NAMES[named])]
