"""Everything a server reports about its slots: who reads them, their positions, what they retain, how fast that grows.

Views whose columns differ between versions are read as jsonb and by name, so one query fits all versions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres import rows
from pgtail.postgres.catalog import POSITION, Slot
from pgtail.postgres.connection import Connection
from pgtail.postgres.rows import Row
from pgtail.postgres.wal_holder import OpenTransaction, WalHolder, holder, open_transactions

_STATISTICS: Final = "LEFT JOIN pg_stat_replication_slots t ON t.slot_name = s.slot_name"
"""The view exists since PostgreSQL 14."""

_SLOTS: Final = """
SELECT to_jsonb(s) AS slot, to_jsonb({statistics}) AS statistics, jsonb_build_object(
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
) AS more
FROM pg_replication_slots s
CROSS JOIN (SELECT {position} AS lsn) here
LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid
{join}
ORDER BY s.slot_name
"""

_FIRST: Final = (
    "slot_name", "slot_type", "plugin", "database", "temporary", "active", "active_pid", "user", "application_name",
    "client", "connected_seconds", "restart_lsn", "confirmed_flush_lsn", "server_lsn", "lag_bytes", "lag_seconds",
    "wal_held_bytes", "wal_held", "safe_wal_size", "wal_status", "invalidation_reason", "inactive_since",
    "inactive_seconds", "xmin", "xmin_age", "catalog_xmin", "catalog_xmin_age", "two_phase", "failover", "synced",
)  # fmt: skip
"""The first keys of a slot, in this order; other columns of the server's version follow."""

_COUNTERS: Final = (
    "spill_txns", "spill_count", "spill_bytes", "stream_txns", "stream_count", "stream_bytes", "mem_exceeded_count",
    "total_txns", "total_bytes", "slotsync_skip_count", "slotsync_last_skip", "stats_reset",
)  # fmt: skip

_NUMBERS: Final = frozenset({
    "active_pid", "connected_seconds", "lag_bytes", "wal_held_bytes", "safe_wal_size", "inactive_seconds", "xmin",
    "xmin_age", "catalog_xmin", "catalog_xmin_age", "datoid", *_COUNTERS,
}) - {"slotsync_last_skip", "stats_reset"}  # fmt: skip
_TIMES: Final = frozenset({"inactive_since", "slotsync_last_skip", "stats_reset"})
_LSNS: Final = frozenset({"restart_lsn", "confirmed_flush_lsn", "server_lsn", "two_phase_at"})
"""Since PostgreSQL 19 the server prints them with leading zeros."""
_TEXTS: Final = frozenset({
    "slot_name", "slot_type", "plugin", "database", "user", "application_name", "client", "wal_status",
    "invalidation_reason",
})  # fmt: skip
_ALWAYS: Final = (
    "active_pid", "user", "application_name", "client", "connected_seconds", "restart_lsn", "confirmed_flush_lsn",
    "lag_bytes", "lag_seconds", "wal_held_bytes", "wal_held", "xmin", "xmin_age", "catalog_xmin", "catalog_xmin_age",
)  # fmt: skip
"""Keys that are always present, even if NULL."""
_UNEXPLAINED: Final = 16 << 20
"""Retained bytes of WAL that the consumer has confirmed, from which on their cause is asked for: a file of WAL."""

GROWTH: Final = "wal_growth_bytes_per_minute"
"""Fact of a slot: by how much `wal_held_bytes` grows; None for the first report of a slot."""
SAFE_SECONDS: Final = "safe_wal_seconds"
"""Fact of a slot: after how long `safe_wal_size` is used up at this rate; None if it is not, or nothing limits it."""
_WINDOW: Final = 60.0
"""Seconds over which the growth is averaged, where reports are not farther apart."""


class SlotReport(Struct, frozen=True):
    """One slot. `facts` has every value by name, as in JSON.

    Names are those of pg_replication_slots, pg_stat_replication_slots and pg_stat_activity; sizes are in bytes, times
    in seconds, ages in transactions. Columns that the server's version lacks are absent; NULL is None.
    """

    slot: Slot
    facts: dict[str, Any]
    holder: WalHolder | None = None
    """The holder of most of the WAL, if the consumer's lag does not explain it; facts["wal_held"] is the same."""
    samples: tuple[int, ...] = ()
    """The bytes of WAL that a watched slot has retained since a minute ago, the last ones now."""

    @property
    def unexplained(self) -> bool:
        """Whether the consumer of a logical slot has confirmed most of the WAL that the slot retains, and much."""
        confirmed = self.retained - max(0, self.facts["lag_bytes"] or 0)
        return not self.slot.physical and confirmed >= max(_UNEXPLAINED, self.retained / 2)

    @property
    def retained(self) -> int:
        """Bytes of WAL that the server retains for the slot; for an invalid one it retains nothing."""
        return 0 if self.slot.invalid is not None else max(0, self.facts["wal_held_bytes"] or 0)

    @property
    def hidden(self) -> bool:
        """Whether the slot is in use, but our role may not see by whom."""
        return self.facts["active_pid"] is not None and self.facts["client"] is None


def reports(connection: Connection, major: int) -> list[SlotReport]:
    """All slots of the server, by name; `major` is its version (16)."""
    counted = major >= 14
    query = _SLOTS.format(
        position=POSITION, statistics="t" if counted else "NULL::text", join=_STATISTICS if counted else ""
    )
    slot_reports = [
        SlotReport(Slot.of(row.object("slot")), _facts(*map(row.object, ("slot", "statistics", "more"))))
        for row in rows.rows(connection, "the slots", query)
    ]
    if not any(report.unexplained for report in slot_reports):
        return slot_reports
    transactions = open_transactions(connection)
    return [_explained(report, transactions) if report.unexplained else report for report in slot_reports]


def _explained(report: SlotReport, transactions: list[OpenTransaction]) -> SlotReport:
    active = report.slot.active_pid is not None
    held = holder(transactions, report.facts["catalog_xmin_age"] or 0, active=active)
    return replace(report, facts={**report.facts, "wal_held": held.facts()}, holder=held)


def report(connection: Connection, major: int, name: str) -> SlotReport | None:
    """The slot of this name, or None."""
    return next((one for one in reports(connection, major) if one.slot.name == name), None)


def _facts(row: Row, counts: Row, more: Row) -> dict[str, Any]:
    known: dict[str, Any] = dict.fromkeys(_ALWAYS)
    for part in (row, more, counts):
        known |= {name: _value(part, name) for name in part.names}
    if known["restart_lsn"] is None and known.get("safe_wal_size") is not None:
        known["safe_wal_size"] = None  # the server counts from 0/0; the slot retains nothing that could be lost
    first = [name for name in _FIRST if name in known]
    last = [name for name in _COUNTERS if name in counts.names]
    others = [name for name in row.names if name not in first]
    return {name: known[name] for name in [*first, *others, *last]}


def _value(row: Row, name: str) -> Any:
    """A value for the JSON output. In jsonb, transaction ids and times are strings, with the session's time zone."""
    if name in _NUMBERS:
        return row.optional_integer(name)
    if name in _TIMES:
        time = row.optional_time(name)
        return None if time is None else time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if name in _LSNS:
        lsn = row.optional_lsn(name)
        return None if lsn is None else lsn_text(lsn)
    if name == "lag_seconds":
        row.optional_seconds(name)
    return row.optional_text(name) if name in _TEXTS else row.any(name)


class SlotGrowth:
    """Compares each report with that of a minute before."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, int]]] = {}

    def added(self, reports: Iterable[SlotReport], now: float) -> list[SlotReport]:
        """The reports with facts and samples added, those that retain most first; `now` is in seconds of any clock."""
        found = [self._with_growth(report, now) for report in reports]
        there = {report.slot.name for report in found}
        self._samples = {name: samples for name, samples in self._samples.items() if name in there}
        return sorted(found, key=lambda report: -report.retained)

    def _with_growth(self, report: SlotReport, now: float) -> SlotReport:
        samples = self._samples.setdefault(report.slot.name, deque())
        samples.append((now, report.retained))
        while len(samples) > 2 and samples[1][0] <= now - _WINDOW:
            samples.popleft()
        (start, before), (end, held) = samples[0], samples[-1]
        growth = None if end <= start else round((held - before) * 60 / (end - start))
        safe = report.facts.get("safe_wal_size")
        left = None if safe is None or growth is None or growth <= 0 else max(0, safe) * 60 // growth
        facts = {**report.facts, GROWTH: growth, SAFE_SECONDS: left}
        return replace(report, facts=facts, samples=tuple([held for _, held in samples]))
