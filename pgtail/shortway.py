"""Floor 6, the short way: runs of ordinary rows from bytes to lines, and the assembler kept in step with them.

Knows no row: those are taken by outputs/ndjson_rows.py, or compiled by pgtail._rows.
"""

from __future__ import annotations

from pgtail.assembler import Assembler
from pgtail.filters import Filter
from pgtail.outputs.base import Output, RowRun
from pgtail.outputs.ndjson import Json
from pgtail.outputs.ndjson_rows import row_run
from pgtail.relations import Relation
from pgtail.transaction import Transaction
from pgtail.wire.cursor import Buffer


class ShortWay:
    """Takes rows for one pipeline. After each take(), `passed` says whether a row of the transaction under way was
    shown, `shown` how many transactions that were shown ended, `end_lsn` where the last one of all did, or 0."""

    def __init__(self, run: RowRun, assembler: Assembler, output: Json) -> None:
        self._assembler = assembler
        self._output = output
        self._run = run
        self._tables = assembler.relations.changes
        self.passed = False
        self.shown = self.end_lsn = 0

    def take(
        self, buf: Buffer, pos: int, end: int, framing: int, *, passed: bool, most: int | None, until: int | None
    ) -> int:
        """Take messages from buf[pos:end] on; returns where the first one starts that is to be decoded.

        `passed` says whether a change of the transaction under way was shown. The Commit that would end the `most`th
        transaction shown, and transactions that end at `until` or behind it, are not taken.
        """
        self.passed, self.shown, self.end_lsn = passed, 0, 0
        run, assembler = self._run, self._assembler
        transaction = assembler.whole
        if transaction is None and not assembler.outside:
            return pos
        if self._tables != assembler.relations.changes:
            self._tables = assembler.relations.changes
            run.forget()
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

    def _keep_in_step(self, transaction: Transaction | None) -> None:
        run = self._run
        if run.inside and (run.began or transaction is None):
            xid, commit_lsn, commit_ts = run.transaction
            transaction = Transaction(xid, commit_lsn=commit_lsn, commit_ts=commit_ts)
        if run.inside and transaction is not None:
            transaction.changes = run.seq
        self._assembler.go_on(transaction if run.inside else None)
        self.passed, self.shown, self.end_lsn = run.passed, run.shown, run.end_lsn


def short_way(assembler: Assembler, output: Output, filter_: Filter | None) -> ShortWay | None:
    """The short way where there is one: to JSON lines, where no more than tables and operations are filtered."""
    if not isinstance(output, Json) or (filter_ is not None and not filter_.by_table_and_op):
        return None

    def shows(relation: Relation, op: str) -> bool:
        return filter_ is None or filter_.row_passes(relation, op)

    run = row_run(output, assembler.tables.get, shows)
    return None if run is None else ShortWay(run, assembler, output)
