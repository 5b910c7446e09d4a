"""wal2json's format-version 2: a line of JSON for each change, and for the begin and end of each transaction.

Source: wal2json.c (pg_decode_begin_txn_v2, pg_decode_change_v2, ...).
"""

from __future__ import annotations

from collections.abc import Iterable

from pgtail.changes.events import Event, LogicalMessage, TableTruncate
from pgtail.changes.relations import Column
from pgtail.files.sink import Sink
from pgtail.native.plan import Cell, Cells, Field, Piece, Plan, Side, joined
from pgtail.outputs import OutputOptions
from pgtail.outputs.ndjson import dumps
from pgtail.outputs.rows import Shape, Write
from pgtail.outputs.wal2json.base import Wal2JsonBase, encoding_of, identity_of, member, message_keys, type_json

_ACTIONS = {"insert": b"I", "update": b"U", "delete": b"D", "snapshot": b"I"}


class Wal2Json(Wal2JsonBase):
    """`-o wal2json`. A value that cannot be decoded is a string, with an added key "undecoded"."""

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        super().__init__(sink, options)
        if "include-transaction" in self._on:
            self.begin, self.end = self._boundary(b"B"), self._boundary(b"C")

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        relation = shape.relation
        pieces = [*self._head(_ACTIONS[shape.op], Field.LSN), self.row_keys(relation)]
        if shape.new_width is not None:
            columns = self._cells(shape, "new", range(shape.new_width), fill=self.options.fill_unchanged)
            pieces += [b',"columns":[', columns, b"]"]
        identity = identity_of(shape)
        if identity is not None:
            pieces += [b',"identity":[', self._cells(shape, *identity), b"]"]
        return joined([*pieces, b"}\n"]), self.write

    def other(self, event: Event) -> None:
        if isinstance(event, TableTruncate):
            table = self.table_keys(event.relation)
            self.write(self.rows.truncate(joined([*self._head(b"T", Field.LSN), table, b"}\n"]), event))
        elif isinstance(event, LogicalMessage):
            plan = joined([*self._head(b"M", Field.LSN), message_keys(event), b"}\n"])
            self.write(self.rows.message(plan, event))

    def _head(self, action: bytes, lsn: Field) -> list[Piece]:
        pieces: list[Piece] = [b'{"action":"%b"' % action]
        if "include-xids" in self._on:
            pieces.append(member(b"xid", Field.XID, quote=b"", before=b","))
        if "include-timestamp" in self._on:
            pieces.append(member(b"timestamp", Field.TIMESTAMP, before=b","))
        if "include-lsn" in self._on:
            pieces.append(member(b"lsn", lsn, before=b","))
        return pieces

    def _boundary(self, action: bytes) -> Plan:
        """The line for the begin or the end of a transaction. Its end LSN is not known at the begin."""
        return joined([*self._head(action, Field.COMMIT_LSN), *self.next_lsn(), b"}\n"])

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
