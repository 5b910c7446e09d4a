"""Prepared transactions and their outcomes."""

from __future__ import annotations

from pgtail.changes.events import Event, Note, Outcome, Transaction
from pgtail.pgoutput.two_phase import CommitPrepared, Prepare, RollbackPrepared


class PreparedTransactions:
    """The gids of prepared transactions that have no outcome yet."""

    def __init__(self) -> None:
        self._gids: set[str] = set()

    def prepare(self, transaction: Transaction, message: Prepare) -> None:
        """Copy the fields of Prepare or Stream Prepare to the transaction."""
        transaction.xid, transaction.gid, transaction.state = message.xid, message.gid, "prepared"
        transaction.prepare_lsn, transaction.prepare_ts = message.prepare_lsn, message.prepare_time
        transaction.end_lsn = message.end_lsn
        self._gids.add(message.gid)

    def outcome(self, message: CommitPrepared | RollbackPrepared, offset: int | None) -> list[Event]:
        """The outcome, after a note if its Prepare was not seen.

        That is never an error: Prepare may belong to an earlier session, and some server versions omit it.
        """
        if message.gid in self._gids:
            self._gids.discard(message.gid)
            return [_outcome(message)]
        text = f"{type(message).__name__} of {message.gid!r}, whose Prepare is not in this input"
        return [Note(text, offset), _outcome(message)]


def _outcome(message: CommitPrepared | RollbackPrepared) -> Outcome:
    if isinstance(message, CommitPrepared):
        times = (message.commit_lsn, message.end_lsn, message.commit_time)
        return Outcome("commit_prepared", message.xid, message.gid, *times)
    times = (message.prepare_end_lsn, message.rollback_end_lsn, message.rollback_time)
    return Outcome("rollback_prepared", message.xid, message.gid, *times, prepare_ts=message.prepare_time)
