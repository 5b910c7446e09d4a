"""Floor 5, what a server says of itself, its slots and its publications, asked on an ordinary connection.

Rows that have more columns in every version are asked for as jsonb and read by name: one query for all versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgtail.server.connection import Connection
from pgtail.wire.scalars import parse_lsn

_SERVER = """
SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('wal_level'),
    pg_is_in_recovery(), current_setting('server_encoding'), current_database(), current_user::text,
    (SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout'),
    current_setting('synchronous_standby_names'),
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END::text
"""
_POSITION = """
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END::text
"""
_SLOTS = "SELECT to_jsonb(s) FROM pg_replication_slots s ORDER BY slot_name"
_SLOT = "SELECT to_jsonb(s) FROM pg_replication_slots s WHERE slot_name = %s"
_PUBLICATIONS = """
SELECT pubname::text, (SELECT count(*) FROM pg_publication_tables t WHERE t.pubname = p.pubname)
FROM pg_publication p ORDER BY pubname
"""
_TABLES = """
SELECT DISTINCT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = ANY(%s)
"""
_HOLDER = """
SELECT coalesce(usename::text, ''), coalesce(application_name, ''),
    coalesce(client_hostname, host(client_addr), 'local'),
    coalesce(extract(epoch FROM now() - backend_start), 0)::bigint
FROM pg_stat_activity WHERE pid = %s
"""
_BLOCKERS = """
SELECT a.pid, coalesce(a.usename::text, ''), coalesce(a.application_name, ''), coalesce(a.state, ''),
    coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::bigint
FROM unnest(pg_blocking_pids(%s)) AS b JOIN pg_stat_activity a ON a.pid = b ORDER BY a.xact_start
"""
_PREPARED_BLOCKERS = """
SELECT p.gid, p.owner::text, extract(epoch FROM clock_timestamp() - p.prepared)::bigint
FROM pg_locks l JOIN pg_prepared_xacts p ON p.transaction = l.transactionid
WHERE l.pid = %s AND NOT l.granted AND l.locktype = 'transactionid'
"""
_ENUMS = """
WITH RECURSIVE enums AS (
    SELECT oid FROM pg_type WHERE typtype = 'e'
    UNION
    SELECT t.oid FROM pg_type t JOIN enums e ON t.typtype = 'd' AND t.typbasetype = e.oid
)
SELECT oid::bigint FROM enums
"""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server as it is now; `position` is where its WAL ends, flushed (on a standby: replayed)."""

    address: str
    version: int
    version_text: str
    wal_level: str
    in_recovery: bool
    encoding: str
    database: str
    role: str
    sender_timeout: float
    synchronous_standby_names: str
    position: int

    @property
    def major(self) -> int:
        return self.version // 10_000


@dataclass(frozen=True, slots=True)
class Slot:
    """A row of pg_replication_slots; what the version does not have is None or False."""

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
    """Why it cannot be read any more, or None."""
    failover: bool
    synced: bool

    @classmethod
    def of(cls, row: dict[str, Any]) -> Slot:
        invalid = row.get("invalidation_reason")
        if invalid is None and row.get("wal_status") == "lost":
            invalid = "wal_removed"
        if invalid is None and row.get("conflicting"):
            invalid = "conflict with recovery"
        return cls(
            name=row["slot_name"],
            plugin=row["plugin"],
            physical=row["slot_type"] == "physical",
            database=row["database"],
            temporary=row["temporary"],
            active_pid=row["active_pid"],
            restart_lsn=_lsn(row["restart_lsn"]),
            confirmed_flush_lsn=_lsn(row["confirmed_flush_lsn"]),
            two_phase=bool(row.get("two_phase")),
            invalid=invalid,
            failover=bool(row.get("failover")),
            synced=bool(row.get("synced")),
        )


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication of the database and how many tables it has."""

    name: str
    tables: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A session that is in the way; what the role may not see is empty. `age` is in seconds."""

    pid: int
    user: str
    application: str
    client: str
    age: int


def server_facts(connection: Connection) -> ServerFacts:
    """The server as it is now."""
    [(version, text, wal_level, in_recovery, encoding, database, role, timeout, names, lsn)] = connection.execute(
        _SERVER
    ).fetchall()
    host, port = connection.info.host, connection.info.port
    return ServerFacts(
        f"{host}:{port}" if host and not host.startswith("/") else f"{host or 'a local socket'} (port {port})",
        version,
        text,
        wal_level,
        in_recovery,
        encoding,
        database,
        role,
        timeout / 1000,
        names,
        _lsn(lsn) or 0,
    )


def position(connection: Connection) -> int:
    """Where the server's WAL ends, flushed; on a standby: replayed."""
    row = _row(connection, _POSITION)
    return 0 if row is None else _lsn(row[0]) or 0


def slots(connection: Connection) -> list[Slot]:
    """All slots of the server, by name."""
    return [Slot.of(row) for (row,) in connection.execute(_SLOTS).fetchall()]


def slot(connection: Connection, name: str) -> Slot | None:
    """One slot, or None."""
    row = _row(connection, _SLOT, name)
    return None if row is None else Slot.of(row[0])


def publications(connection: Connection) -> list[Publication]:
    """All publications of the database, by name."""
    return [Publication(*row) for row in connection.execute(_PUBLICATIONS).fetchall()]


def published_tables(connection: Connection, names: list[str]) -> list[tuple[str, str]]:
    """Schema and name of every table of these publications."""
    return [(schema, table) for schema, table in connection.execute(_TABLES, (names,)).fetchall()]


def holder(connection: Connection, pid: int) -> Holder | None:
    """Who a session is, or None if it is gone."""
    row = _row(connection, _HOLDER, pid)
    return None if row is None else Holder(pid, *row)


def blockers(connection: Connection, pid: int) -> list[str]:
    """The transactions for which a session waits, in words, the oldest first."""
    found = [
        f"pid {other}, user {user}, {application or 'no application name'}, {state}, running for {span_text(age)}"
        for other, user, application, state, age in connection.execute(_BLOCKERS, (pid,)).fetchall()
    ]
    found += [
        f"the prepared transaction {gid!r}, user {owner}, prepared {span_text(age)} ago"
        for gid, owner, age in connection.execute(_PREPARED_BLOCKERS, (pid,)).fetchall()
    ]
    return found


def enums(connection: Connection) -> list[int]:
    """The OIDs of all enum types and the domains over them."""
    return [oid for (oid,) in connection.execute(_ENUMS).fetchall()]


def _row(connection: Connection, query: str, *values: object) -> tuple[Any, ...] | None:
    return connection.execute(query.encode(), values or None).fetchone()


def _lsn(text: str | None) -> int | None:
    return None if text is None else parse_lsn(text)


def span_text(seconds: int) -> str:
    """A span of time as people say it."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
