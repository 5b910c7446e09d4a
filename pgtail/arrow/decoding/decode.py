"""Decodes a segment to Arrow record batches of `changes`, with the same decoder and assembler as everywhere.

A row is made from its decoded message; values that rows of a table or transaction share are made once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from pgtail.arrow.decoding.batches import described
from pgtail.arrow.decoding.change_rows import ChangeRows, micros
from pgtail.arrow.decoding.contexts import Contexts
from pgtail.arrow.schemas import CHANGES, WITH_CONTEXT
from pgtail.arrow.segments.limits import BEYOND, EVERYTHING, Limits
from pgtail.arrow.segments.ranges import EVERYWHERE, Parts, within
from pgtail.arrow.segments.survey import TWO_PHASE, Survey
from pgtail.capture.contents import SegmentContents, read_contents
from pgtail.capture.format import HEAD
from pgtail.capture.segment import ByteFile, SegmentFrames, read_head
from pgtail.changes.assembler import Assembler
from pgtail.changes.context import Context
from pgtail.changes.ddl import PREFIX, parse
from pgtail.changes.events import LogicalMessage, Note, Outcome, RowChange, SchemaChange, TableTruncate, Transaction
from pgtail.changes.filters import Filter, selected
from pgtail.changes.relations import Relation
from pgtail.errors import InputError
from pgtail.native import compiled
from pgtail.native.batch import Batches, RowFilter
from pgtail.pgoutput.decoder import XLOG_HEADER_SIZE, AnyFrame, Continued, Decoder
from pgtail.pgoutput.frames import COPY_DATA
from pgtail.pgoutput.kinds import Role, messages
from pgtail.pgoutput.schema import Relation as RelationMessage
from pgtail.pgoutput.streaming import StreamStart
from pgtail.pgoutput.transaction import Message, Origin
from pgtail.storage import Location
from pgtail.values import Types

_COUNTED: Final = messages(Role.ROW, Role.TRUNCATE)
_BEGINS: Final = messages(Role.BEGIN)


def survey(file: ByteFile, name: str) -> Survey:
    """Survey a closed segment. Raises InputError if it is not closed or damaged."""
    changes = SegmentChanges(file, name)
    for _ in changes:
        pass
    return changes.survey


def changes_of(
    segment: Location, path: str, *, parts: Parts, tables: Sequence[str], contexts: Contexts | None = None
) -> Iterator[pa.RecordBatch]:
    """The changes of a closed segment, as SegmentChanges has them. It is not read if its contents have none of them."""
    if tables and has_none(segment, read_contents(segment), tables):
        return
    with segment.open() as file:
        yield from SegmentChanges(file, path, parts=parts, tables=tables, contexts=contexts)


def has_none(
    segment: Location,
    contents: SegmentContents | None,
    tables: Sequence[str],
    limits: Limits = EVERYTHING,
    end: int = BEYOND,
    *,
    outcomes: bool = True,
) -> bool:
    """Whether a segment certainly has no change of these tables within these limits; with `outcomes` also no outcome of
    a prepared transaction. `end`: no position in the segment is greater.

    Its contents do not have the outcome of a transaction prepared in it, nor the position of one that was sent late.
    """
    if contents is None or contents.tables is None:
        return False
    changed = [table for table in contents.tables if limits.want_any(table)]
    wanted = any(selected(table.schema, table.table, tables) for table in changed)
    wanted |= not tables and contents.messages > 0 and limits.want_op("message")
    if wanted and not limits.exclude(contents, end):
        return False
    head = read_head(segment)
    if head.parameters.get(TWO_PHASE) != "off" and (
        outcomes or (wanted and not limits.exclude(contents, end, start=0))
    ):
        return False
    return head.encoding == "utf-8"  # else names differ


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


class SegmentChanges(ChangeRows):
    """Iterates over the changes of a closed segment, in order, in bounded memory; `name` is for errors.

    `parts` selects them by their places, `tables` by globs as --table takes them: logical messages are then left
    out as well, outcomes of prepared transactions are not. With `contexts` there is the column `context`. `survey` has
    the tables that were described so far; after the end it is complete, if nothing was left out.

    Raises InputError if the segment is not closed, is damaged, or has segments of streamed transactions, as
    no capture has.
    """

    def __init__(
        self,
        file: ByteFile,
        name: str,
        *,
        parts: Parts = EVERYWHERE,
        tables: Sequence[str] = (),
        contexts: Contexts | None = None,
    ) -> None:
        super().__init__(schema=CHANGES if contexts is None else WITH_CONTEXT)
        self._contexts = contexts
        self.survey = Survey(name)
        self._frames = SegmentFrames(file, name, closed=True)
        self._parts = parts
        self._filter = Filter(tables=tables) if tables else None
        self.described: dict[tuple[int, str], Relation] = {}
        """The versions of tables that were described so far, by their OIDs and fingerprints."""
        self._own = False
        """Whether the repeated messages at the beginning were read."""
        self.ordinal: int = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for rows in self._batches():
            self.survey.add_rows(rows)
            yield rows
        self.survey.finish(inside=self._assembler.open_transaction is not None)

    @property
    def encoding(self) -> str:
        """Python's name of the encoding of its text, once it is read. Raises InputError."""
        return self._frames.head.encoding

    @property
    def unfinished(self) -> int | None:
        """The position of the transaction in which the segment ends, once it was read; None if it ends in none, or in a
        prepared one."""
        transaction = self._assembler.open_transaction
        return None if transaction is None or transaction.gid is not None else transaction.lsn

    def _batches(self) -> Iterator[pa.RecordBatch]:
        frames = self._frames
        try:
            head = frames.read_head()
            self.survey = Survey.of(frames.name, head)
            decoder = Decoder(encoding=head.encoding)
            self._assembler = Assembler(Types(encoding=head.encoding))
            self.utf8 = head.encoding == "utf-8"
            module = compiled() if self.utf8 and self._parts is EVERYWHERE else None
            batches = None if module is None else Batches(module.index)
            row_filter = None if module is None or self._filter is None else module.RowFilter(self._filter)
            for start, stop in frames:
                if frames.head.own and not self._own:
                    self._end_repeated()
                if batches is not None and self._own:
                    frames.next = start - HEAD.size
                    yield from self._take_slices(batches, row_filter)
                    if frames.next > start:
                        continue
                    frames.next = stop
                message, lsn, _ = decoder.frame(frames.buf, start, stop)
                self._take_message(message, lsn, stop - start - XLOG_HEADER_SIZE)
                yield from self.take_batches()
        except InputError as error:
            raise frames.located(error) from None
        self.end_batch()
        yield from self.take_batches()

    def _take_slices(self, batches: Batches, row_filter: RowFilter | None) -> Iterator[pa.RecordBatch]:
        """Add the following rows without decoding them, as far as that is possible."""
        frames, assembler = self._frames, self._assembler
        while slice_ := assembler.next_slice(batches, frames.buf, frames.next, len(frames.buf), COPY_DATA):
            if row_filter is not None:
                row_filter.mark(slice_, assembler.started_transaction, False)
            frames.next = slice_.stop
            self.add_rows(assembler.take_slice(slice_))
            yield from self.take_batches()

    def is_wanted(self) -> bool:
        return within(self._parts, self.common.position or 0, self.ordinal)

    def _shows(self, relation: Relation) -> bool:
        return self._filter is None or self._filter.table_passes(relation)

    def _end_repeated(self) -> None:
        """Handle the end of the repeated messages at the beginning."""
        self._own = True
        transaction, begun = self._frames.head.transaction, self._assembler.open_transaction
        if transaction is not None:
            changes, messages, self.ordinal = transaction
            self._assembler.feed(Continued(changes, messages), None)
            if self._contexts is not None and begun is not None:
                begun.context = self._contexts.before(self._frames.head)
        if self.survey.snapshot is not None and begun is not None:
            self.survey.commit_ts = micros(begun.commit_ts or 0)

    def _count_message(self, message: AnyFrame) -> None:
        kind = type(message)
        if kind in _COUNTED:
            self.ordinal += 1
        elif kind in _BEGINS:
            self.ordinal = 0
        elif isinstance(message, Message):
            self.ordinal += message.transactional
        elif kind is Origin:
            self._of = None
        elif kind is StreamStart:
            raise InputError("it has streamed transactions, as no capture has: pgtail record --from makes one of it")

    def _take_message(self, message: AnyFrame, lsn: int | None, size: int) -> None:
        self._count_message(message)
        for event in self._assembler.feed(message, lsn):
            if isinstance(event, RowChange):
                if self._shows(event.relation):
                    self.add_change(event, size)
            elif isinstance(event, TableTruncate):
                if self._shows(event.relation):
                    self.add_truncate(event, size)
            elif isinstance(event, LogicalMessage):
                assert isinstance(message, Message)
                self._take_logical(event, size, message.lsn)
            elif isinstance(event, Outcome):
                self.ordinal = 0
                self.add_outcome(event, lsn, size)
            elif isinstance(event, SchemaChange):
                self._describe(event.now)
            elif isinstance(event, Note) and event.damage:
                raise InputError(event.text)

    def _take_logical(self, event: LogicalMessage, size: int, position: int) -> None:
        transaction, contexts = event.transaction, self._contexts
        if event.prefix == PREFIX and transaction is not None:
            self._add_ddl(transaction, event.content)
        if self._filter is None:
            self.add_message(event, size, position)
        if contexts is not None and event.prefix == contexts.prefix and transaction is not None:
            transaction.context = Context(event.content, event.content)

    def _add_ddl(self, transaction: Transaction, content: bytes) -> None:
        """Add a schema change to the survey. Those of prepared transactions may be rolled back: they are unknown."""
        try:
            ddl = parse(content)
        except ValueError:  # a forged one
            return
        text = content.decode(errors="replace") if transaction.state is None and ddl.error is None else None
        place = {"position": transaction.lsn, "ordinal": self.ordinal, "seq": transaction.changes}
        self.survey.ddl.append({"relid": ddl.oid or 0, **place, "content": text})

    def _describe(self, relation: Relation) -> None:
        row, transaction = described(relation), self._assembler.open_transaction
        known = {print_ for _, print_ in self.described}
        self.described.setdefault((relation.oid, row["relation"]), relation)
        if row["relation"] not in known:
            position = 0 if transaction is None else transaction.lsn
            self.survey.relations.append(row | {"position": position, "ordinal": self.ordinal + 1})
