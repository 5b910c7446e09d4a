"""Floor 5, all that a server says of its slots: who reads them, where they stand, what they hold back; changes nothing.

Views that have more columns in every version are asked for as jsonb and read by name: one query for all versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pgtail.server.connection import Connection
from pgtail.server.facts import Slot

_STATISTICS: Final = "LEFT JOIN pg_stat_replication_slots t ON t.slot_name = s.slot_name"
"""The view exists from 14 on."""

_SLOTS: Final = """
SELECT to_jsonb(s), to_jsonb({statistics}), jsonb_build_object(
    'server_lsn', here.lsn,
    'lag_bytes', pg_wal_lsn_diff(here.lsn, s.confirmed_flush_lsn)::bigint,
    'wal_held_bytes', pg_wal_lsn_diff(here.lsn, s.restart_lsn)::bigint,
    'xmin_age', age(s.xmin),
    'catalog_xmin_age', age(s.catalog_xmin),
    'inactive_seconds', extract(epoch FROM now() - (to_jsonb(s) ->> 'inactive_since')::timestamptz)::bigint,
    'lag_seconds', extract(epoch FROM coalesce(r.flush_lag, r.replay_lag)),
    'user', a.usename,
    'application_name', a.application_name,
    'client', coalesce(a.client_hostname, host(a.client_addr), CASE WHEN a.backend_type IS NOT NULL THEN 'local' END),
    'connected_seconds', extract(epoch FROM now() - a.backend_start)::bigint
)
FROM pg_replication_slots s
CROSS JOIN (
    SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END AS lsn
) here
LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid
{join}
ORDER BY s.slot_name
"""

_FIRST: Final = (
    "slot_name", "slot_type", "plugin", "database", "temporary", "active", "active_pid", "user", "application_name",
    "client", "connected_seconds", "restart_lsn", "confirmed_flush_lsn", "server_lsn", "lag_bytes", "lag_seconds",
    "wal_held_bytes", "safe_wal_size", "wal_status", "invalidation_reason", "inactive_since", "inactive_seconds",
    "xmin", "xmin_age", "catalog_xmin", "catalog_xmin_age", "two_phase", "failover", "synced",
)  # fmt: skip
"""The keys of a slot that come first, in this order; what the server's version has besides follows."""

_COUNTERS: Final = (
    "spill_txns", "spill_count", "spill_bytes", "stream_txns", "stream_count", "stream_bytes", "total_txns",
    "total_bytes", "stats_reset",
)  # fmt: skip

_NUMBERS: Final = frozenset({"xmin", "catalog_xmin", "datoid"})
_TIMES: Final = frozenset({"inactive_since", "stats_reset"})


@dataclass(frozen=True, slots=True)
class SlotReport:
    """One slot: `slot` is what pgtail knows it by, `facts` every value by its name, as JSON has it.

    Names are those of pg_replication_slots, pg_stat_replication_slots and pg_stat_activity; sizes are in bytes, times
    in seconds, ages in transactions. What the version does not have is absent; None is what the server leaves open.
    """

    slot: Slot
    facts: dict[str, Any]

    @property
    def held(self) -> int:
        """Bytes of WAL that the server keeps because of the slot."""
        return max(0, self.facts["wal_held_bytes"] or 0)

    @property
    def hidden(self) -> bool:
        """Whether somebody reads it of whom our role may not see from where."""
        return self.facts["active_pid"] is not None and self.facts["client"] is None


def reports(connection: Connection, major: int) -> list[SlotReport]:
    """All slots of the server, by name; `major` is its version (16)."""
    counted = major >= 14
    query = _SLOTS.format(statistics="t" if counted else "NULL::text", join=_STATISTICS if counted else "")
    return [SlotReport(Slot.of(row), _facts(row, counts or {}, more)) for row, counts, more in _rows(connection, query)]


def report(connection: Connection, major: int, name: str) -> SlotReport | None:
    """One slot, or None."""
    return next((one for one in reports(connection, major) if one.slot.name == name), None)


def _rows(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query.encode()).fetchall()


def _facts(row: dict[str, Any], counts: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    known = {name: _value(name, value) for name, value in (row | more | counts).items()}
    if known["restart_lsn"] is None and known.get("safe_wal_size") is not None:
        known["safe_wal_size"] = None  # the server counts from 0/0; it holds nothing that could be lost
    first = [name for name in _FIRST if name in known]
    last = [name for name in _COUNTERS if name in counts]
    others = [name for name in row if name not in first]
    return {name: known[name] for name in [*first, *others, *last]}


def _value(name: str, value: Any) -> Any:
    """A value as JSON shall have it: jsonb holds transaction ids and times as strings, times in the session's zone."""
    if value is None:
        return None
    if name in _NUMBERS:
        return int(value)
    if name in _TIMES:
        return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value
