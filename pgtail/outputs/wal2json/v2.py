"""wal2json's format-version 2: a line of JSON for each change, and for the begin and end of each transaction.

Source: wal2json.c (pg_decode_begin_txn_v2, pg_decode_change_v2, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pgtail.changes.events import Event, LogicalMessage, TableTruncate, Transaction
from pgtail.changes.relations import Column, Relation
from pgtail.files.sink import Sink
from pgtail.native.plan import Cell, Cells, Field, Piece, Plan, Side, Value, joined
from pgtail.outputs import OutputOptions
from pgtail.outputs.ndjson import dumps, keys
from pgtail.outputs.planned import PlannedOutput
from pgtail.outputs.rows import Shape, Write
from pgtail.outputs.wal2json.options import enabled
from pgtail.outputs.wal2json.values import encoding_of, identity_of, member, type_json
from pgtail.pgoutput.scalars import lsn_text
from pgtail.terminal.escape import escape

_ACTIONS = {"insert": b"I", "update": b"U", "delete": b"D", "snapshot": b"I"}


class Wal2Json(PlannedOutput):
    """`-o wal2json`. A value that cannot be decoded is a string, with an added key "undecoded"."""

    buffers_prepared = True

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        super().__init__(sink, options)
        self._on = enabled(options.wal2json)
        if "include-transaction" in self._on:
            self.begin, self.end = self._boundary(b"B"), self._boundary(b"C")

    def started(self, transaction: Transaction) -> None:
        tell_repeated(self.written.repeated(transaction), transaction, self.options.tell)
        super().started(transaction)

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        relation = shape.relation
        self.written.add(relation)
        name = relation.name if relation.seen else relation.qualified
        pieces = [*self._head(_ACTIONS[shape.op], Field.LSN), table_keys(self._on, relation.schema, name)]
        if shape.new_width is not None:
            columns = self._cells(shape, "new", range(shape.new_width), fill=self.options.fill_unchanged)
            pieces += [b',"columns":[', columns, b"]"]
        identity = identity_of(shape)
        if identity is not None:
            pieces += [b',"identity":[', self._cells(shape, *identity), b"]"]
        return joined([*pieces, b"}\n"]), self.write

    def other(self, event: Event) -> None:
        if isinstance(event, TableTruncate):
            table = table_keys(self._on, event.relation.schema, event.relation.name)
            self.write(self.rows.truncate(joined([*self._head(b"T", Field.LSN), table, b"}\n"]), event))
        elif isinstance(event, LogicalMessage):
            plan = joined([*self._head(b"M", Field.LSN), message_keys(event), b"}\n"])
            self.write(self.rows.message(plan, event))

    def _head(self, action: bytes, lsn: Field) -> list[Piece]:
        """The keys of every line."""
        found: list[Piece] = [b'{"action":"%b"' % action]
        if "include-xids" in self._on:
            found.append(member(b"xid", Field.XID, quote=b"", before=b","))
        if "include-timestamp" in self._on:
            found.append(member(b"timestamp", Field.TIMESTAMP, before=b","))
        if "include-lsn" in self._on:
            found.append(member(b"lsn", lsn, before=b","))
        return found

    def _boundary(self, action: bytes) -> Plan:
        """The line for the begin or the end of a transaction. Its end LSN is not known at the begin."""
        return joined([*self._head(action, Field.COMMIT_LSN), *next_lsn(self._on), b"}\n"])

    def _cells(self, shape: Shape, side: Side, indexes: Iterable[int], *, fill: bool = False) -> Cells:
        columns = shape.columns
        cells = [self._cell(i, columns[i], null=side == "new" or shape.in_old(i)) for i in indexes]
        return Cells(side, tuple(cells), fill=fill)

    def _cell(self, index: int, column: Column, *, null: bool) -> Cell:
        before = b'{"name":%b' % dumps(column.name)
        if "include-types" in self._on:
            before += b',"type":%b' % type_json(column)
        if "include-type-oids" in self._on:
            before += b',"typeoid":%d' % column.type_oid
        as_string = "numeric-data-types-as-string" in self._on
        encoding = encoding_of(column, as_string=as_string, mark=b',"undecoded":true')
        return Cell(index, before + b',"value":', encoding, b"null" if null else None, after=b"}")


def tell_repeated(table: Relation | None, transaction: Transaction, tell: Callable[[str], None]) -> None:
    """Tell that a snapshot repeats rows of a table, if there is one."""
    if table is not None:
        place = lsn_text(transaction.commit_lsn or 0)
        tell(f"note: the snapshot of {escape(table.qualified)} at {place} repeats rows: readers take them for inserts")


def next_lsn(on: frozenset[str]) -> list[Piece]:
    """The end LSN of the transaction, if it is known and asked for by the options that are on."""
    return [Value(Field.END_LSN, b',"nextlsn":"', b'"')] if "include-lsn" in on else []


def table_keys(on: frozenset[str], schema: str, name: str) -> bytes:
    """The names of the table and, by the options that are on, of its schema."""
    return keys(("schema", schema if "include-schemas" in on else None), ("table", name))


def message_keys(message: LogicalMessage) -> bytes:
    r"""A logical message; its content as text or, if it is not text, as `\x` and hex digits."""
    head = keys(("transactional", message.transactional), ("prefix", message.prefix))
    try:
        return head + keys(("content", message.content.decode()))
    except ValueError:
        return head + keys(("content", f"\\x{message.content.hex()}"), ("undecoded", True))
