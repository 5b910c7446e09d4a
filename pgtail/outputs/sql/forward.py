"""Write transactions as SQL that repeats them. Conflicts are errors.

Prepared transactions become PREPARE TRANSACTION, and their outcomes COMMIT PREPARED or ROLLBACK PREPARED.
"""

from __future__ import annotations

from pgtail.changes.events import (
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
from pgtail.changes.relations import Relation
from pgtail.files.sink import Sink
from pgtail.humanize import counted
from pgtail.outputs.base import Output, OutputOptions
from pgtail.outputs.sql import statements
from pgtail.outputs.sql.comments import heading, message_text, schema_change_text
from pgtail.outputs.sql.statements import NotExpressible, RowCondition, comment
from pgtail.pgoutput.cells import UNCHANGED, TupleData
from pgtail.terminal.escape import quoted


def open_sql(sink: Sink, options: OutputOptions) -> Output:
    """The output for `-o sql`, with or without `--undo`."""
    if options.undo:
        from pgtail.outputs.sql.undo import SqlUndo

        return SqlUndo(sink, options)
    return Sql(sink, options)


class Sql:
    """`-o sql`. A change that cannot be written as SQL becomes a comment, and is reported at the end."""

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        self._sink = sink
        self._tell = options.tell
        self._begun = False
        self._open: Transaction | None = None
        self._truncated: list[TableTruncate] = []
        self._omitted = 0

    def event(self, event: Event) -> None:
        if isinstance(event, TableTruncate):
            self._truncate(event)
            return
        self._write_truncated()
        if isinstance(event, RowChange):
            try:
                self._write(row_sql(event))
            except NotExpressible as reason:
                self._omitted += 1
                self._write(comment(f"left out: {statements.label(event)}: {reason}"))
        elif isinstance(event, LogicalMessage):
            self._write(comment(message_text(event)))
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
        if self._omitted:
            changes = counted(self._omitted, "change")
            self._tell(f"{changes} could not be written as SQL; each is replaced by a comment")
            self._omitted = 0

    def _write(self, text: str) -> None:
        if not self._begun:
            self._begun = True
            self._sink.write(statements.HEAD.encode())
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
                self._write(statements.truncate(changes))
            except NotExpressible as reason:
                self._omitted += len(changes)
                for change in changes:
                    self._write(comment(f"left out: {statements.label(change)}: {reason}"))

    def _schema(self, event: SchemaChange) -> None:
        text = schema_change_text(event)
        if text:
            self._write(comment(text))


def _options(change: TableTruncate) -> tuple[int | None, bool, bool]:
    """The properties that all tables of one TRUNCATE share."""
    return change.lsn, change.cascade, change.restart_identity


def row_sql(change: RowChange) -> str:
    """The statement that repeats a change. Raises NotExpressible."""
    relation, old, new = change.relation, change.old, change.new
    if change.op == "insert":
        assert new is not None
        return statements.insert(relation, new)
    where = _where(change)
    if new is None:
        return statements.delete(relation, where)
    return statements.update(relation, where, new, _to_set(relation, old, new))


def _where(change: RowChange) -> RowCondition:
    """Matches the row that an update or delete changed."""
    relation, row = change.relation, change.new if change.old is None else change.old
    assert row is not None
    if change.old is not None and change.old_kind == "O" and relation.identity == "full":
        return statements.row_condition(relation, row)
    return statements.key_condition(relation, row)


def _to_set(relation: Relation, old: TupleData | None, new: TupleData) -> list[int]:
    """The indexes of the columns that may have changed, which an update sets."""
    if old is None:
        same = set(statements.key_indexes(relation))
    else:
        whole = relation.identity == "full"
        both = range(min(len(old), len(new)))
        known = both if whole else statements.key_indexes(relation)
        same = {index for index in known if index in both and old[index] == new[index]}
    return [index for index, cell in enumerate(new) if cell is not UNCHANGED and index not in same]
