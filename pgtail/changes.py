"""Floor 3, one message of a transaction -> its change, numbered; knows no order of messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from pgtail.relations import Relation
from pgtail.transaction import Change, LogicalMessage, Outcome, RowChange, TableTruncate, Transaction
from pgtail.wire.cells import TupleData
from pgtail.wire.rows import Delete, Insert, Truncate, Update
from pgtail.wire.transaction import Message
from pgtail.wire.two_phase import CommitPrepared, Prepare, RollbackPrepared

ChangeMessage: TypeAlias = Insert | Update | Delete | Truncate | Message


def row_change(
    op: str,
    transaction: Transaction,
    lsn: int | None,
    relation: Relation,
    old_kind: str,
    old: TupleData | None,
    new: TupleData | None,
) -> RowChange:
    """A row's change, with the next number of its transaction."""
    transaction.changes = seq = transaction.changes + 1
    return RowChange(op, transaction, seq if transaction.begun else None, lsn, relation, old_kind, old, new)


def table_truncate(transaction: Transaction, lsn: int | None, relation: Relation, options: int) -> TableTruncate:
    """One truncated table, with the next number of its transaction."""
    transaction.changes = seq = transaction.changes + 1
    shown = seq if transaction.begun else None
    return TableTruncate(transaction, shown, lsn, relation, bool(options & 1), bool(options & 2))


def logical_message(transaction: Transaction | None, message: Message, lsn: int | None) -> LogicalMessage:
    """A logical decoding message; it has no number, so that the numbers of rows do not depend on it."""
    if transaction is not None:
        transaction.messages += 1
    return LogicalMessage(transaction, lsn, message.prefix, message.content, message.transactional)


def changes_of(
    transaction: Transaction, message: ChangeMessage, lsn: int | None, relations: Sequence[Relation]
) -> Iterator[Change]:
    """The changes of a message whose tables, in its order, are `relations`."""
    if isinstance(message, Message):
        yield logical_message(transaction, message, lsn)
    elif isinstance(message, Truncate):
        for relation in relations:
            yield table_truncate(transaction, lsn, relation, message.options)
    elif isinstance(message, Insert):
        yield row_change("insert", transaction, lsn, relations[0], "", None, message.new)
    elif isinstance(message, Update):
        yield row_change("update", transaction, lsn, relations[0], message.old_kind, message.old, message.new)
    else:
        yield row_change("delete", transaction, lsn, relations[0], message.old_kind, message.old, None)


def unnumbered(transaction: Transaction, found: Iterable[Change], *, aborted: bool = False) -> Iterator[Change]:
    """Changes that were not committed, or not yet: they have no number, and use none up."""
    before = transaction.changes, transaction.messages
    for change in found:
        transaction.changes, transaction.messages = before
        change.aborted = aborted
        if not isinstance(change, LogicalMessage):
            change.seq = None
        yield change


def tables_of(message: ChangeMessage) -> tuple[int, ...]:
    """The OIDs of the tables that a message is about."""
    if isinstance(message, Message):
        return ()
    return message.relations if isinstance(message, Truncate) else (message.relation,)


def odd_tuple(change: Change) -> str | None:
    """What is to be said of a change that does not fit its Relation."""
    if isinstance(change, LogicalMessage):
        return None
    relation = change.relation
    if not relation.seen:
        return f"relation {relation.oid} was never described: its columns are shown as ?1, ?2, ..."
    if isinstance(change, TableTruncate):
        return None
    columns = len(relation.columns)
    for row in (change.new, change.old):
        if row is not None and len(row) > columns:
            return f"a row of {relation.qualified} has {len(row)} columns, its Relation {columns}"
        if row is not None and len(row) < columns:
            return f"a row of {relation.qualified} has only {len(row)} of {columns} columns"
    return None


def fill_prepared(transaction: Transaction, message: Prepare) -> None:
    """A transaction is prepared, or its stream is: what that tells of it."""
    transaction.xid, transaction.gid, transaction.state = message.xid, message.gid, "prepared"
    transaction.prepare_lsn, transaction.prepare_ts = message.prepare_lsn, message.prepare_time
    transaction.end_lsn = message.end_lsn


def outcome_of(message: CommitPrepared | RollbackPrepared) -> Outcome:
    """What became of a prepared transaction."""
    if isinstance(message, CommitPrepared):
        times = (message.commit_lsn, message.end_lsn, message.commit_time)
        return Outcome("commit_prepared", message.xid, message.gid, *times)
    times = (message.prepare_end_lsn, message.rollback_end_lsn, message.rollback_time)
    return Outcome("rollback_prepared", message.xid, message.gid, *times, prepare_ts=message.prepare_time)
