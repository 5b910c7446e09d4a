"""The output of a pipeline as Arrow record batches: rows of `changes`."""

from __future__ import annotations

from pgtail.arrow.decoding.batches import Table, TableColumns
from pgtail.arrow.decoding.change_rows import ChangeRows
from pgtail.changes.events import (
    Event,
    LogicalMessage,
    Outcome,
    RowChange,
    Rows,
    SchemaChange,
    TableTruncate,
    Transaction,
)
from pgtail.changes.relations import Relation
from pgtail.outputs.base import Output
from pgtail.outputs.planned import PreparedBuffer
from pgtail.pgoutput.cells import TupleData


class ArrowOutput(ChangeRows, Output):
    """Gathers rows of `changes`, without `ordinal` and `bytes`, which only segments have.

    `relations` are the versions of tables that were processed, by their fingerprints. `committed` is for the changes of
    one table: the rows lack its names, and prepared transactions come when they are committed, rolled-back ones do not.
    Else their outcomes are rows.
    """

    def __init__(self, *, utf8: bool, committed: bool) -> None:
        of_table = set(TableColumns._fields) - {"relation"} if committed else set()
        super().__init__(utf8=utf8, left_out=["ordinal", "bytes", *of_table])
        self.relations: dict[str | None, Relation] = {}
        self.first: Relation | None = None
        """The first table that was described, also if no row of it came."""
        self._prepared = PreparedBuffer(self._event) if committed else None
        self.needs_outcomes = self.buffers_prepared = committed

    def table(self, relation: Relation) -> Table:
        table = super().table(relation)
        self.relations.setdefault(table.columns.relation, relation)
        return table

    def event(self, event: Event) -> None:
        if self._prepared is None:
            self._event(event)
        else:
            self._prepared.event(event)

    def _event(self, event: Event) -> None:
        if isinstance(event, RowChange):
            self.add_change(event, _size(event.old) + _size(event.new))
        elif isinstance(event, TableTruncate):
            self.add_truncate(event, 0)
        elif isinstance(event, LogicalMessage):
            self.add_message(event, len(event.content), event.lsn)
        elif isinstance(event, Outcome):
            self.add_outcome(event, None, 0)
        elif isinstance(event, SchemaChange):
            self.first = self.first or event.now

    @property
    def takes_slices(self) -> bool:
        return self.utf8 and self.mask is None

    def takes(self, transaction: Transaction) -> bool:
        return self._prepared is None or transaction.state is None

    def write_rows(self, rows: Rows) -> None:
        self.add_rows(rows)
        if self._prepared is not None:
            self._prepared.inside = rows.open is not None and rows.totals.started

    def finish(self) -> None:
        if self._prepared is not None:
            self._prepared.finish()
        self.end_batch()

    @property
    def settled(self) -> bool:
        return self._prepared is None or not self._prepared.waits


def _size(row: TupleData | None) -> int:
    """The bytes of a row, about."""
    return 0 if row is None else sum([len(cell) for cell in row if isinstance(cell, bytes)])
