"""Floor 6, the short way: runs of ordinary rows from bytes to lines, and the assembler kept in step with them.

Knows no row: those are taken by outputs/ndjson_rows.py, or compiled by pgtail._rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from pgtail.assembler import Assembler
from pgtail.compiled import compiled
from pgtail.filters import Filter
from pgtail.keptrows import KeptRows
from pgtail.outputs.base import Output, RowRun
from pgtail.outputs.ndjson import Json
from pgtail.outputs.ndjson_rows import row_run
from pgtail.relations import Relation
from pgtail.transaction import Transaction
from pgtail.wire.cursor import Buffer
from pgtail.wire.decoder import LENGTHS

if TYPE_CHECKING:
    from pgtail.stats.gather import Statistics

Find: TypeAlias = Callable[[int], Relation | None]
"""The tables in force, by OID."""
Shows: TypeAlias = Callable[[Relation, str], bool]
"""Which operations on which tables are shown."""
Ahead: TypeAlias = Callable[[int, int, bytes], None]
"""pgtail._rows.Rows.ahead: takes rows of frames and writes them to a pipe."""
MakeRun: TypeAlias = Callable[[Find, Shows], RowRun]


class ShortWay:
    """Takes rows for one pipeline.

    After each take(): `rows` says how many were taken, `passed` whether one of the transaction under way was shown,
    `shown` how many transactions that were shown ended, `end_lsn` where the last one of all did, or 0.
    """

    def __init__(self, assembler: Assembler, output: Json | Statistics, filter_: Filter | None, make: MakeRun) -> None:
        def shows(relation: Relation, op: str) -> bool:
            return filter_ is None or filter_.row_passes(relation, op)

        self._assembler = assembler
        self._output = output
        self._tables: Mapping[int, Relation] = assembler.tables
        self._version: object = None
        self._run = make(self._table, shows)
        self.passed = False
        self.shown = self.end_lsn = self.rows = 0

    def _table(self, oid: int) -> Relation | None:
        return self._tables.get(oid)

    def take(
        self, buf: Buffer, pos: int, end: int, framing: int, *, passed: bool, most: int | None, until: int | None
    ) -> int:
        """Take messages from buf[pos:end] on; returns where the first one starts that is to be decoded.

        `passed` says whether a change of the transaction under way was shown. The Commit that would end the `most`th
        transaction shown, and transactions that end at `until` or behind it, are not taken.
        """
        self.passed, self.shown, self.end_lsn, self.rows = passed, 0, 0, 0
        run, assembler = self._run, self._assembler
        transaction = assembler.whole
        if transaction is None and not assembler.outside:
            return pos
        if transaction is not None and transaction.messages and not transaction.changes:
            return pos  # it is shown for its messages, of which a run knows nothing
        self._look_at(assembler.tables, assembler.relations.changes)
        if transaction is None:
            run.leave()
        else:
            parts = self._output.parts_of(transaction)
            run.enter(parts, transaction.commit_lsn, transaction.commit_ts, transaction.changes, passed)
        run.most, run.until = most, until
        try:
            return run.take(buf, pos, end, framing)
        finally:
            self._keep_in_step(transaction)

    def ahead(self, write: Callable[[bytes], object], until: int | None) -> Ahead | None:
        """What takes rows ahead of take() and writes them, outside of a transaction; None where it is not compiled, or
        where they go elsewhere than to `write`."""
        run, assembler = self._run, self._assembler
        ahead: Ahead | None = getattr(run, "ahead", None)
        written = isinstance(self._output, Json) and self._output.write == write
        if not written or assembler.whole is not None or not assembler.outside:
            return None
        self._look_at(assembler.tables, assembler.relations.changes)
        run.until = until
        return ahead

    def take_kept(
        self, transaction: Transaction, rows: KeptRows, tables: dict[int, Relation], pos: int, *, passed: bool
    ) -> int:
        """Take rows that waited for the end of their transaction, from `pos` on."""
        run = self._run
        self.passed, self.rows = passed, 0
        if not transaction.begun:
            return pos
        self._look_at(tables, rows.tables)
        parts = self._output.parts_of(transaction)
        run.enter(parts, transaction.commit_lsn, transaction.commit_ts, transaction.changes, passed)
        pos = run.take(rows.frames, pos, len(rows.frames), LENGTHS, in_stream=True)
        transaction.changes, self.passed, self.rows = run.seq, run.passed, run.rows
        return pos

    def _look_at(self, tables: Mapping[int, Relation], version: object) -> None:
        """These tables are in force; `version` is equal where they are."""
        self._tables = tables
        if self._version != version:
            self._version = version
            self._run.forget()

    def _keep_in_step(self, transaction: Transaction | None) -> None:
        run = self._run
        if run.inside and (run.began or transaction is None):
            xid, commit_lsn, commit_ts = run.transaction
            transaction = Transaction(xid, commit_lsn=commit_lsn, commit_ts=commit_ts)
        if run.inside and transaction is not None:
            transaction.changes = run.seq
        self._assembler.go_on(transaction if run.inside else None)
        self.passed, self.shown, self.end_lsn, self.rows = run.passed, run.shown, run.end_lsn, run.rows


def short_way(assembler: Assembler, output: Output, filter_: Filter | None) -> ShortWay | None:
    """The short way where there is one: to JSON lines of rows alone, filtered by no more than table and operation.

    And where it is compiled, to statistics of them.
    """
    if filter_ is not None and not filter_.by_table_and_op:
        return None
    if isinstance(output, Json) and not output.options.transactions:
        return ShortWay(assembler, output, filter_, partial(row_run, output))
    from pgtail.stats.gather import Statistics  # only where it may be one: it takes a while

    fast = compiled()
    if isinstance(output, Statistics) and fast is not None:
        return ShortWay(assembler, output, filter_, partial(_tally, fast, output, filter_ is not None))
    return None


def _tally(fast: ModuleType, stats: Statistics, filtered: bool, find: Find, shows: Shows) -> RowRun:
    def table(oid: int) -> Relation | None:
        relation = find(oid)
        return relation if relation is not None and relation.seen else None

    run: RowRun = fast.Tally(table, shows, stats, filtered)
    return run
