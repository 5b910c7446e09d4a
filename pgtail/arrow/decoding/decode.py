"""Decodes a segment to Arrow record batches of `changes`, with the same decoder and assembler as everywhere.

A row is made from its decoded message; values that rows of a table or transaction share are made once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    described,
)
from pgtail.arrow.decoding.fast_path import Runs, runs
from pgtail.arrow.segments.ranges import EVERYWHERE, Parts, within
from pgtail.arrow.segments.survey import TWO_PHASE, Survey
from pgtail.capture.contents import SegmentContents, read_contents
from pgtail.capture.format import HEAD
from pgtail.capture.segment import ByteFile, SegmentFrames, read_head
from pgtail.changes.assembler import Assembler
from pgtail.changes.events import (
    LogicalMessage,
    Note,
    Outcome,
    RowChange,
    SchemaChange,
    TableTruncate,
    Transaction,
    not_in_identity,
)
from pgtail.changes.filters import Filter, any_matches
from pgtail.changes.relations import Relation
from pgtail.errors import InputError, Malformed
from pgtail.pgoutput.decoder import XLOG_HEADER_SIZE, AnyFrame, Continued, Decoder
from pgtail.pgoutput.kinds import Role, messages
from pgtail.pgoutput.scalars import lsn_text, unix_micros
from pgtail.pgoutput.schema import Relation as RelationMessage
from pgtail.pgoutput.streaming import StreamStart
from pgtail.pgoutput.transaction import Message, Origin
from pgtail.storage import Location
from pgtail.values import Types

_COUNTED: Final = messages(Role.ROW, Role.TRUNCATE)
_BEGINS: Final = messages(Role.BEGIN)
FEW: Final = 4096
"""A batch of fewer rows is joined with the next ones."""
_END_OF_BIGINT: Final = 1 << 63


def survey(file: ByteFile, name: str) -> Survey:
    """Survey a closed segment. Raises InputError if it is not closed or damaged."""
    changes = SegmentChanges(file, name)
    for _ in changes:
        pass
    return changes.survey


def changes_of(segment: Location, path: str, *, parts: Parts, tables: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The changes of a closed segment, as SegmentChanges has them. It is not read if its contents have none of them."""
    if tables and has_none(segment, read_contents(segment), tables):
        return
    with segment.open() as file:
        yield from SegmentChanges(file, path, parts=parts, tables=tables)


def has_none(segment: Location, contents: SegmentContents | None, tables: Sequence[str]) -> bool:
    """Whether a segment certainly has no change of these tables, and no outcome of a prepared transaction.

    Its contents have no outcome of a transaction prepared in it, so its stream must be without prepared transactions.
    """
    if contents is None or contents.tables is None:
        return False
    changed = [table for table in contents.tables if table.inserts or table.updates or table.deletes or table.truncates]
    if any(any_matches(table.schema, table.table, tables) for table in changed):
        return False
    head = read_head(segment)
    return head.parameters.get(TWO_PHASE) == "off" and head.encoding == "utf-8"  # else names differ


def tables_in(segment: Location) -> set[tuple[str, str]] | None:
    """The schemas and names of the tables that a closed segment describes or has changes of; None if only its messages
    show that. Reads its beginning and its end. Raises InputError."""
    with segment.open() as file:
        frames, tables = SegmentFrames(file, str(segment)), set()
        try:
            decoder = Decoder(encoding=frames.read_head().encoding)
            for start, stop in frames:
                if frames.head.own:
                    break
                message, _, _ = decoder.frame(frames.buf, start, stop)
                if isinstance(message, RelationMessage):
                    tables.add((message.namespace, message.name))
        except InputError as error:
            raise frames.located(error) from None
    contents = read_contents(segment, frames.head.encoding)
    if contents is None or contents.tables is None:
        return None
    return tables | {(table.schema, table.table) for table in contents.tables}


class SegmentChanges:
    """Iterates over the changes of a closed segment, in order, in bounded memory; `name` is for errors.

    `parts` selects them by their places, `tables` by globs as --table takes them: logical messages are then left
    out as well, outcomes of prepared transactions are not. `survey` has the tables that were described so far;
    after the end it is complete, if nothing was left out.

    Raises InputError if the segment is not closed, is damaged, or has segments of streamed transactions, as
    no capture has.
    """

    def __init__(self, file: ByteFile, name: str, *, parts: Parts = EVERYWHERE, tables: Sequence[str] = ()) -> None:
        self.survey = Survey(name)
        self._frames = SegmentFrames(file, name, closed=True)
        self._parts = parts
        self._filter = Filter(tables=tables) if tables else None
        self._batch = Batch()
        self._tables: dict[int, Table] = {}
        self.described: dict[str, Relation] = {}
        """The versions of tables that were described so far, by their fingerprints."""
        self._own = False
        """Whether the repeated messages at the beginning were read."""
        self._ordinal = 0
        self._of: Transaction | None = None
        self._common = TransactionColumns()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for rows in _merge_small(self._batches()):
            self.survey.add_rows(rows)
            yield rows
        self.survey.finish(inside=self._assembler.open_transaction is not None)

    @property
    def encoding(self) -> str:
        """Python's name of the encoding of its text, once it is read. Raises InputError."""
        return self._frames.head.encoding

    @property
    def unfinished(self) -> int | None:
        """The position of the transaction in which the segment ends, once it was read; None if it ends in none."""
        transaction = self._assembler.open_transaction
        return None if transaction is None else transaction.lsn

    def _batches(self) -> Iterator[pa.RecordBatch]:
        frames = self._frames
        try:
            head = frames.read_head()
            self.survey = Survey.of(frames.name, head)
            decoder = Decoder(encoding=head.encoding)
            self._assembler = assembler = Assembler(Types(encoding=head.encoding))
            self._utf8 = head.encoding == "utf-8"
            fast = runs(assembler, self._table, self._shows) if self._utf8 and self._parts is EVERYWHERE else None
            for start, stop in frames:
                if frames.head.own and not self._own:
                    self._end_repeated()
                if fast is not None and self._own:
                    frames.next = start - HEAD.size
                    yield from self._scan_runs(fast)
                    if frames.next > start:
                        continue
                    frames.next = stop
                message, lsn, _ = decoder.frame(frames.buf, start, stop)
                self._take_message(message, lsn, stop - start - XLOG_HEADER_SIZE)
                if fast is not None and fast.rows and self._batch:
                    yield fast.batch()
                if self._batch.full:
                    yield self._gathered()
            if fast is not None and fast.rows:
                yield fast.batch()
        except InputError as error:
            raise frames.located(error) from None
        if self._batch:
            yield self._gathered()

    def _gathered(self) -> pa.RecordBatch:
        batch, self._batch = self._batch, Batch()
        return batch.rows()

    def _scan_runs(self, fast: Runs) -> Iterator[pa.RecordBatch]:
        """Decode the following rows by the fast path, as far as it can; only one of the two batches has rows."""
        frames, assembler = self._frames, self._assembler
        while (
            frames.next < len(frames.buf)
            and (assembler.started_transaction is not None or assembler.outside)
            and not assembler.decodes_next
        ):
            common = None
            if assembler.started_transaction is not None:
                self._enter(assembler.started_transaction)
                common = self._common
            if not fast.takes(common):
                yield fast.batch()
                fast.takes(common)
            frames.next = fast.scan(frames.buf, frames.next, self._ordinal)
            self._ordinal = fast.ordinal
            if fast.rows and self._batch:
                yield self._gathered()
            if not fast.full:
                return
            yield fast.batch()

    def _table(self, relation: Relation) -> Table:
        """The columns that a version of a table contributes to its rows."""
        if relation.version not in self._tables:
            self._tables[relation.version] = Table(relation, utf8=self._utf8)
        return self._tables[relation.version]

    def _shows(self, relation: Relation) -> bool:
        return self._filter is None or self._filter.table_passes(relation)

    def _end_repeated(self) -> None:
        """Handle the end of the repeated messages at the beginning."""
        self._own = True
        transaction, begun = self._frames.head.transaction, self._assembler.open_transaction
        if transaction is not None:
            changes, messages, self._ordinal = transaction
            self._assembler.feed(Continued(changes, messages), None)
        if self.survey.snapshot is not None and begun is not None:
            self.survey.commit_ts = _micros(begun.commit_ts or 0)

    def _count_message(self, message: AnyFrame) -> None:
        """Count the message in its transaction."""
        kind = type(message)
        if kind in _COUNTED:
            self._ordinal += 1
        elif kind in _BEGINS:
            self._ordinal = 0
        elif isinstance(message, Message):
            self._ordinal += message.transactional
        elif kind is Origin:
            self._of = None
        elif kind is StreamStart:
            raise InputError("it has streamed transactions, as no capture has: pgtail record --from makes one of it")

    def _take_message(self, message: AnyFrame, lsn: int | None, size: int) -> None:
        self._count_message(message)
        for event in self._assembler.feed(message, lsn):
            if isinstance(event, RowChange):
                self._add_change(event, size)
            elif isinstance(event, TableTruncate):
                self._add_truncate(event, size)
            elif isinstance(event, LogicalMessage):
                self._add_message(event, message, size)
            elif isinstance(event, Outcome):
                self._add_outcome(event, lsn, size)
            elif isinstance(event, SchemaChange):
                self._describe(event.now)
            elif isinstance(event, Note) and event.damage:
                raise InputError(event.text)

    def _describe(self, relation: Relation) -> None:
        row, transaction = described(relation), self._assembler.open_transaction
        if row["relation"] not in self.described:
            self.described[row["relation"]] = relation
            position = 0 if transaction is None else transaction.lsn
            self.survey.relations.append(row | {"position": position, "ordinal": self._ordinal + 1})

    # -- what a row is made of -----------------------------------------------------------------------------------

    def _add_change(self, change: RowChange, size: int) -> None:
        if not (self._enter(change.transaction) and self._shows(change.relation)):
            return
        table = self._table(change.relation)
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

    def _add_truncate(self, change: TableTruncate, size: int) -> None:
        if self._enter(change.transaction) and self._shows(change.relation):
            rare = RareColumns(cascade=change.cascade, restart_identity=change.restart_identity)
            columns = self._table(change.relation).without_identity
            self._add_row(change.op, change.seq, change.lsn, size, columns, rare)

    def _add_message(self, change: LogicalMessage, message: AnyFrame, size: int) -> None:
        if self._filter is not None:
            return
        rare = RareColumns(prefix=change.prefix, content=change.content, transactional=change.transactional)
        if change.transaction is not None:
            if self._enter(change.transaction):
                self._add_row(change.op, None, change.lsn, size, NO_TABLE, rare)
            return
        assert isinstance(message, Message)
        inside, self._ordinal = self._ordinal, 0
        if self._leave(TransactionColumns(position=_bigint(message.lsn, "lsn"))):
            self._add_row(change.op, None, change.lsn, size, NO_TABLE, rare)
        self._ordinal = inside

    def _add_outcome(self, outcome: Outcome, lsn: int | None, size: int) -> None:
        self._ordinal = 0
        position = _bigint(outcome.end_lsn, "end_lsn")
        common = TransactionColumns(xid=outcome.xid, gid=outcome.gid, position=position)
        if outcome.op == "commit_prepared":
            common = common._replace(commit_lsn=lsn_text(outcome.lsn), commit_ts=_micros(outcome.time))
        elif outcome.prepare_ts is not None:
            common = common._replace(prepare_ts=_micros(outcome.prepare_ts))
        if self._leave(common):
            self._add_row(outcome.op, None, lsn, size, NO_TABLE)

    # -- transactions --------------------------------------------------------------------------------------------

    def _enter(self, transaction: Transaction) -> bool:
        """Make the columns that the transaction's rows share. Returns whether the current row is wanted."""
        if transaction is not self._of:
            self._of, self._common = transaction, _common(transaction)
        return self._is_wanted()

    def _leave(self, common: TransactionColumns) -> bool:
        """As _enter(), for a row outside of any transaction."""
        self._of, self._common = None, common
        return self._is_wanted()

    def _is_wanted(self) -> bool:
        return within(self._parts, self._common.position or 0, self._ordinal)

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
        own = RowColumns(op, seq, None if lsn is None else lsn_text(lsn), number, size, self._ordinal)
        self._batch.add_row(own, self._common, table, rare, old, new)


def _merge_small(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches that follow each other: rows may have alternated between the two paths."""
    small: list[pa.RecordBatch] = []
    for batch in batches:
        small.append(batch)
        if sum(rows.num_rows for rows in small) >= FEW:
            yield from _joined(small)
            small.clear()
    if small:
        yield from _joined(small)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _common(transaction: Transaction) -> TransactionColumns:
    time = None if transaction.time is None else _micros(transaction.time)
    text = None if transaction.lsn is None else lsn_text(transaction.lsn)
    common = TransactionColumns(
        xid=transaction.xid,
        position=_bigint(transaction.lsn, "commit_lsn"),
        origin=transaction.origin,
        gid=transaction.gid,
        state=transaction.state,
    )
    if transaction.state is None:
        return common._replace(commit_lsn=text, commit_ts=time)
    return common._replace(prepare_lsn=text, prepare_ts=time)


def _bigint(lsn: int | None, field: str) -> int | None:
    """A log position, which Spark's bigint must be able to represent: no server has written more."""
    if lsn is not None and lsn >= _END_OF_BIGINT:
        raise Malformed(f"a log position of {lsn_text(lsn)}", offset=0, field=field)
    return lsn


def _micros(time: int) -> int:
    """A timestamp as Arrow and Spark count: microseconds since 1970."""
    micros = unix_micros(time)
    if micros >= _END_OF_BIGINT:
        raise Malformed("a time beyond the end of Spark's timestamps", offset=0)
    return micros
