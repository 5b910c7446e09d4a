"""Gathers the rows of `changes` that events make; values that rows of a table or transaction share are made once."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from pgtail.arrow.decoding.batches import (
    NO_TABLE,
    NOTHING_RARE,
    Batch,
    Named,
    RareColumns,
    RowColumns,
    Table,
    TableColumns,
    TransactionColumns,
)
from pgtail.arrow.schemas import CHANGES
from pgtail.changes.context import Context
from pgtail.changes.events import LogicalMessage, Outcome, RowChange, TableTruncate, Transaction, not_in_identity
from pgtail.changes.relations import Relation
from pgtail.errors import Malformed
from pgtail.pgoutput.scalars import lsn_text, unix_micros

_END_OF_BIGINT: Final = 1 << 63


class ChangeRows:
    """Rows of `changes` so far. `utf8`: the text of cells is in UTF-8, and no codec masks it. `schema` is CHANGES or
    WITH_CONTEXT."""

    def __init__(self, *, utf8: bool = False, schema: pa.Schema = CHANGES) -> None:
        self.utf8 = utf8
        self.schema = schema
        self.batch = Batch()
        self._tables: dict[tuple[int, int], Table] = {}
        """By versions, and by id() of a codec: one version may be masked in two ways."""
        self.ordinal: int | None = None
        """The number of the current message in its transaction, if that is known."""
        self._of: tuple[Transaction, Context | None] | None = None
        self.common = TransactionColumns()
        """The columns that rows of the current transaction share."""

    def gathered(self) -> pa.RecordBatch:
        """The rows as a record batch; removes them."""
        batch, self.batch = self.batch, Batch()
        return batch.rows(self.schema)

    def table(self, relation: Relation) -> Table:
        """The columns that a version of a table contributes to its rows."""
        key = relation.version, id(relation.beyond)
        if key not in self._tables:
            self._tables[key] = Table(relation, utf8=self.utf8)
        return self._tables[key]

    def is_wanted(self) -> bool:
        """Whether the row at the current place is wanted."""
        return True

    def add_change(self, change: RowChange, size: int) -> None:
        """Add a change of `size` bytes."""
        if not self.enter(change.transaction):
            return
        table = self.table(change.relation)
        unchanged: list[str] = []
        undecoded: list[str] = []
        old = new = None
        if change.old is not None:
            old = table.texts(change.old, not_in_identity(change), unchanged, undecoded)
        if change.new is not None:
            new = table.texts(change.new, [], unchanged, undecoded)
        rare = RareColumns(unchanged or None, undecoded or None) if unchanged or undecoded else NOTHING_RARE
        columns = table.without_identity if change.op in ("insert", "snapshot") else table.columns
        self._add_row(change.op, change.seq, change.lsn, size, columns, rare, old, new)

    def add_truncate(self, change: TableTruncate, size: int) -> None:
        """Add one table of a TRUNCATE."""
        if self.enter(change.transaction):
            rare = RareColumns(cascade=change.cascade, restart_identity=change.restart_identity)
            columns = self.table(change.relation).without_identity
            self._add_row(change.op, change.seq, change.lsn, size, columns, rare)

    def add_message(self, change: LogicalMessage, size: int, position: int | None) -> None:
        """Add a logical message; outside of transactions its place is `position`."""
        rare = RareColumns(prefix=change.prefix, content=change.content, transactional=change.transactional)
        if change.transaction is not None:
            if self.enter(change.transaction):
                self._add_row(change.op, None, change.lsn, size, NO_TABLE, rare)
            return
        inside, self.ordinal = self.ordinal, 0
        if self._leave(TransactionColumns(position=_bigint(position, "lsn"))):
            self._add_row(change.op, None, change.lsn, size, NO_TABLE, rare)
        self.ordinal = inside

    def add_outcome(self, outcome: Outcome, lsn: int | None, size: int) -> None:
        """Add the outcome of a prepared transaction."""
        position = _bigint(outcome.end_lsn, "end_lsn")
        common = TransactionColumns(xid=outcome.xid, gid=outcome.gid, position=position)
        if outcome.op == "commit_prepared":
            common = common._replace(commit_lsn=lsn_text(outcome.lsn), commit_ts=micros(outcome.time))
        elif outcome.prepare_ts is not None:
            common = common._replace(prepare_ts=micros(outcome.prepare_ts))
        if self._leave(common):
            self._add_row(outcome.op, None, lsn, size, NO_TABLE)

    def enter(self, transaction: Transaction) -> bool:
        """Make the columns that the transaction's rows share. Returns whether the current row is wanted."""
        of = self._of
        if of is None or transaction is not of[0] or transaction.context is not of[1]:
            self._of, self.common = (transaction, transaction.context), _common(transaction)
        return self.is_wanted()

    def _leave(self, common: TransactionColumns) -> bool:
        """As enter(), for a row outside of any transaction."""
        self._of, self.common = None, common
        return self.is_wanted()

    def _add_row(
        self,
        op: str,
        seq: int | None,
        lsn: int | None,
        size: int,
        table: TableColumns,
        rare: RareColumns = NOTHING_RARE,
        old: Named | None = None,
        new: Named | None = None,
    ) -> None:
        number = _bigint(lsn, "lsn")
        own = RowColumns(op, seq, None if lsn is None else lsn_text(lsn), number, size, self.ordinal)
        self.batch.add_row(own, self.common, table, rare, old, new)


def _common(transaction: Transaction) -> TransactionColumns:
    time = None if transaction.time is None else micros(transaction.time)
    text = None if transaction.lsn is None else lsn_text(transaction.lsn)
    common = TransactionColumns(
        xid=transaction.xid,
        position=_bigint(transaction.lsn, "commit_lsn"),
        origin=transaction.origin,
        gid=transaction.gid,
        state=transaction.state,
        context=None if transaction.context is None else transaction.context.column,
    )
    if transaction.state is None:
        return common._replace(commit_lsn=text, commit_ts=time)
    return common._replace(prepare_lsn=text, prepare_ts=time)


def _bigint(lsn: int | None, field: str) -> int | None:
    """A log position, which Spark's bigint must be able to represent: no server has written more."""
    if lsn is not None and lsn >= _END_OF_BIGINT:
        raise Malformed(f"a log position of {lsn_text(lsn)}", offset=0, field=field)
    return lsn


def micros(time: int) -> int:
    """A timestamp as Arrow and Spark count: microseconds since 1970."""
    unix = unix_micros(time)
    if unix >= _END_OF_BIGINT:
        raise Malformed("a time beyond the end of Spark's timestamps", offset=0)
    return unix
