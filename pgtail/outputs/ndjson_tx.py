"""Newline-delimited JSON, one line per transaction, written while the changes come."""

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
from pgtail.files.sink import Sink
from pgtail.outputs.base import OutputOptions
from pgtail.outputs.ndjson import (
    ChangeJson,
    Part,
    lsn_or_none,
    message_parts,
    outcome_parts,
    pairs,
    relation_parts,
    transaction_parts,
    write_object,
)


class JsonTx:
    """`-o json-tx`.

    Events outside a transaction (outcomes, non-transactional messages, schema changes) get their own lines. While the
    line of a transaction is being written, they are kept until its end.
    """

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        self._write = sink.write
        self._changes = ChangeJson(fill_unchanged=options.fill_unchanged)
        self._schema_changes = options.schema_changes
        self._open = False
        self._comma = b""
        self._after: list[bytes] = []

    def event(self, event: Event) -> None:
        if isinstance(event, RowChange):
            self._change(self._changes.own_parts(event))
        elif isinstance(event, TableTruncate):
            self._change(self._changes.truncate_parts(event))
        elif isinstance(event, LogicalMessage):
            self._message(event)
        elif isinstance(event, Started):
            self._start(event.transaction)
        elif isinstance(event, Ended):
            self._end(event)
        elif isinstance(event, Outcome):
            self._line(b"{%b}\n" % outcome_parts(event)[:-1])
        elif isinstance(event, SchemaChange) and self._schema_changes:
            self._line(b"{%b}\n" % relation_parts(event)[:-1])

    def finish(self) -> None:
        if self._open:
            self._close(b'"incomplete":true')

    def _start(self, transaction: Transaction) -> None:
        self._open, self._comma = True, b""
        self._write(b'{%b%b%b"changes":[' % transaction_parts(transaction))

    def _end(self, event: Ended) -> None:
        if not event.complete:
            self._close(b'"incomplete":true')
        elif event.transaction.aborted:
            self._close(b'"aborted":true')
        else:
            self._close(pairs(("end_lsn", lsn_or_none(event.transaction.end_lsn)))[:-1])

    def _close(self, last: bytes) -> None:
        self._open = False
        self._write(b"]%b%b}\n" % (b"," if last else b"", last))
        for line in self._after:
            self._write(line)
        self._after.clear()

    def _change(self, parts: list[Part]) -> None:
        """Write one element of `changes` from its parts; the last ends with a comma."""
        self._write(self._comma)
        self._comma = b","
        write_object(parts, self._write)

    def _message(self, message: LogicalMessage) -> None:
        parts = [b'{"op":"message",', pairs(("lsn", lsn_or_none(message.lsn))), *message_parts(message)]
        if message.transaction is not None:
            self._change(parts)
        else:
            write_object(parts, self._line, b"\n")

    def _line(self, line: bytes) -> None:
        if self._open:
            self._after.append(line)
        else:
            self._write(line)
