"""The fast path: runs of ordinary rows go from bytes to output without being decoded.

The rows are processed by pgtail.native._rows or outputs/ndjson_rows.py; this module keeps the assembler up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from pgtail.changes.assembler import Assembler
from pgtail.changes.events import Transaction
from pgtail.changes.filters import Filter
from pgtail.changes.kept_rows import KeptRows
from pgtail.changes.relations import Relation
from pgtail.native import RowProcessor, compiled
from pgtail.outputs.base import Output
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.frames import LENGTHS

if TYPE_CHECKING:
    from pgtail.stats.collect import Statistics

Find: TypeAlias = Callable[[int], Relation | None]
"""The current tables, by OID."""
Shows: TypeAlias = Callable[[Relation, str], bool]
"""Whether rows of this table and operation are shown."""
MakeRun: TypeAlias = Callable[[Find, Shows], RowProcessor]


class FastPath:
    """Processes rows for one pipeline.

    After take(), `rows` and `messages` count what was processed (`messages` includes Begin and Commit). `passed` says
    whether a change of the current transaction was shown, `shown` counts the shown transactions that ended, `end_lsn`
    is the end LSN of the last transaction that ended, or 0.
    """

    def __init__(self, assembler: Assembler, output: Statistics, filter_: Filter | None, make: MakeRun) -> None:
        def shows(relation: Relation, op: str) -> bool:
            return filter_ is None or filter_.row_passes(relation, op)

        self._assembler = assembler
        self._output = output
        self._tables: Mapping[int, Relation] = assembler.tables
        self._version: object = None
        self._run = make(self._table, shows)
        self.passed = False
        self.shown = self.end_lsn = self.rows = self.messages = 0

    def _table(self, oid: int) -> Relation | None:
        return self._tables.get(oid)

    def take(
        self, buf: Buffer, pos: int, end: int, framing: int, *, passed: bool, limit: int | None, until: int | None
    ) -> int:
        """Process messages of buf[pos:end]; returns where the first one starts that must be decoded.

        `passed` says whether a change of the current transaction was already shown. Stops before the Commit that would
        end the `limit`th shown transaction, and before Commits of transactions that end at or after `until`.
        """
        self.passed, self.shown, self.end_lsn, self.rows, self.messages = passed, 0, 0, 0, 0
        run, assembler = self._run, self._assembler
        transaction = assembler.whole
        if transaction is None and not assembler.outside:
            return pos
        if transaction is not None and transaction.messages and not transaction.changes:
            return pos  # it is shown for its logical messages, which a run does not count
        self._use_tables(assembler.tables, assembler.relations.changes)
        if transaction is None:
            run.leave()
        else:
            parts = self._output.parts_of(transaction)
            run.enter(parts, transaction.commit_lsn, transaction.commit_ts, transaction.changes, passed)
        run.most, run.until = limit, until
        try:
            return run.take(buf, pos, end, framing)
        finally:
            self._update_assembler(transaction)

    def take_kept(
        self, transaction: Transaction, rows: KeptRows, tables: dict[int, Relation], pos: int, *, passed: bool
    ) -> int:
        """Process buffered rows of a streamed transaction; returns where the first declined row starts."""
        run = self._run
        self.passed, self.rows = passed, 0
        if not transaction.begun:
            return pos
        self._use_tables(tables, rows.tables)
        parts = self._output.parts_of(transaction)
        run.enter(parts, transaction.commit_lsn, transaction.commit_ts, transaction.changes, passed)
        pos = run.take(rows.frames, pos, len(rows.frames), LENGTHS, in_stream=True)
        transaction.changes, self.passed, self.rows = run.seq, run.passed, run.rows
        return pos

    def _use_tables(self, tables: Mapping[int, Relation], version: object) -> None:
        """Use these tables. `version` changes whenever they do."""
        self._tables = tables
        if self._version != version:
            self._version = version
            self._run.forget()

    def _update_assembler(self, transaction: Transaction | None) -> None:
        run = self._run
        if run.inside and (run.began or transaction is None):
            xid, commit_lsn, commit_ts = run.transaction
            transaction = Transaction(xid, commit_lsn=commit_lsn, commit_ts=commit_ts)
        if run.inside and transaction is not None:
            transaction.changes = run.seq
        self._assembler.resume_inside(transaction if run.inside else None)
        self.passed, self.shown, self.end_lsn = run.passed, run.shown, run.end_lsn
        self.rows, self.messages = run.rows, run.messages


def fast_path(assembler: Assembler, output: Output, filter_: Filter | None) -> FastPath | None:
    """The fast path, if there is one for this output and filter.

    It exists for JSON lines of rows and, if compiled, for statistics; filters may use only tables and operations.
    """
    if filter_ is not None and not filter_.by_table_and_op:
        return None
    from pgtail.stats.collect import Statistics  # slow to import, not needed for JSON

    fast = compiled()
    if isinstance(output, Statistics) and fast is not None:
        return FastPath(assembler, output, filter_, partial(_stats_run, fast, output, filter_ is not None))
    return None


def _stats_run(fast: ModuleType, stats: Statistics, filtered: bool, find: Find, shows: Shows) -> RowProcessor:
    def table(oid: int) -> Relation | None:
        relation = find(oid)
        return relation if relation is not None and relation.seen else None

    run: RowProcessor = fast.StatsRows(table, shows, stats, filtered)
    return run
