"""Floor 4, changes as SQL that does them again: one transaction after another, conflicts are errors.

A prepared transaction is prepared again, and its outcome follows.
"""

from __future__ import annotations

from pgtail.outputs import sql_text
from pgtail.outputs.base import Output, OutputOptions, Sink
from pgtail.outputs.escape import quoted
from pgtail.outputs.sql_text import Unsayable, Which, comment
from pgtail.outputs.sql_words import heading, message_words, table_changed
from pgtail.relations import Relation
from pgtail.transaction import (
    Ended,
    Event,
    LogicalMessage,
    Outcome,
    RowChange,
    SchemaChange,
    Started,
    TableTruncate,
    Transaction,
)
from pgtail.wire.cells import UNCHANGED, TupleData


def open_sql(sink: Sink, options: OutputOptions) -> Output:
    """`-o sql`, or with `--undo` its inverse."""
    if options.undo:
        from pgtail.outputs.sql_undo import SqlUndo

        return SqlUndo(sink, options)
    return Sql(sink, options)


class Sql:
    """`-o sql`. What cannot be written as SQL is a comment, and is told at the end."""

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        self._sink = sink
        self._tell = options.tell
        self._begun = False
        self._open: Transaction | None = None
        self._truncated: list[TableTruncate] = []
        self._left_out = 0

    def event(self, event: Event) -> None:
        if isinstance(event, TableTruncate):
            self._truncate(event)
            return
        self._write_truncated()
        if isinstance(event, RowChange):
            try:
                self._write(row_sql(event))
            except Unsayable as reason:
                self._left_out += 1
                self._write(comment(f"left out: {sql_text.place(event)}: {reason}"))
        elif isinstance(event, LogicalMessage):
            self._write(comment(message_words(event)))
        elif isinstance(event, Started):
            self._start(event.transaction)
        elif isinstance(event, Ended):
            self._end(event)
        elif isinstance(event, Outcome):
            self._outcome(event)
        elif isinstance(event, SchemaChange):
            self._schema(event)

    def finish(self) -> None:
        self._write_truncated()
        if self._open is not None:
            self._roll_back()
        if self._left_out:
            changes = "1 change" if self._left_out == 1 else f"{self._left_out} changes"
            self._tell(f"{changes} could not be written as SQL: a comment stands in the place of each")
            self._left_out = 0

    def _write(self, text: str) -> None:
        if not self._begun:
            self._begun = True
            self._sink.write(sql_text.HEAD.encode())
        self._sink.write(text.encode())

    def _start(self, transaction: Transaction) -> None:
        self._open = transaction
        self._write(comment(heading(transaction)) + "BEGIN;\n")

    def _end(self, event: Ended) -> None:
        transaction, self._open = event.transaction, None
        if not event.complete:
            self._roll_back()
        elif transaction.state == "prepared":
            self._write(f"PREPARE TRANSACTION {quoted(transaction.gid or '')};\n\n")
        else:
            self._write("COMMIT;\n\n")

    def _roll_back(self) -> None:
        self._open = None
        self._write(comment("the source broke off here: whether this was committed is not known") + "ROLLBACK;\n\n")

    def _outcome(self, outcome: Outcome) -> None:
        verb = "COMMIT" if outcome.op == "commit_prepared" else "ROLLBACK"
        inside = self._open is not None
        text = f"{verb} PREPARED {quoted(outcome.gid)};\n\n"
        self._write(comment(f"out of place: {text.strip()}") if inside else text)

    def _truncate(self, change: TableTruncate) -> None:
        first = self._truncated[0] if self._truncated else None
        if first is not None and _options(first) != _options(change):
            self._write_truncated()
        self._truncated.append(change)

    def _write_truncated(self) -> None:
        changes, self._truncated = self._truncated, []
        if changes:
            try:
                self._write(sql_text.truncate(changes))
            except Unsayable as reason:
                self._left_out += len(changes)
                for change in changes:
                    self._write(comment(f"left out: {sql_text.place(change)}: {reason}"))

    def _schema(self, event: SchemaChange) -> None:
        text = table_changed(event)
        if text:
            self._write(comment(text))


def _options(change: TableTruncate) -> tuple[int | None, bool, bool]:
    """What the tables of one TRUNCATE have in common."""
    return change.lsn, change.cascade, change.restart_identity


def row_sql(change: RowChange) -> str:
    """One row's change. Raises Unsayable."""
    relation, old, new = change.relation, change.old, change.new
    if change.op == "insert":
        assert new is not None
        return sql_text.insert(relation, new)
    where = _where(change)
    if new is None:
        return sql_text.delete(relation, where)
    return sql_text.update(relation, where, new, _to_set(relation, old, new))


def _where(change: RowChange) -> Which:
    """Finds the row that an update or delete changed."""
    relation, row = change.relation, change.new if change.old is None else change.old
    assert row is not None
    if change.old is not None and change.old_kind == "O" and relation.identity == "full":
        return sql_text.by_row(relation, row)
    return sql_text.by_key(relation, row)


def _to_set(relation: Relation, old: TupleData | None, new: TupleData) -> list[int]:
    """The places of the columns that an update sets: those that may have changed."""
    if old is None:
        same = set(sql_text.key_places(relation))
    else:
        whole = relation.identity == "full"
        known = range(min(len(old), len(new))) if whole else sql_text.key_places(relation)
        same = {index for index in known if index < len(old) and old[index] == new[index]}
    return [index for index, cell in enumerate(new) if cell is not UNCHANGED and index not in same]
