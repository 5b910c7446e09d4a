"""Write transactions as SQL that repeats them. Conflicts are errors.

Prepared transactions become PREPARE TRANSACTION, and their outcomes COMMIT PREPARED or ROLLBACK PREPARED.
"""

from __future__ import annotations

from typing import Final

from pgtail.changes.ddl import AS_BEFORE, DdlMessage
from pgtail.changes.events import (
    Ended,
    Event,
    LogicalMessage,
    Outcome,
    RowChange,
    SchemaChange,
    TableTruncate,
    Transaction,
)
from pgtail.changes.relations import differences
from pgtail.files.sink import Sink
from pgtail.files.spool import SpoolFile
from pgtail.humanize import counted
from pgtail.log import log_outcome
from pgtail.native.plan import INSERT_OPS, Cells, Empty, Field, NoPlan, Plan, Text, Value
from pgtail.outputs import OutputOptions
from pgtail.outputs.base import Output
from pgtail.outputs.planned import PlannedOutput
from pgtail.outputs.rows import Rows, Shape, Write
from pgtail.outputs.sql import statements
from pgtail.outputs.sql.statements import RowCondition, comment
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.terminal.escape import escape, quoted
from pgtail.values import UNKNOWN, Undecoded

_MAX_SHOWN = 200
"""Characters, or bytes that are no text, that are shown of a logical message."""


def heading(before: bytes = b"") -> Plan:
    """A comment that names a transaction, or the table of a snapshot."""
    lsn, time = Value(Field.COMMIT_LSN, b", "), Value(Field.COMMIT_TIME, b", committed at ")
    return (b"-- " + before, Value(Field.XID, b"xid "), Text(_without_xid), lsn, time, Text(_unusual), b"\n")


def _without_xid(transaction: Transaction) -> bytes:
    if transaction.snapshot:
        return snapshot_text(transaction).encode()
    return b"" if transaction.xid is not None else b"xid unknown"


def snapshot_text(transaction: Transaction) -> str:
    """A snapshot and its table in words."""
    table = transaction.table
    return f"snapshot of {'an unknown table' if table is None else escape(table.qualified)}"


def _unusual(transaction: Transaction) -> bytes:
    """The part of the heading for a transaction that is not simply committed."""
    parts = []
    if transaction.commit_ts is None:
        if transaction.prepare_lsn is not None:
            parts.append(lsn_text(transaction.prepare_lsn))
        word = "prepared" if transaction.state == "prepared" else "committed"
        parts.append(f"{word} {_when(transaction.prepare_ts)}")
    if transaction.origin is not None:
        parts.append(f"from {transaction.origin}")
    if not transaction.begun:
        parts.append("its beginning was not seen")
    return "".join([f", {escape(part)}" for part in parts]).encode()


def _when(time: int | None) -> str:
    return "at an unknown time" if time is None else f"at {time_text(time).replace('T', ' ')}"


def schema_change_text(event: SchemaChange, altered: set[int]) -> str:
    """The differences of a table to its last description, in words; empty if there are none.

    Also if a message of `pgtail ddl` said it: it puts the table's OID into `altered`, from where it is removed.
    """
    if event.now.oid in altered:
        altered.remove(event.now.oid)
        return ""
    changes = [] if event.before is None else differences(event.before, event.now)
    return f"{event.now.quoted}: {'; '.join(changes)} (the DDL is not in the stream)" if changes else ""


def message_text(message: LogicalMessage) -> str:
    """A logical message or schema change in words; content as in tables: a string, or bytes that are no text in hex."""
    if isinstance(message, DdlMessage):
        texts = ", ".join(message.texts)
        return f"{message.ddl.qualified} {message.ddl.tag}{texts and ': '}{texts}".lstrip()
    size = len(message.content)
    try:
        text = UNKNOWN.text_text(message.content)
        shown, cut = quoted(text[:_MAX_SHOWN]), len(text) > _MAX_SHOWN
    except Undecoded:
        shown, cut = f"\\x{message.content[:_MAX_SHOWN].hex()}", size > _MAX_SHOWN
    how = "" if message.transactional else ", not transactional"
    return f"message {quoted(message.prefix)}{how}: {shown}{f'… ({size} bytes)' if cut else ''}"


_IN_MEMORY: Final = 64 * 1024
"""Bytes of a prepared transaction's text that are kept in memory; more are in a temporary file."""
_PIECE: Final = 1 << 20


def open_sql(sink: Sink, options: OutputOptions) -> Output:
    """The output for `-o sql`, with or without `--undo`."""
    if options.undo:
        from pgtail.outputs.sql.undo import SqlUndo

        return SqlUndo(sink, options)
    return Sql(sink, options)


class Sql(PlannedOutput):
    """`-o sql`. A change that cannot be written as SQL becomes a comment, and is reported at the end.

    A snapshot of a table that was written before deletes its rows first. That would wait for ever for the locks of a
    prepared transaction whose outcome comes later: it is rolled back before, and repeated when it is committed.
    """

    begin = (*heading(), b"BEGIN;\n")
    end = (b"COMMIT;\n\n",)
    needs_outcomes = True

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        super().__init__(sink, options)
        self._sink = sink
        self.write = self._write
        self._checks = Rows(self._check)
        self._truncated: list[TableTruncate] = []
        self._altered: set[int] = set()
        self._kept: SpoolFile | None = None
        """The text of the open transaction, if it is to be prepared."""
        self._undecided: dict[str, SpoolFile] = {}
        """The texts of prepared transactions without an outcome, by gid."""
        self._repeated: dict[str, SpoolFile] = {}
        """The texts of prepared transactions that were rolled back, by gid."""

    def started(self, transaction: Transaction) -> None:
        repeated = self.written.repeated(transaction)
        if repeated is not None:
            self._roll_back_prepared()
        if transaction.state == "prepared":
            self._kept = SpoolFile("keep a prepared transaction", memory=_IN_MEMORY, limit=self.options.spool)
        super().started(transaction)
        if repeated is not None:
            self.write(statements.delete_all(repeated))

    def takes(self, transaction: Transaction) -> bool:
        """False for a prepared one of which a filter left out everything so far: it needs started() first."""
        return super().takes(transaction) and (transaction.state != "prepared" or self.open is not None)

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        self.written.add(shape.relation)
        if shape.op in INSERT_OPS:
            return statements.insert(shape, "new"), self.write
        where = _where(shape)
        if shape.new_width is None:
            return statements.delete(shape, where), self.write
        return statements.update(shape, where, _to_set(shape)), self.write

    def no_plan(self, change: RowChange, reason: NoPlan) -> None:
        """An update that sets nothing becomes a check that its row exists, any other row a comment."""
        try:
            if change.op == "update":
                check = self._checks.text(change)
                if isinstance(reason, Empty):
                    self.write(check)
                    return
        except NoPlan as found:
            reason = found
        self._leave_out(change, reason)

    def other(self, event: Event) -> None:
        if isinstance(event, TableTruncate):
            self._truncate(event)
            return
        self._write_truncated()
        if isinstance(event, LogicalMessage):
            if isinstance(event, DdlMessage) and event.texts != [AS_BEFORE]:
                self._altered.add(event.ddl.oid or 0)
            self.write(comment(message_text(event)))
        elif isinstance(event, Outcome):
            self._outcome(event)
        elif isinstance(event, SchemaChange) and (text := schema_change_text(event, self._altered)):
            self.write(comment(text))

    def ended(self, event: Ended) -> None:
        kept, self._kept = self._kept, None
        if not event.complete:
            if kept is not None:
                kept.close()
            self._roll_back()
        elif event.transaction.state == "prepared":
            gid = event.transaction.gid or ""
            self.write(f"PREPARE TRANSACTION {quoted(gid)};\n\n".encode())
            if kept is not None:
                self._undecided[gid] = kept
        else:
            super().ended(event)

    @property
    def settled(self) -> bool:
        return not (self._undecided or self._repeated)

    def new_file(self) -> None:
        if "head" in self.once.done:
            self._sink.write(statements.HEAD.encode())

    def close(self) -> None:
        self._write_truncated()
        super().close()
        for kept in (*self._undecided.values(), *self._repeated.values()):
            kept.close()
        if self.left_out:
            changes = counted(self.left_out, "change")
            log_outcome(f"{changes} could not be written as SQL; each is replaced by a comment")
            self.left_out = 0

    def _write(self, text: bytes) -> None:
        """Write a text after what comes before it: the head of the script, and tables that were truncated."""
        if self._truncated:
            self._write_truncated()
        if self.once.first("head") is None:
            self._sink.write(statements.HEAD.encode())
        self._sink.write(text)
        if self._kept is not None:
            self._kept.write(text)

    def _check(self, shape: Shape) -> tuple[Plan, Write]:
        return statements.check(shape, _where(shape)), self.write

    def _leave_out(self, change: RowChange | TableTruncate, reason: NoPlan) -> None:
        self.left_out += 1
        plan = statements.omission("left out", change.op, change.relation, str(reason))
        self.write(self.rows.truncate(plan, change))

    def _roll_back(self) -> None:
        text = "the source broke off here: whether this was committed is not known"
        self.write(comment(text) + b"ROLLBACK;\n\n")

    def _roll_back_prepared(self) -> None:
        for gid, kept in self._undecided.items():
            self.write(comment("The next transaction would wait for its locks: it is repeated when it is committed."))
            self.write(f"ROLLBACK PREPARED {quoted(gid)};\n\n".encode())
            self._repeated[gid] = kept
        self._undecided.clear()

    def _outcome(self, outcome: Outcome) -> None:
        verb = "COMMIT" if outcome.op == "commit_prepared" else "ROLLBACK"
        text = f"{verb} PREPARED {quoted(outcome.gid)};"
        if self.open is not None:
            self.write(comment(f"out of place: {text}"))
        elif (repeated := self._repeated.pop(outcome.gid, None)) is not None:
            if outcome.op == "commit_prepared":
                for offset in range(0, repeated.size, _PIECE):
                    self.write(repeated.read(offset, _PIECE))
                self.write(b"COMMIT;\n\n")
            repeated.close()
        else:
            self.write(f"{text}\n\n".encode())
            if (prepared := self._undecided.pop(outcome.gid, None)) is not None:
                prepared.close()

    def _truncate(self, change: TableTruncate) -> None:
        if self._truncated and _options(self._truncated[0]) != _options(change):
            self._write_truncated()
        self._truncated.append(change)

    def _write_truncated(self) -> None:
        changes, self._truncated = self._truncated, []
        if changes:
            try:
                self.write(statements.truncate(changes))
            except NoPlan as reason:
                for change in changes:
                    self._leave_out(change, reason)


def _options(change: TableTruncate) -> tuple[int | None, bool, bool]:
    """The properties that all tables of one TRUNCATE share."""
    return change.lsn, change.cascade, change.restart_identity


def _where(shape: Shape) -> RowCondition:
    """Matches the row that an update or delete changed."""
    if shape.old_width is None:
        return statements.key_condition(shape, "new")
    if shape.old_kind == "O" and shape.relation.identity == "full":
        return statements.row_condition(shape, "old")
    return statements.key_condition(shape, "old")


def _to_set(shape: Shape) -> Cells:
    """The columns that may have changed, which an update sets."""
    relation, indexes = shape.relation, range(shape.width("new"))
    keys = relation.key_indexes
    if shape.old_width is None:
        return statements.assignments(shape, "new", [index for index in indexes if index not in keys])
    return statements.assignments(shape, "new", indexes, skip_same=indexes if relation.identity == "full" else keys)
