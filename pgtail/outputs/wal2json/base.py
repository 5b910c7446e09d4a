"""What both versions of wal2json's format have in common."""

from __future__ import annotations

from pgtail.changes.events import LogicalMessage, Transaction
from pgtail.changes.relations import Relation
from pgtail.files.sink import Sink
from pgtail.native.plan import Field, Piece, Value
from pgtail.outputs import OutputOptions
from pgtail.outputs.ndjson import keys
from pgtail.outputs.planned import PlannedOutput
from pgtail.outputs.wal2json.options import enabled
from pgtail.pgoutput.scalars import lsn_text
from pgtail.terminal.escape import escape


class Wal2JsonBase(PlannedOutput):
    """One of the versions; `_on` are the options that are on."""

    buffers_prepared = True

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        super().__init__(sink, options)
        self._on = enabled(options.wal2json)

    def started(self, transaction: Transaction) -> None:
        table = self.written.repeated(transaction)
        if table is not None:
            name, place = escape(table.qualified), lsn_text(transaction.commit_lsn or 0)
            self.options.tell(f"note: the snapshot of {name} at {place} repeats rows: readers take them for inserts")
        super().started(transaction)

    def table_keys(self, relation: Relation) -> bytes:
        """The names of the table and, if that is asked for, of its schema."""
        return self._names(relation, relation.name)

    def row_keys(self, relation: Relation) -> bytes:
        """The same for its rows, which are about to be written, also if it was not described."""
        self.written.add(relation)
        return self._names(relation, relation.name_or_oid)

    def _names(self, relation: Relation, name: str) -> bytes:
        return keys(("schema", relation.schema if "include-schemas" in self._on else None), ("table", name))

    def next_lsn(self) -> list[Piece]:
        """The end LSN of the transaction, if it is known and asked for."""
        return [Value(Field.END_LSN, b',"nextlsn":"', b'"')] if "include-lsn" in self._on else []


def message_keys(message: LogicalMessage) -> bytes:
    r"""A logical message; its content as text or, if it is not text, as `\x` and hex digits."""
    head = keys(("transactional", message.transactional), ("prefix", message.prefix))
    try:
        return head + keys(("content", message.content.decode()))
    except ValueError:
        return head + keys(("content", f"\\x{message.content.hex()}"), ("undecoded", True))
