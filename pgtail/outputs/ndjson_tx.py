"""Newline-delimited JSON, one line per transaction, written while the changes come."""

from __future__ import annotations

from pgtail.changes.events import Ended, Event, LogicalMessage, Outcome, SchemaChange, TableTruncate
from pgtail.files.sink import Sink
from pgtail.native.plan import Field, Plan, Value, joined
from pgtail.outputs import OutputOptions
from pgtail.outputs.ndjson import (
    RowObjects,
    client_object,
    message_head,
    message_parts,
    outcome_object,
    relation_object,
    snapshot_keys,
    transaction_keys,
)
from pgtail.outputs.planned import PlannedOutput
from pgtail.outputs.rows import Shape, Write, write_parts
from pgtail.pgoutput.decoder import FromClient


class JsonTx(PlannedOutput):
    """`-o json-tx`.

    Events outside a transaction (outcomes, non-transactional messages, schema changes, what a client sent) get
    their own lines. While the line of a transaction is being written, they are kept until its end.
    """

    begin = (b"{", *transaction_keys(comma_first=False), snapshot_keys(comma_first=False), b'"changes":[')
    end = (b"]", Value(Field.END_LSN, b',"end_lsn":"', b'"'), b"}\n")
    separator = b","
    incomplete = b'],"incomplete":true}\n'

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        super().__init__(sink, options)
        self._objects = RowObjects(self.choice, options, transaction=False)

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        return self._objects.row(shape, b""), self.write

    def other(self, event: Event) -> None:
        if isinstance(event, TableTruncate):
            truncate = self.rows.truncate(self._objects.truncate(event, b""), event)
            self.write(self.next_separator() + truncate)
        elif isinstance(event, LogicalMessage):
            self._message(event)
        elif isinstance(event, Outcome):
            self.outside(outcome_object(event) + b"\n")
        elif isinstance(event, SchemaChange) and self.options.schema_changes:
            self.outside(relation_object(event) + b"\n")
        elif isinstance(event, FromClient) and self.options.client:
            self.outside(client_object(event) + b"\n")

    def ended(self, event: Ended) -> None:
        if event.complete and event.transaction.aborted:
            self.write(b'],"aborted":true}\n')
        else:
            super().ended(event)

    def _message(self, message: LogicalMessage) -> None:
        if message.transaction is not None:
            head = self.rows.message(joined(self._objects.head(message.op, None)), message)
            write_parts([self.next_separator(), head, *message_parts(message)], self.write)
        else:
            write_parts([message_head(message), *message_parts(message), b"\n"], self.outside)
