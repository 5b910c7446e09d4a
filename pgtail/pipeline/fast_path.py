"""The fast path: runs of ordinary rows go through the scanner to the output; this keeps the assembler up to date."""

from __future__ import annotations

from collections.abc import Mapping

from pgtail.changes.assembler import Assembler
from pgtail.changes.events import Transaction, UndecodedRows
from pgtail.changes.filters import Filter
from pgtail.changes.relations import Relation
from pgtail.native import Scanner
from pgtail.outputs.base import Output, ScannedOutput
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.frames import LENGTHS


class FastPath:
    """Processes rows for one pipeline.

    After take(), `rows` and `messages` count what was processed (`messages` includes Begin and Commit), `left_out` the
    rows that did not pass the filter. `started` says whether the start of the current transaction was written, `shown`
    counts the shown transactions that ended, `end_lsn` is the end LSN of the last transaction that ended, or 0.
    """

    def __init__(self, assembler: Assembler, output: ScannedOutput, filter_: Filter | None) -> None:
        self._assembler = assembler
        self._output = output
        self._filter = filter_
        self._tables: Mapping[int, Relation] = assembler.tables
        self._version: object = None
        self._scanner = output.scanner(self._table, filter_)
        self.started = False
        self.shown = self.end_lsn = self.rows = self.left_out = self.messages = 0

    @property
    def scanner(self) -> Scanner | None:
        """The scanner; None if the output has none."""
        return self._scanner

    def _table(self, oid: int) -> Relation | None:
        relation = self._tables.get(oid)
        return relation if relation is not None and relation.seen else None

    def take(
        self, buf: Buffer, pos: int, end: int, framing: int, *, started: bool, limit: int | None, until: int | None
    ) -> int:
        """Process messages of buf[pos:end]; returns where the first one starts that must be decoded.

        `started` says whether the start of the current transaction was written. Stops before the Commit that would end
        the `limit`th shown transaction, and before Commits of transactions that end at or after `until`.
        """
        self.started, self.shown, self.end_lsn, self.rows, self.left_out, self.messages = started, 0, 0, 0, 0, 0
        scanner, assembler = self._scanner, self._assembler
        assert scanner is not None
        transaction = assembler.whole
        if transaction is None and not assembler.outside:
            return pos
        if transaction is not None:
            if transaction.messages and not transaction.changes:
                return pos  # it is shown for its logical messages, which a run does not count
            if not self._output.takes(transaction):
                return pos
        self._use_tables(assembler.tables, assembler.relations.changes)
        if transaction is None:
            scanner.leave()
        else:
            scanner.enter(transaction, started)
        scanner.most, scanner.until = limit, until
        self._output.before_run(scanner)
        try:
            return scanner.scan(buf, pos, end, framing)
        finally:
            inside = assembler.resume_after(scanner)
            self.started, self.shown, self.end_lsn = scanner.started, scanner.shown, scanner.resume_at
            self.messages = scanner.messages
            self._after_run(scanner, inside)

    def take_buffered(self, rows: UndecodedRows, *, started: bool) -> None:
        """Process rows of a streamed transaction up to the first declined one."""
        scanner, transaction = self._scanner, rows.transaction
        assert scanner is not None
        self.started, self.rows, self.left_out = started, 0, 0
        if not transaction.begun or not self._output.takes(transaction):
            return
        self._use_tables(rows.tables, rows.versions)
        scanner.enter(transaction, started)
        self._output.before_run(scanner)
        try:
            rows.pos = scanner.scan(rows.frames, rows.pos, len(rows.frames), LENGTHS, in_stream=True)
        finally:
            transaction.changes, self.started = scanner.seq, scanner.started
            self._after_run(scanner, transaction)

    def _use_tables(self, tables: Mapping[int, Relation], version: object) -> None:
        """Use these tables. `version` changes whenever they do."""
        self._tables = tables
        if self._version != version:
            self._version = version
            if self._scanner is not None:
                self._scanner.forget()

    def _after_run(self, scanner: Scanner, transaction: Transaction | None) -> None:
        self.rows, self.left_out = scanner.rows, scanner.left_out
        self._output.after_run(scanner, transaction if scanner.started else None)
        if self._filter is not None:
            self._filter.not_sent += scanner.not_sent


def fast_path(assembler: Assembler, output: Output, filter_: Filter | None) -> FastPath | None:
    """The fast path, if there is one for this output and filter."""
    if not isinstance(output, ScannedOutput) or (filter_ is not None and filter_.needs_events):
        return None
    fast = FastPath(assembler, output, filter_)
    return fast if fast.scanner is not None else None
