"""Write SQL that undoes the changes, the newest first, at the end of the input.

Statements are kept in bounded memory until then. A change whose old values were not sent becomes a comment, and is
reported at the end.
"""

from __future__ import annotations

import marshal
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pgtail.changes.ddl import DdlMessage
from pgtail.changes.events import SEEN, Ended, Event, RowChange, SchemaChange, TableTruncate, Transaction
from pgtail.changes.events import Rows as SliceRows
from pgtail.changes.relations import Relation
from pgtail.files.sink import Sink
from pgtail.files.spool import SpoolFile, SpoolLimit
from pgtail.humanize import plural, some_of
from pgtail.log import log_outcome
from pgtail.native.plan import Cell, Cells, Count, Empty, NoPlan, Plan, Side
from pgtail.outputs import OutputOptions
from pgtail.outputs.planned import PlannedOutput
from pgtail.outputs.rows import Rows, Shape, Write
from pgtail.outputs.sql import statements
from pgtail.outputs.sql.forward import heading, message_text, schema_change_text, snapshot_text
from pgtail.outputs.sql.statements import RowCondition, comment
from pgtail.pgoutput.cells import UNCHANGED
from pgtail.terminal.escape import escape

if TYPE_CHECKING:
    from pgtail.changes.seen_rows import SeenRows


CHUNK: Final = 1024 * 1024
"""Bytes of texts to write together: about two chunks, or the longest text, are in memory."""


class Stack:
    """Texts, last in, first out."""

    def __init__(self, chunk: int = CHUNK, *, spool: SpoolLimit | None = None) -> None:
        self._chunk = chunk
        self._file = SpoolFile("keep what is to be written", limit=spool)
        self._chunks: list[int] = []
        """The offset of each chunk in the file."""
        self._top: list[bytes] = []
        self.push = self._top.append
        """Add a text."""
        self._counted = self._size = 0

    def spill(self) -> None:
        """Write the texts in memory to the temporary file if they fill a chunk. Raises OutputError.

        To be called when a few texts were added.
        """
        added = self._top[self._counted :]
        self._counted += len(added)
        self._size += sum(map(len, added)) + 40 * len(added)
        if self._size >= self._chunk:
            self._chunks.append(self._file.write(marshal.dumps(self._top)))
            self._top.clear()
            self._counted = self._size = 0

    def drain(self) -> Iterator[list[bytes]]:
        """Remove and return the texts, the last one first, as many together as are in memory."""
        while self._top or self._chunks:
            texts = self._top[::-1]
            self._top.clear()
            self._counted = self._size = 0
            yield texts
            if self._chunks:
                offset = self._chunks.pop()
                self._top += marshal.loads(self._file.read(offset, self._file.size - offset))
                self._file.truncate(offset)

    def close(self) -> None:
        """Close the temporary file."""
        self._file.close()


_NOT_SENT: Final = "the server sent no old values"
_MOST_NAMED: Final = 5
"""Columns to name in a reason."""
_SEEN: Final = b"-- the server sent no old values: these are what the input had shown before (--old-values seen)\n"
_MAX_REASONS = 1000
_BEGIN: Final = b"BEGIN;\n"
_COMMIT: Final = b"COMMIT;\n\n"
_INCOMPLETE: Final = b""
"""On the stack above a transaction whose commit is missing."""


class _NotKnown(NoPlan):
    """A row whose old row is unknown although rows are remembered: the reason depends on the rows remembered last."""


class SqlUndo(PlannedOutput):
    """`-o sql --undo`. Transactions without a commit are omitted."""

    begin = (_COMMIT,)
    end = (*heading(b"undo "), _BEGIN)
    buffers_prepared = True
    one_by_one = True

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        super().__init__(sink, options)
        self._sink = sink
        self._stack = Stack(spool=options.spool)
        self.write = self._stack.push
        self._key_updates = Rows(self._key_update, one_by_one=True)
        self._finished = False
        self._altered: set[int] = set()
        self._only_values = Rows(lambda shape: (_only_values(shape), _write_nothing))
        self._omitted: Counter[str] = Counter()
        """The omitted changes of committed transactions, by operation, table and reason."""

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        if shape.op == "snapshot":
            return (), _write_nothing
        if shape.op == "insert":
            return statements.delete(shape, _where(shape, "new")), self.write
        if not _whole(shape):
            if self.seen_rows is not None:
                raise _NotKnown
            return (*_only_values(shape), *_omission(shape.op, shape.relation, _not_sent(shape.relation))), self.write
        seen = (_SEEN,) if shape.seen else ()
        if shape.new_width is None:
            return (*seen, *statements.insert(shape, "old")), self.write
        columns = range(shape.width("old"))
        to_set = statements.assignments(shape, "old", columns, skip_same=columns, complete=True)
        return (*seen, *statements.update(shape, _where(shape, "new", fill=True), to_set)), self.write

    def no_plan(self, change: RowChange, reason: NoPlan) -> None:
        """An update that changed nothing needs no undo, one of a key can be undone, any other row becomes a comment."""
        if self.seen_rows is not None and not isinstance(reason, Empty):
            reason = self._why_unknown(self.seen_rows, change, reason)
        if isinstance(reason, Empty):
            try:
                self._key_updates.write(change)
                return
            except NoPlan as found:
                reason = found
        if not isinstance(reason, Empty):
            self._omit(change, str(reason))

    def _why_unknown(self, seen_rows: SeenRows, change: RowChange, reason: NoPlan) -> NoPlan:
        """Why --old-values seen could not supply the old values of a change, if that is the reason."""
        relation, old = change.relation, change.old or ()
        if isinstance(reason, _NotKnown):
            try:
                self._only_values.write(change)
            except Empty as empty:
                return empty
            return NoPlan(f"the old row is not known: {seen_rows.why_not(relation)}")
        if change.old_kind != SEEN or UNCHANGED not in old:
            return reason
        index = old.index(UNCHANGED)
        return NoPlan(f"the old {relation.column_name(index)} is not known: {seen_rows.why_not(relation, index)}")

    def other(self, event: Event) -> None:
        if isinstance(event, TableTruncate):
            self._omit(event, "what the table held was not sent")
        elif isinstance(event, SchemaChange) and (text := schema_change_text(event, self._altered)):
            self.write(comment(f"undo also: {text}"))
        elif isinstance(event, DdlMessage) and event.alters:
            self._altered.add(event.ddl.oid or 0)
            self.write(comment(f"undo also: {message_text(event)}"))

    def ended(self, event: Ended) -> None:
        if event.complete:
            if event.transaction.snapshot:
                self._omit_snapshot(event.transaction)
            super().ended(event)
            self._add_omitted(self.rows.counts)
        else:
            self.write(_INCOMPLETE)

    def write_rows(self, rows: SliceRows) -> None:
        super().write_rows(rows)
        assert self.writer is not None
        self._add_omitted(self.writer.take_ended())
        self._stack.spill()

    def _event(self, event: Event) -> None:
        super()._event(event)
        self._stack.spill()

    def close(self) -> None:
        if self._finished:
            return
        self._finished = True
        if self.open is not None:
            self.write(_INCOMPLETE)
        self.lacks_changes = bool(self._omitted)
        texts = self._committed()
        newest = next(texts, comment("nothing to undo"))
        self._sink.write(statements.HEAD.encode())
        if self._omitted:
            self._report_omitted()
        self._sink.write(newest)
        for text in texts:
            self._sink.write(text)
        self._stack.close()

    def _committed(self) -> Iterator[bytes]:
        """The texts, newest first, many together, without transactions that are incomplete or changed nothing."""
        begin, skips = b"", False
        for texts in self._stack.drain():
            statements: list[bytes] = []
            for text in texts:
                if skips:
                    skips = text != _COMMIT
                elif text == _INCOMPLETE:
                    skips = True
                elif text.endswith(b"\n" + _BEGIN):
                    begin = text
                elif not begin:
                    statements.append(text)
                else:
                    if text != _COMMIT:
                        statements += begin, text
                    begin = b""
            if statements:
                yield b"".join(statements)

    def _key_update(self, shape: Shape) -> tuple[Plan, Write]:
        """The plan for an update of which only the old and the new key were sent; Empty if it changed nothing."""
        if shape.old_width is None or _whole(shape):
            raise Empty
        keys = shape.relation.key_indexes
        to_set = statements.assignments(shape, "old", keys)
        return statements.update(shape, _where(shape, "new"), to_set), self.write

    def _omit_snapshot(self, transaction: Transaction) -> None:
        text = f"{snapshot_text(transaction)}: what the table had before was not sent"
        self.write(comment(f"cannot be undone: {text}"))
        self._add_omitted({text: 1})

    def _omit(self, change: RowChange | TableTruncate, reason: str) -> None:
        self.write(self.rows.truncate(_omission(change.op, change.relation, reason), change))

    def _add_omitted(self, counts: dict[str, int]) -> None:
        """Add the omitted changes of a committed transaction."""
        for key, count in counts.items():
            known = key in self._omitted or len(self._omitted) < _MAX_REASONS
            self._omitted[key if known else "others"] += count

    def _report_omitted(self) -> None:
        total = self._omitted.total()
        changes = f"{total} {plural(total, 'change')}"
        self._sink.write(comment(f"{changes} cannot be undone: a comment stands in the place of each"))
        self._sink.write(b"\n")
        helps = any(_NOT_SENT in reason for reason in self._omitted)
        hint = "; --old-values seen undoes those whose rows the input showed before" if helps else ""
        log_outcome(f"{changes} cannot be undone; each is replaced by a comment{hint}")
        for reason, count in self._omitted.most_common():
            log_outcome(f"{count} times {reason}" if count > 1 else reason)


def _write_nothing(text: bytes) -> None:
    """For the rows of a snapshot: one comment represents all of them."""


def _not_sent(relation: Relation) -> str:
    """Why the server sent no old row."""
    names = [column.name for column in relation.columns if not column.key]
    if relation.partition is not None:  # rows of such a table are not remembered: not _NOT_SENT
        of = f"of its partitions ({relation.to_alter.qualified})"
        return f"no whole old row was sent: the replica identity {of} lacks {some_of(names, _MOST_NAMED)}"
    return f"{_NOT_SENT}: the replica identity lacks {some_of(names, _MOST_NAMED)}" if names else _NOT_SENT


def _whole(shape: Shape) -> bool:
    """Whether the old tuple is the whole old row, unless a cell is unchanged, and the new one is as wide."""
    relation, columns = shape.relation, len(shape.relation.columns)
    if not relation.seen or shape.old_width != columns or shape.new_width not in (None, columns):
        return False
    return shape.has_old_row or len(relation.key_indexes) == columns


def _omission(op: str, relation: Relation, reason: str) -> Plan:
    """A comment in the place of a change, and its count."""
    plan = statements.omission("cannot be undone", op, relation, reason)
    return (*plan, Count(f"{op} on {escape(relation.qualified)}: {reason}"))


def _only_values(shape: Shape) -> Plan:
    """Writes nothing. An update of which only identity columns were sent, and all others are unchanged, is Empty."""
    if shape.new_width is None:
        return ()
    keys = shape.relation.key_indexes
    cells = [Cell(index, b"", None, b"") for index in range(shape.new_width) if index not in keys]
    return (Cells("new", tuple(cells), b"", not_empty=True),)


def _where(shape: Shape, side: Side, *, fill: bool = False) -> RowCondition:
    """Matches the row as it is after the change."""
    condition = statements.key_condition if shape.relation.key_indexes else statements.row_condition
    return condition(shape, side, fill=fill)
