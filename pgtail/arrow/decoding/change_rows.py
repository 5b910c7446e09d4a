"""Gathers the rows of `changes` that events make; values that rows of a table or transaction share are made once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from pgtail.arrow.decoding.batches import (
    NO_TABLE,
    NOTHING_RARE,
    Batch,
    Named,
    RareColumns,
    Table,
    TableColumns,
    TransactionColumns,
)
from pgtail.arrow.decoding.slices import SliceRows
from pgtail.arrow.schemas import CHANGES
from pgtail.changes.context import Context
from pgtail.changes.events import LogicalMessage, Outcome, RowChange, Rows, TableTruncate, Transaction, not_in_identity
from pgtail.changes.relations import Relation
from pgtail.errors import Malformed
from pgtail.native import compiled
from pgtail.pgoutput.scalars import UNIX_EPOCH_OFFSET, lsn_text

_END_OF_BIGINT: Final = 1 << 63
FEW: Final = 4096
"""So many rows of slices before or after decoded ones are a batch of their own; fewer are joined with them."""


class ChangeRows:
    """Rows of `changes`; take_batches() returns those that are complete.

    `utf8`: the text of cells is in UTF-8, and no codec masks it. `schema` is CHANGES or WITH_CONTEXT. The columns in
    `left_out` are NULL.
    """

    def __init__(self, *, utf8: bool = False, schema: pa.Schema = CHANGES, left_out: Sequence[str] = ()) -> None:
        self.utf8 = utf8
        self._schema = schema
        self.batch = Batch()
        self._left_out = left_out
        self._slices: SliceRows | None = None
        self._before: list[int] = []
        """For each row of `batch`: how many rows of slices come before it."""
        self._ready: list[pa.RecordBatch] = []
        self._tables: dict[tuple[int, int], Table] = {}
        """By versions, and by id() of a codec: one version may be masked in two ways."""
        self.ordinal: int | None = None
        """The number of the current message in its transaction, if that is known."""
        self._of: tuple[Transaction, Context | None] | None = None
        self.common = TransactionColumns()
        """The columns that rows of the current transaction share."""

    def take_batches(self) -> list[pa.RecordBatch]:
        """The batches so far; removes them."""
        ready, self._ready = self._ready, []
        return ready

    def end_batch(self) -> None:
        """Complete a batch, if there are rows."""
        decoded, self.batch = self.batch, Batch()
        before, self._before = self._before, []
        rows = self._slices.take_rows(self._schema) if self._slices else None
        of_decoded = decoded.rows(self._schema, self._left_out) if decoded else None
        if rows is not None and before and len(rows) - before[-1] >= FEW:
            self._ready += [*_in_order(of_decoded, before, rows.slice(0, before[-1])), rows.slice(before[-1])]
        else:
            self._ready += _in_order(of_decoded, before, rows)

    def table(self, relation: Relation) -> Table:
        """The columns that a version of a table contributes to its rows."""
        key = relation.version, id(relation.beyond)
        if key not in self._tables:
            self._tables[key] = Table(relation, utf8=self.utf8)
        return self._tables[key]

    def is_wanted(self) -> bool:
        """Whether the row at the current place is wanted."""
        return True

    def add_rows(self, rows: Rows) -> None:
        """Add rows that were not decoded, of text in UTF-8."""
        if self._slices is None:
            module = compiled()
            assert module is not None
            self._slices = SliceRows(module.ColumnBuilder(), self.table, self._left_out)
        builder, special = self._slices.builder, 0
        if rows.transaction is not None:
            self.enter(rows.transaction)
            special = self._slices.number_of(self.common)
        builder.enter(rows.slice, rows.transaction, special, self.ordinal or 0)
        while (place := builder.add_rows()) is not None:
            self.ordinal = None if self.ordinal is None else builder.ordinal
            self.add_change(rows.change(place), builder.size)
        self.ordinal = None if self.ordinal is None else builder.ordinal
        if builder.full:
            self.end_batch()

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
        own = op, seq, None if lsn is None else lsn_text(lsn), _bigint(lsn, "lsn"), size, self.ordinal
        if self._slices and (len(self._slices) >= FEW or self._slices.builder.full):
            self.end_batch()
        self.batch.add_row(own + self.common + table + rare, size, old, new)
        self._before.append(len(self._slices or ()))
        if self.batch.full:
            self.end_batch()


def _in_order(decoded: pa.RecordBatch | None, before: list[int], others: pa.RecordBatch | None) -> list[pa.RecordBatch]:
    """One batch of these rows, if there are any: so many of the others come before each of the decoded ones."""
    batches = [rows for rows in (decoded, others) if rows is not None and len(rows)]
    if decoded is None or len(batches) < 2:
        return batches
    is_decoded = np.zeros(len(decoded) + len(batches[1]), np.bool_)
    is_decoded[np.add(before, np.arange(len(decoded)))] = True
    order = np.empty(len(is_decoded), np.int64)
    order[is_decoded], order[~is_decoded] = np.arange(len(decoded)), np.arange(len(decoded), len(order))
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().take(pa.array(order)).to_batches()
    return joined


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
    unix = time + UNIX_EPOCH_OFFSET
    if unix >= _END_OF_BIGINT:
        raise Malformed("a time beyond the end of Spark's timestamps", offset=0)
    return unix
