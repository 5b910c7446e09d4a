"""Write SQL that undoes the changes, the newest first, at the end of the input.

Statements are kept in bounded memory until then. A change whose old values were not sent becomes a comment, and is
reported at the end.
"""

from __future__ import annotations

from collections import Counter

from pgtail.changes.events import Ended, Event, RowChange, SchemaChange, Started, TableTruncate
from pgtail.changes.relations import Relation
from pgtail.files.sink import Sink
from pgtail.humanize import plural
from pgtail.outputs.base import OutputOptions
from pgtail.outputs.prepared import PreparedBuffer
from pgtail.outputs.sql import statements
from pgtail.outputs.sql.comments import heading, schema_change_text
from pgtail.outputs.sql.stack import Stack
from pgtail.outputs.sql.statements import NotExpressible, RowCondition, comment
from pgtail.pgoutput.cells import UNCHANGED, TupleData

_NO_OLD_VALUES = "the server sent no old values (under REPLICA IDENTITY FULL it does)"
_MAX_REASONS = 1000


class SqlUndo:
    """`-o sql --undo`. Transactions without a commit are omitted."""

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        self._write = sink.write
        self._tell = options.tell
        self._stack = Stack()
        self._mark = 0
        self._open = False
        self._finished = False
        self._omitted: Counter[str] = Counter()
        self._omitted_now: Counter[str] = Counter()
        self._prepared_buffer = PreparedBuffer(self._event, options.tell)
        self.event = self._prepared_buffer.event

    def finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        self._prepared_buffer.finish()
        if self._open:
            self._stack.cut(self._mark)
        self._write(statements.HEAD.encode())
        if not len(self._stack):
            self._write(comment("nothing to undo").encode())
        if self._omitted:
            self._report_omitted()
        while len(self._stack):
            self._write(self._stack.pop())
        self._stack.close()

    def _event(self, event: Event) -> None:
        if isinstance(event, RowChange):
            try:
                self._push(undo(event))
            except NotExpressible as reason:
                self._omit(event, str(reason))
        elif isinstance(event, TableTruncate):
            self._omit(event, "what the table held was not sent")
        elif isinstance(event, Started):
            self._open, self._mark = True, len(self._stack)
            self._push("COMMIT;\n\n")
        elif isinstance(event, Ended):
            self._end(event)
        elif isinstance(event, SchemaChange) and (text := schema_change_text(event)):
            self._push(comment(f"undo also: {text}"))

    def _push(self, text: str) -> None:
        if text:
            self._stack.push(text.encode())

    def _end(self, event: Ended) -> None:
        self._open = False
        if not event.complete or len(self._stack) == self._mark + 1:
            self._stack.cut(self._mark)
        else:
            self._omitted += self._omitted_now
            self._push(comment(f"undo {heading(event.transaction)}") + "BEGIN;\n")
        self._omitted_now.clear()

    def _omit(self, change: RowChange | TableTruncate, reason: str) -> None:
        self._push(comment(f"cannot be undone: {statements.label(change)}: {reason}"))
        key = f"{change.op} on {change.relation.qualified}: {reason}"
        if key not in self._omitted and len(self._omitted) + len(self._omitted_now) >= _MAX_REASONS:
            key = "others"
        self._omitted_now[key] += 1

    def _report_omitted(self) -> None:
        total = self._omitted.total()
        changes = f"{total} {plural(total, 'change')}"
        self._write(comment(f"{changes} cannot be undone: a comment stands in the place of each").encode())
        self._write(b"\n")
        self._tell(f"{changes} cannot be undone; each is replaced by a comment")
        for reason, count in self._omitted.most_common():
            self._tell(f"{count} times {reason}" if count > 1 else reason)


def undo(change: RowChange) -> str:
    """The statement that undoes a change, empty if it changed nothing. Raises NotExpressible."""
    relation, old, new = change.relation, change.old, change.new
    if change.op == "insert":
        assert new is not None
        return statements.delete(relation, _where(relation, new))
    if new is None:
        assert old is not None
        if not _whole(change, old):
            raise NotExpressible(_NO_OLD_VALUES)
        return statements.insert(relation, old)
    return _undo_update(change, relation, old, new)


def _undo_update(change: RowChange, relation: Relation, old: TupleData | None, new: TupleData) -> str:
    keys = statements.key_indexes(relation)
    if old is not None and _whole(change, old) and len(old) == len(new):
        after = tuple([before if cell is UNCHANGED else cell for before, cell in zip(old, new, strict=True)])
        changed = [index for index, cell in enumerate(after) if cell != old[index]]
        return statements.update(relation, _where(relation, after), old, changed) if changed else ""
    if any(cell is not UNCHANGED and index not in keys for index, cell in enumerate(new)):
        raise NotExpressible(_NO_OLD_VALUES)
    if old is None:
        return ""  # only identity columns were sent, and they did not change
    return statements.update(relation, _where(relation, new), old, keys)


def _whole(change: RowChange, old: TupleData) -> bool:
    """Whether the old tuple is the whole old row."""
    columns = len(change.relation.columns)
    if not change.relation.seen or len(old) != columns or UNCHANGED in old:
        return False
    return change.old_kind == "O" or len(statements.key_indexes(change.relation)) == columns


def _where(relation: Relation, row: TupleData) -> RowCondition:
    """Matches the row as it is after the change."""
    if statements.key_indexes(relation):
        return statements.key_condition(relation, row)
    return statements.row_condition(relation, row)
