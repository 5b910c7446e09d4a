"""Finds what retains the restart_lsn of a logical slot although its consumer has confirmed later positions.

Decoding restarts where the oldest transaction began that was open at the confirmed position, of any database. The slot
learns of its end from a record of the running transactions, which the server writes at a checkpoint, and every 15
seconds if there is other WAL (src/backend/replication/logical/snapbuild.c, SnapBuildProcessRunningXacts).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import asdict

from pgtail.humanize import seconds_text
from pgtail.postgres import rows
from pgtail.postgres.connection import Connection
from pgtail.postgres.pgoutput_options import literal

_OPEN: Final = """
WITH seen AS (
    SELECT backend_xid AS xid, pid, NULL AS gid, usename::text AS role, application_name, datname::text AS database,
        state, extract(epoch FROM clock_timestamp() - xact_start)::bigint AS seconds
    FROM pg_stat_activity WHERE backend_xid IS NOT NULL
  UNION ALL
    SELECT transaction, NULL, gid, owner::text, NULL, database::text, 'prepared',
        extract(epoch FROM clock_timestamp() - prepared)::bigint
    FROM pg_prepared_xacts
), oldest AS (
    SELECT (txid_snapshot_xmin(s) % 4294967296)::text::xid AS xid FROM txid_current_snapshot() s
    WHERE pg_is_in_recovery() AND txid_snapshot_xmin(s) < txid_snapshot_xmax(s)
)
SELECT xid::text::bigint AS xid, age(xid) AS xid_age, pid, gid, role, application_name, database, state, seconds
FROM (SELECT * FROM seen UNION ALL SELECT xid, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM oldest) t
ORDER BY age(xid) DESC
"""
"""A standby shows no transaction of its primary; its snapshots have the oldest, if a later one has ended."""
KNOWN_AFTER: Final = 15
"""Seconds after which the slots that are read know that a transaction began, or ended."""


class OpenTransaction(Struct, frozen=True):
    """A transaction with an xid: a session's (`pid`), or a prepared one (`gid`); on a standby one of its primary.

    `xid_age` is in transactions; `seconds` have passed since it began or was prepared, None if the role may not see.
    """

    xid: int
    xid_age: int
    pid: int | None
    gid: str | None
    user: str | None
    application_name: str | None
    database: str | None
    state: str | None
    seconds: int | None

    def words(self) -> str:
        """Its description, not escaped."""
        if self.pid is None and self.gid is None:
            return f"transaction {self.xid} of the primary"
        which = f"pid {self.pid}" if self.gid is None else f"prepared transaction {literal(self.gid)}"
        named = [f"{name} {value}" for name in ("user", "database") if (value := getattr(self, name))]
        return ", ".join([which, *([self.application_name] if self.application_name else []), *named])


class WalHolder(Struct, frozen=True):
    """The event that moves a slot's restart_lsn; after a checkpoint or its reader, `transaction` is next."""

    until: Literal["transaction", "checkpoint", "reader"]
    transaction: OpenTransaction | None = None

    def words(self) -> str:
        """The words after "held"; not escaped."""
        first = {"checkpoint": "until the next checkpoint", "reader": "until its consumer reads again"}.get(self.until)
        transaction = self.transaction
        if transaction is None:
            return first or ""
        text = f"by {transaction.words()}" if first is None else f"{first}, then by {transaction.words()}"
        if transaction.seconds is None:
            hidden = " (since when is hidden from this role: it needs pg_read_all_stats)"
            return text if transaction.pid is None else text + hidden
        return f"{text}, open for {seconds_text(transaction.seconds)} ({transaction.state})"

    def facts(self) -> dict[str, Any]:
        """The same for JSON."""
        return {"until": self.until, **({} if self.transaction is None else asdict(self.transaction))}


def open_transactions(connection: Connection) -> list[OpenTransaction]:
    """Those that write, of all databases, oldest first. Raises ServerError."""
    return [
        OpenTransaction(
            xid=row.integer("xid"),
            xid_age=row.integer("xid_age"),
            pid=row.optional_integer("pid"),
            gid=row.optional_text("gid"),
            user=row.optional_text("role"),
            application_name=row.optional_text("application_name"),
            database=row.optional_text("database"),
            state=row.optional_text("state"),
            seconds=row.optional_integer("seconds"),
        )
        for row in rows.rows(connection, "the open transactions", _OPEN)
    ]


def holder(transactions: Sequence[OpenTransaction], catalog_xmin_age: int, *, active: bool) -> WalHolder:
    """The holder of WAL that the consumer of a slot with this catalog_xmin has confirmed; `active`: it is read now."""
    oldest = next(iter(transactions), None)
    if oldest is not None and (oldest.xid_age >= catalog_xmin_age or (oldest.seconds or 0) >= KNOWN_AFTER):
        return WalHolder("transaction", oldest)
    is_short = oldest is not None and oldest.seconds == 0
    return WalHolder("checkpoint" if active else "reader", None if is_short else oldest)
