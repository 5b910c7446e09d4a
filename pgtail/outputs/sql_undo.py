"""Floor 4, the inverse of changes as SQL, the newest first: written at the end, waiting in bounded memory until then.

What the server did not send is not guessed: a change that cannot be undone is a comment, and is told at the end.
"""

from __future__ import annotations

from collections import Counter

from pgtail.outputs import sql_text
from pgtail.outputs.base import OutputOptions, Sink
from pgtail.outputs.held import Held
from pgtail.outputs.sql_stack import Stack
from pgtail.outputs.sql_text import Unsayable, Which, comment
from pgtail.outputs.sql_words import heading, table_changed
from pgtail.relations import Relation
from pgtail.transaction import Ended, Event, RowChange, SchemaChange, Started, TableTruncate
from pgtail.wire.cells import UNCHANGED, TupleData

_NO_OLD_VALUES = "the server sent no old values (under REPLICA IDENTITY FULL it does)"
_MOST_REASONS = 1000


class SqlUndo:
    """`-o sql --undo`. Transactions that were not committed, as far as is known, need no undoing."""

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        self._write = sink.write
        self._tell = options.tell
        self._stack = Stack()
        self._mark = 0
        self._open = False
        self._finished = False
        self._left_out: Counter[str] = Counter()
        self._left_out_now: Counter[str] = Counter()
        self._held = Held(self._event, options.tell)
        self.event = self._held.event

    def finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        self._held.finish()
        if self._open:
            self._stack.cut(self._mark)
        self._write(sql_text.HEAD.encode())
        if not len(self._stack):
            self._write(comment("nothing to undo").encode())
        if self._left_out:
            self._tell_what_is_left_out()
        while len(self._stack):
            self._write(self._stack.pop())
        self._stack.close()

    def _event(self, event: Event) -> None:
        if isinstance(event, RowChange):
            try:
                self._push(undo(event))
            except Unsayable as reason:
                self._leave_out(event, str(reason))
        elif isinstance(event, TableTruncate):
            self._leave_out(event, "what the table held was not sent")
        elif isinstance(event, Started):
            self._open, self._mark = True, len(self._stack)
            self._push("COMMIT;\n\n")
        elif isinstance(event, Ended):
            self._end(event)
        elif isinstance(event, SchemaChange) and (text := table_changed(event)):
            self._push(comment(f"undo also: {text}"))

    def _push(self, text: str) -> None:
        if text:
            self._stack.push(text.encode())

    def _end(self, event: Ended) -> None:
        self._open = False
        if not event.complete or len(self._stack) == self._mark + 1:
            self._stack.cut(self._mark)
        else:
            self._left_out += self._left_out_now
            self._push(comment(f"undo {heading(event.transaction)}") + "BEGIN;\n")
        self._left_out_now.clear()

    def _leave_out(self, change: RowChange | TableTruncate, reason: str) -> None:
        self._push(comment(f"cannot be undone: {sql_text.place(change)}: {reason}"))
        key = f"{change.op} on {change.relation.qualified}: {reason}"
        if key not in self._left_out and len(self._left_out) + len(self._left_out_now) >= _MOST_REASONS:
            key = "others"
        self._left_out_now[key] += 1

    def _tell_what_is_left_out(self) -> None:
        total = self._left_out.total()
        changes = "1 change" if total == 1 else f"{total} changes"
        self._write(comment(f"{changes} cannot be undone: a comment stands in the place of each").encode())
        self._write(b"\n")
        self._tell(f"{changes} cannot be undone: a comment stands in the place of each")
        for reason, count in self._left_out.most_common():
            self._tell(f"{count} times {reason}" if count > 1 else reason)


def undo(change: RowChange) -> str:
    """The statement that undoes one row's change, empty where there is nothing to undo. Raises Unsayable."""
    relation, old, new = change.relation, change.old, change.new
    if change.op == "insert":
        assert new is not None
        return sql_text.delete(relation, _where(relation, new))
    if new is None:
        assert old is not None
        if not _whole(change, old):
            raise Unsayable(_NO_OLD_VALUES)
        return sql_text.insert(relation, old)
    return _undo_update(change, relation, old, new)


def _undo_update(change: RowChange, relation: Relation, old: TupleData | None, new: TupleData) -> str:
    keys = sql_text.key_places(relation)
    if old is not None and _whole(change, old) and len(old) == len(new):
        after = tuple([before if cell is UNCHANGED else cell for before, cell in zip(old, new, strict=True)])
        changed = [index for index, cell in enumerate(after) if cell != old[index]]
        return sql_text.update(relation, _where(relation, after), old, changed) if changed else ""
    if any(cell is not UNCHANGED and index not in keys for index, cell in enumerate(new)):
        raise Unsayable(_NO_OLD_VALUES)
    if old is None:
        return ""  # nothing but columns of the identity was sent, and they are what they were
    return sql_text.update(relation, _where(relation, new), old, keys)


def _whole(change: RowChange, old: TupleData) -> bool:
    """Whether the old tuple is the whole old row."""
    columns = len(change.relation.columns)
    if not change.relation.seen or len(old) != columns or UNCHANGED in old:
        return False
    return change.old_kind == "O" or len(sql_text.key_places(change.relation)) == columns


def _where(relation: Relation, row: TupleData) -> Which:
    """Finds the row as it is after the change."""
    if sql_text.key_places(relation):
        return sql_text.by_key(relation, row)
    return sql_text.by_row(relation, row)
