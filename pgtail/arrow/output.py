"""The output of a pipeline as Arrow record batches: rows of `changes`."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pgtail.arrow.decoding.batches import Table, TableColumns
from pgtail.arrow.decoding.change_rows import ChangeRows
from pgtail.arrow.decoding.fast_path import ScannedRows
from pgtail.changes.events import (
    Ended,
    Event,
    LogicalMessage,
    Outcome,
    RowChange,
    SchemaChange,
    Started,
    TableTruncate,
    Transaction,
)
from pgtail.changes.filters import Filter
from pgtail.changes.relations import Relation
from pgtail.native import Scanner, Written, compiled
from pgtail.outputs.base import Mask, Output
from pgtail.outputs.planned import PreparedBuffer
from pgtail.pgoutput.cells import TupleData


class ArrowOutput(ChangeRows, Output):
    """Gathers rows of `changes`; take_batches() returns those that are complete.

    `relations` are the versions of tables that were processed, by their fingerprints. `committed` is for the changes of
    one table: rows from the scanner lack its names, and prepared transactions come when they are committed, rolled-back
    ones do not. Else their outcomes are rows.
    """

    def __init__(self, *, utf8: bool, committed: bool) -> None:
        super().__init__(utf8=utf8)
        self.relations: dict[str | None, Relation] = {}
        self.first: Relation | None = None
        """The first table that was described, also if no row of it came."""
        self._ready: list[pa.RecordBatch] = []
        self._scanned: ScannedRows | None = None
        self._prepared = PreparedBuffer(self._event) if committed else None
        self.needs_outcomes = self.buffers_prepared = committed

    def take_batches(self) -> list[pa.RecordBatch]:
        """The batches so far; removes them."""
        ready, self._ready = self._ready, []
        return ready

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
            self._take_scanned()
            self.add_change(event, _size(event.old) + _size(event.new))
        elif isinstance(event, TableTruncate):
            self._take_scanned()
            self.add_truncate(event, 0)
        elif isinstance(event, LogicalMessage):
            self._take_scanned()
            self.add_message(event, len(event.content), event.lsn)
        elif isinstance(event, Outcome):
            self._take_scanned()
            self.add_outcome(event, None, 0)
        elif isinstance(event, SchemaChange):
            self.first = self.first or event.now
        elif isinstance(event, Started | Ended) and event.transaction.snapshot:
            self._take_scanned()  # whose rows are all of snapshots, or none is
        if self.batch.full:
            self._ready.append(self.gathered())

    def _take_scanned(self) -> None:
        """The scanner's rows come before those of events."""
        if self._scanned is not None and self._scanned.rows:
            self._ready.append(self._scanned.batch())

    def finish(self) -> None:
        if self._prepared is not None:
            self._prepared.finish()
        self._take_scanned()
        if self.batch:
            self._ready.append(self.gathered())

    @property
    def settled(self) -> bool:
        return self._prepared is None or not self._prepared.waits

    def scanner(
        self, find: Callable[[int], Relation | None], filter_: Filter | None, mask: Mask | None = None
    ) -> Scanner | None:
        fast = compiled()
        if fast is None or not self.utf8 or mask is not None:
            return None
        named = TableColumns._fields if self._prepared is None else ("relation",)
        self._scanned = ScannedRows(fast.ColumnScanner, find, self.table, lambda relation: True, filter_, named)
        return self._scanned.scanner

    def takes(self, transaction: Transaction) -> bool:
        return transaction.state is None and transaction.origin is None and transaction.gid is None

    def before_run(self) -> None:
        if self.batch:
            self._ready.append(self.gathered())

    def after_run(self, written: Written | None, transaction: Transaction | None) -> None:
        if self._prepared is not None:
            self._prepared.inside = transaction is not None
        if self._scanned is not None and self._scanned.full:
            self._take_scanned()


def _size(row: TupleData | None) -> int:
    """The bytes of a row, about."""
    return 0 if row is None else sum([len(cell) for cell in row if isinstance(cell, bytes)])
