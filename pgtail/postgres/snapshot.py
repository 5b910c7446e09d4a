"""Sessions that read the database under the exported snapshot of a slot: its rows at the slot's consistent point."""

from __future__ import annotations

import time
from typing import Final, Self

from msgspec import Struct

from pgtail.errors import ServerError
from pgtail.humanize import counted
from pgtail.log import log_outcome
from pgtail.postgres import catalog, rows
from pgtail.postgres.connection import Connection, Connector
from pgtail.postgres.rows import Row

_PASSTHROUGH: Final = "surrogateescape"
_PAUSE: Final = 0.01
"""Seconds between two looks at the transactions that are committing."""
_PATIENCE: Final = 1.0
"""Seconds after which a message says what a copy waits for."""
_TRANSACTIONS: Final = """
SELECT concat_ws(':', xmin, greatest(xmin, txid_snapshot_xmax(now)), array_to_string(ARRAY(
    SELECT txid_snapshot_xip(now)
), ',')) AS has
FROM txid_current_snapshot() AS now CROSS JOIN LATERAL txid_snapshot_xmin(now) AS xmin
"""
"""The text of txid_snapshot. A slot's snapshot can have an xmin above its xmax, in a text that no server reads: if what
began last before its position was rolled back."""
_COMMITTING: Final = """
SELECT count(*) AS count FROM (SELECT %s::txid_snapshot AS has, txid_current_snapshot() AS now) AS snapshots
CROSS JOIN LATERAL (
    SELECT txid_snapshot_xip(now) UNION ALL SELECT generate_series(txid_snapshot_xmax(now), txid_snapshot_xmax(has) - 1)
) AS unfinished (xid)
WHERE txid_visible_in_snapshot(xid, has)
"""
"""The transactions that are not finished, and that a snapshot has. Those from xmax on are not in the list of xip."""


class SnapshotSession(Struct):
    """A session in a read-only transaction with an imported snapshot; a context that closes it.

    It keeps the snapshot after the session that exported it has ended, and loses it with its connection. `encoding` is
    that of the names and texts which the server sends. One thread at a time may use it.
    """

    connection: Connection
    encoding: str

    @classmethod
    def open(
        cls, connector: Connector, snapshot: str, *, encoding: str | None = None, connect_timeout: int | None = None
    ) -> Self:
        """Import an exported snapshot. Raises ServerError.

        `encoding` is the stream's (--encoding): with it the server sends text as it stores it, and UTF8 otherwise.
        """
        passthrough = encoding is not None
        connection = connector.importing(snapshot, passthrough=passthrough, connect_timeout=connect_timeout)
        return cls(connection, encoding or "utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def version(self) -> int:
        """The server's server_version_num."""
        return self.connection.pgconn.server_version

    def clock(self) -> int:
        """The server's clock now, in microseconds since 2000-01-01 UTC. Raises ServerError."""
        return catalog.clock(self.connection)

    def name(self, row: Row, column: str) -> str:
        """A name in the catalog. Bytes that are not valid in the encoding become lone surrogates."""
        return row.raw(column).decode(self.encoding, _PASSTHROUGH)

    def encoded(self, text: str) -> bytes:
        """A statement with such names as the server reads it. Raises ServerError."""
        try:
            return text.encode(self.encoding, _PASSTHROUGH)
        except UnicodeEncodeError as error:
            wrong = text[error.start : error.end]
            raise ServerError(f"{self.encoding} cannot encode {wrong!r}, which is part of a name") from None

    def close(self) -> None:
        self.connection.close()


def wait_for_commits(session: SnapshotSession, connector: Connector) -> None:
    """Wait until all transactions that a slot's exported snapshot has are finished; before that nothing may be read.

    The snapshot has a transaction from its commit record on, which the server writes before it marks the transaction as
    committed (RecordTransactionCommit(), src/backend/access/transam/xact.c). A query in between takes it for an aborted
    one, and marks the rows so, for everybody. Servers wait for it themselves since "Wait for transactions of an initial
    decoding snapshot to commit" (2026). Raises ServerError.
    """
    has = rows.only(session.connection, "the snapshot's transactions", _TRANSACTIONS).text("has")
    begun, noted = time.monotonic(), False
    with connector.ordinary() as connection:
        while count := rows.only(connection, "the unfinished transactions", _COMMITTING, has).integer("count"):
            if not noted and time.monotonic() - begun >= _PATIENCE:
                noted = True
                waits_for = counted(count, "transaction")
                log_outcome(
                    f"the copy waits for {waits_for} to finish COMMIT: a synchronous standby may not have answered"
                )
            time.sleep(_PAUSE)
