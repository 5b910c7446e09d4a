"""One segment's bytes -> Arrow record batches of `changes`: the same decoder and assembler as everywhere.

Knows no Spark. A row is made from its decoded message; what rows of a table or a transaction share is made once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from pgtail.capture.format import HEAD
from pgtail.capture.segment import MARK, ByteFile, SegmentFrames
from pgtail.changes.assembler import Assembler
from pgtail.changes.events import LogicalMessage, Note, Outcome, RowChange, TableTruncate, Transaction, not_in_identity
from pgtail.changes.filters import Filter
from pgtail.changes.relations import Relation
from pgtail.errors import InputError, Malformed
from pgtail.pgoutput.cells import TupleData
from pgtail.pgoutput.decoder import XLOG_HEADER_SIZE, AnyFrame, Continued, Decoder
from pgtail.pgoutput.kinds import Role, messages
from pgtail.pgoutput.scalars import lsn_text, unix_micros
from pgtail.pgoutput.streaming import StreamStart
from pgtail.pgoutput.transaction import Message, Origin
from pgtail.spark.decoding.batches import Batch, Maps, RareColumns, RowColumns, TableColumns, TransactionColumns
from pgtail.spark.decoding.fast_path import Runs, runs
from pgtail.spark.decoding.tables import Table, Tables
from pgtail.spark.segments.ranges import EVERYWHERE, Parts, within
from pgtail.spark.segments.survey import Surveyor
from pgtail.values import Types

_COUNTED: Final = messages(Role.ROW, Role.TRUNCATE)
_BEGINS: Final = messages(Role.BEGIN)
_DAY: Final = 86_400_000_000
_FEW: Final = 4096
"""A batch of fewer rows is joined with the next ones."""
_END_OF_BIGINT: Final = 1 << 63
_NO_TABLE: Final = Tables.NONE


def changes_of(
    file: ByteFile,
    name: str,
    *,
    parts: Parts = EVERYWHERE,
    tables: Sequence[str] = (),
    surveyor: Surveyor | None = None,
) -> Iterator[pa.RecordBatch]:
    """The changes of a closed segment, in order, in bounded memory; `name` is for errors.

    `parts` says which of them by their places, `tables` by globs as --table takes them: logical messages are then
    left out as well, outcomes of prepared transactions are not. A `surveyor` gets the messages that it
    needs; the caller must give it the rows.

    Raises InputError if the segment is not closed, is damaged, or has what a capture never has (segments of
    streamed transactions).
    """
    return _not_tiny(_Columns(SegmentFrames(file, name), parts, tables, surveyor).batches())


class _Columns:
    """One run through a segment."""

    def __init__(self, frames: SegmentFrames, parts: Parts, tables: Sequence[str], surveyor: Surveyor | None) -> None:
        self._frames = frames
        self._parts = parts
        self._filter = Filter(tables=tables) if tables else None
        self._surveyor = surveyor
        self._batch = Batch()
        self._own = False
        """Whether what is repeated at the beginning was read."""
        self._ordinal = 0
        self._of: Transaction | None = None
        self._common = TransactionColumns()
        self._position = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        frames, batch = self._frames, self._batch
        try:
            encoding = self._begin()
            decoder = Decoder(encoding=encoding)
            assembler = Assembler(Types(encoding=encoding))
            self._tables = Tables(utf8=encoding == "utf-8")
            fast = None if self._parts is not EVERYWHERE else runs(assembler, self._tables, encoding, self._shows)
            for start, stop in frames:
                if start == MARK:
                    self._go_on(assembler)
                    continue
                if fast is not None and self._own:
                    frames.next = start - HEAD.size
                    yield from self._runs(fast, assembler)
                    if frames.next > start:
                        continue
                    frames.next = stop
                if self._surveyor is not None:
                    self._surveyor.look(frames.buf, start, stop)
                message, lsn, _ = decoder.frame(frames.buf, start, stop)
                self._take(assembler, message, lsn, stop - start - XLOG_HEADER_SIZE)
                if fast is not None and fast.rows and batch.own:
                    yield fast.batch()
                if batch.full:
                    yield batch.take()
            if fast is not None and fast.rows:
                yield fast.batch()
        except InputError as error:
            raise frames.located(error) from None
        if batch.own:
            yield batch.take()

    def _begin(self) -> str:
        """Read the head; returns the text's encoding."""
        head = self._frames.read_head()
        if self._surveyor is not None:
            self._surveyor.begin(head)
        return head.encoding

    def _runs(self, fast: Runs, assembler: Assembler) -> Iterator[pa.RecordBatch]:
        """Take the rows that follow by the fast path, as far as it goes; only one of the two batches has rows."""
        frames, batch = self._frames, self._batch
        while frames.next < len(frames.buf) and (assembler.whole is not None or assembler.outside):
            common = None
            if assembler.whole is not None:
                self._enter(assembler.whole)
                common = self._common
            if not fast.takes(common):
                yield fast.batch()
                fast.takes(common)
            frames.next = fast.run(assembler, frames.buf, frames.next, self._ordinal)
            self._ordinal = fast.ordinal
            if self._surveyor is not None:
                self._surveyor.skip(None if assembler.whole is None else assembler.whole.lsn, self._ordinal)
            if fast.rows and batch.own:
                yield batch.take()
            if not fast.full:
                return
            yield fast.batch()

    def _shows(self, relation: Relation) -> bool:
        return self._filter is None or self._filter.table_passes(relation)

    def _go_on(self, assembler: Assembler) -> None:
        """What was repeated at the beginning ends here."""
        self._own = True
        if self._surveyor is not None:
            self._surveyor.look(self._frames.buf, MARK, MARK)
        transaction = self._frames.head.transaction
        if transaction is not None:
            changes, messages, self._ordinal = transaction
            assembler.feed(Continued(changes, messages), None)

    def _take(self, assembler: Assembler, message: AnyFrame, lsn: int | None, size: int) -> None:
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
        for event in assembler.feed(message, lsn):
            if isinstance(event, RowChange):
                self._row(event, size)
            elif isinstance(event, TableTruncate):
                self._truncate(event, size)
            elif isinstance(event, LogicalMessage):
                self._message(event, message, size)
            elif isinstance(event, Outcome):
                self._outcome(event, lsn, size)
            elif isinstance(event, Note) and event.damage:
                raise InputError(event.text)

    # -- what a row is made of -----------------------------------------------------------------------------------

    def _row(self, change: RowChange, size: int) -> None:
        if not (self._enter(change.transaction) and self._wanted(change)):
            return
        table, batch = self._tables.of(change.relation), self._batch
        unchanged: list[str] = []
        undecoded: list[str] = []
        if change.old is None:
            batch.old.offsets.append(None)
        else:
            left_out = frozenset(not_in_identity(change))
            batch.old.add(*table.careful(change.old, left_out, unchanged, undecoded))
        if change.new is None:
            batch.new.offsets.append(None)
        else:
            self._new(batch.new, table, change.new, unchanged, undecoded)
        rare = RareColumns(unchanged or None, undecoded or None) if unchanged or undecoded else None
        columns = table.without_identity if change.op == "insert" else table.columns
        self._add(change.op, change.seq, change.lsn, size, columns, rare)

    @staticmethod
    def _new(maps: Maps, table: Table, cells: TupleData, unchanged: list[str], undecoded: list[str]) -> None:
        texts = table.plain(cells)
        if texts is not None:
            maps.add(table.names, texts)
        else:
            maps.add(*table.careful(cells, frozenset(), unchanged, undecoded))

    def _truncate(self, change: TableTruncate, size: int) -> None:
        if self._enter(change.transaction) and self._wanted(change):
            rare = RareColumns(cascade=change.cascade, restart_identity=change.restart_identity)
            columns = self._tables.of(change.relation).without_identity
            self._without_maps(change.op, change.seq, change.lsn, size, columns, rare)

    def _wanted(self, change: RowChange | TableTruncate) -> bool:
        return self._shows(change.relation)

    def _message(self, change: LogicalMessage, message: AnyFrame, size: int) -> None:
        if self._filter is not None:
            return
        rare = RareColumns(prefix=change.prefix, content=change.content, transactional=change.transactional)
        if change.transaction is not None:
            if self._enter(change.transaction):
                self._without_maps(change.op, None, change.lsn, size, _NO_TABLE, rare)
            return
        assert isinstance(message, Message)
        inside, self._ordinal = self._ordinal, 0
        if self._alone(TransactionColumns(position=message.lsn)):
            self._without_maps(change.op, None, change.lsn, size, _NO_TABLE, rare)
        self._ordinal = inside

    def _outcome(self, outcome: Outcome, lsn: int | None, size: int) -> None:
        self._ordinal = 0
        common = TransactionColumns(xid=outcome.xid, gid=outcome.gid, position=outcome.end_lsn)
        if outcome.op == "commit_prepared":
            time = _micros(outcome.time)
            common = common._replace(commit_lsn=lsn_text(outcome.lsn), commit_ts=time, commit_date=time // _DAY)
        elif outcome.prepare_ts is not None:
            time = _micros(outcome.prepare_ts)
            common = common._replace(prepare_ts=time, commit_date=time // _DAY)
        if self._alone(common):
            self._without_maps(outcome.op, None, lsn, size, _NO_TABLE, None)

    # -- transactions --------------------------------------------------------------------------------------------

    def _enter(self, transaction: Transaction) -> bool:
        """Make what the transaction's rows have in common; returns whether the row at hand is wanted."""
        if transaction is not self._of:
            self._of = transaction
            self._common = _common(transaction)
            self._position = _bigint(transaction.lsn, "commit_lsn") or 0
        return within(self._parts, self._position, self._ordinal)

    def _alone(self, common: TransactionColumns) -> bool:
        """The same for a row outside of any transaction."""
        self._of, self._common = None, common
        position = _bigint(common.position, "lsn") or 0
        return within(self._parts, position, self._ordinal)

    def _without_maps(
        self, op: str, seq: int | None, lsn: int | None, size: int, table: TableColumns, rare: RareColumns | None
    ) -> None:
        self._batch.old.offsets.append(None)
        self._batch.new.offsets.append(None)
        self._add(op, seq, lsn, size, table, rare)

    def _add(
        self, op: str, seq: int | None, lsn: int | None, size: int, table: TableColumns, rare: RareColumns | None
    ) -> None:
        own = RowColumns(op, seq, _bigint(lsn, "lsn"), size, self._ordinal)
        self._batch.add(own, self._common, table, rare)


def _not_tiny(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches that follow each other and are small: rows may have alternated between the two paths."""
    small: list[pa.RecordBatch] = []
    for batch in batches:
        small.append(batch)
        if sum(one.num_rows for one in small) >= _FEW:
            yield from _joined(small)
            small.clear()
    yield from _joined(small)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return list(batches)
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _common(transaction: Transaction) -> TransactionColumns:
    time = None if transaction.time is None else _micros(transaction.time)
    text = None if transaction.lsn is None else lsn_text(transaction.lsn)
    common = TransactionColumns(
        xid=transaction.xid,
        position=transaction.lsn,
        origin=transaction.origin,
        gid=transaction.gid,
        state=transaction.state,
        commit_date=None if time is None else time // _DAY,
    )
    if transaction.state is None:
        return common._replace(commit_lsn=text, commit_ts=time)
    return common._replace(prepare_lsn=text, prepare_ts=time)


def _bigint(lsn: int | None, field: str) -> int | None:
    """A log position, which must be one that Spark's bigint can represent: no server has written so much."""
    if lsn is not None and lsn >= _END_OF_BIGINT:
        raise Malformed(f"a log position of {lsn_text(lsn)}", offset=0, field=field)
    return lsn


def _micros(time: int) -> int:
    """A timestamp as Arrow and Spark count: microseconds since 1970."""
    micros = unix_micros(time)
    if micros >= _END_OF_BIGINT:
        raise Malformed("a time beyond the end of Spark's timestamps", offset=0)
    return micros
