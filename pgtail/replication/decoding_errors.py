"""Advice for a server whose own decoding fails at the same transaction every time.

The server neither sends nor decodes a transaction whose commit record starts before the requested position;
pg_replication_slot_advance() skips it in the same way (src/backend/replication/logical/decode.c).
"""

from __future__ import annotations

from typing import Final

from pgtail.errors import COMMAND, ServerError
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres.errors import Internal, Unreachable

MAX_REPEATS: Final = 5
"""Sessions that fail in the same way at the same position before pgtail stops reconnecting."""

_REPORT: Final = (
    "Check the server's log, and report the error with the version and the log to pgsql-bugs@lists.postgresql.org (a"
    " newer minor release may have a fix)."
)
_NEXT_COMMIT: Final = (
    "SELECT end_lsn FROM pg_get_wal_records_info('{lsn}', pg_current_wal_flush_lsn())"
    " WHERE resource_manager = 'Transaction' AND record_type LIKE 'COMMIT%' ORDER BY start_lsn LIMIT 1;"
)


def failed(error: Internal, delivered: int, commits_at: int | None, option: str, slot: str | None) -> ServerError:
    """The error for a server that failed to decode a transaction after the position `delivered`.

    `commits_at` is the commit position of the open transaction, if one had begun. `option` is the command with the
    option that selects the slot; `slot` is None for a temporary slot.
    """
    if commits_at is None:
        place = f"the first transaction that commits after {lsn_text(delivered)}"
    else:
        place = f"the transaction that commits at {lsn_text(commits_at)}"
    return ServerError(
        f"{error.reason}. The server's own decoding failed in {place}. Everything up to {lsn_text(delivered)} was"
        " written.",
        cure="\n".join(_cures(delivered, commits_at, option, slot)),
    )


class RepeatedFailure:
    """Counts consecutive sessions that failed in the same way without delivering anything new."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None
        self._count = 0

    def add(
        self, why: Unreachable, delivered: int, *, caught_up: bool, option: str, slot: str | None
    ) -> ServerError | None:
        """Count a failure; returns an error after MAX_REPEATS.

        A session that had `caught_up` with the server resets the count: the failure was not in decoding.
        """
        failure = (why.reason, delivered)
        self._count = 0 if caught_up else self._count + 1 if failure == self._last else 1
        self._last = failure
        if self._count < MAX_REPEATS:
            return None
        return ServerError(
            f"{why.reason}, {self._count} times in a row, before any transaction that commits after"
            f" {lsn_text(delivered)} arrived: pgtail does not connect again. The server may fail at the next"
            f" transaction. Everything up to {lsn_text(delivered)} was written.",
            cure="\n".join(_cures(delivered, None, option, slot)),
        )


def _cures(delivered: int, commits_at: int | None, option: str, slot: str | None) -> list[str]:
    """The cure, line by line. Steps that lose nothing come first."""
    if slot is None:
        return [_REPORT, "A new temporary slot starts after this transaction: run the command again."]
    before, next_lsn, after = [], lsn_text((commits_at or 0) + 1), []
    if commits_at is None:
        next_lsn = "END_LSN"
        before = [
            "Find where that transaction ends (extension pg_walinspect, since PostgreSQL 15; otherwise pg_waldump):"
            + COMMAND
            + _NEXT_COMMIT.replace("{lsn}", lsn_text(delivered)),
        ]
        after = ["If it fails again after that position, repeat this for the next transaction."]
    lost = (
        "The slot's consumer then loses that transaction and everything before it that is not confirmed; copy the rows"
        " from the tables. pgtail record then continues with --allow-gap."
    )
    return [
        _REPORT,
        *before,
        f"To read what follows without moving the slot:{COMMAND}{option} --startpos {next_lsn}",
        f"To skip it for good:{COMMAND}pgtail slot advance {slot} {next_lsn}",
        lost,
        *after,
    ]
