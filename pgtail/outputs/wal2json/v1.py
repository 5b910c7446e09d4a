"""wal2json's format-version 1: a JSON object for each transaction, written while its changes come.

Source: wal2json.c (pg_decode_begin_txn_v1, pg_decode_change_v1, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pgtail.changes.events import Event, LogicalMessage, TableTruncate
from pgtail.changes.relations import Column
from pgtail.files.sink import Sink
from pgtail.native.plan import INSERT_OPS, Cell, Cells, Field, Piece, Plan, Side, joined
from pgtail.outputs import OutputOptions
from pgtail.outputs.ndjson import dumps, undecoded_names
from pgtail.outputs.rows import Shape, Write
from pgtail.outputs.wal2json.base import Wal2JsonBase, encoding_of, identity_of, member, message_keys, type_json


class Wal2JsonV1(Wal2JsonBase):
    """`-o wal2json-v1`.

    Unlike wal2json it writes truncates, as {"kind":"truncate"}, and nextlsn at the end of the object, because it is not
    known earlier. A value that cannot be decoded is a string, and its column is listed in an added key "undecoded".
    """

    separator = b","
    incomplete = b'],"incomplete":true}\n'

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        super().__init__(sink, options)
        on = self._on
        begin: list[Piece] = [b"{"]
        if "include-xids" in on:
            begin.append(member(b"xid", Field.XID, quote=b"", after=b","))
        if "include-timestamp" in on:
            begin.append(member(b"timestamp", Field.TIMESTAMP, after=b","))
        self.begin = joined([*begin, b'"change":['])
        self.end = joined([b"]", *self.next_lsn(), b"}\n"])

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        relation, columns = shape.relation, shape.columns
        kind = "insert" if shape.op in INSERT_OPS else shape.op
        pieces: list[Piece] = [b'{"kind":"%b"' % kind.encode(), self.row_keys(relation)]
        if shape.new_width is not None:
            pieces += [b",", *self._lists(b'"column%b":[', columns, "new", range(shape.new_width), whole=True)]
        identity = identity_of(shape)
        if identity is not None:
            pieces += [b',"oldkeys":{', *self._lists(b'"key%b":[', columns, *identity, whole=False), b"}"]
        return joined([*pieces, undecoded_names(columns), b"}"]), self.write

    def other(self, event: Event) -> None:
        if isinstance(event, TableTruncate):
            table = self.table_keys(event.relation)
            self.write(self.next_separator() + b'{"kind":"truncate"%b}' % table)
        elif isinstance(event, LogicalMessage):
            text = b'{"kind":"message"%b}' % message_keys(event)
            if event.transaction is not None:
                self.write(self.next_separator() + text)
            else:
                self.outside(b'{"change":[%b]}\n' % text)

    def _lists(
        self, start: bytes, columns: Sequence[Column], side: Side, indexes: Sequence[int], *, whole: bool
    ) -> list[Piece]:
        """The lists of names, types and values of a tuple, each after `start`.

        `whole` says that it is the whole new row: with NULLs, and filled if that is asked for.
        """
        texts: list[tuple[bytes, Callable[[Column], bytes]]] = [(b"names", lambda column: dumps(column.name))]
        if "include-types" in self._on:
            texts.append((b"types", type_json))
        if "include-type-oids" in self._on:
            texts.append((b"typeoids", lambda column: b"%d" % column.type_oid))
        fill = whole and self.options.fill_unchanged
        pieces: list[Piece] = []
        for name, text in texts:
            cells = [Cell(i, text(columns[i]), None, b"" if whole else None) for i in indexes]
            pieces += [start % name, Cells(side, tuple(cells), fill=fill), b"],"]
        as_string = "numeric-data-types-as-string" in self._on
        values = [
            Cell(i, b"", encoding_of(columns[i], as_string=as_string), b"null" if whole else None) for i in indexes
        ]
        return [*pieces, start % b"values", Cells(side, tuple(values), fill=fill), b"]"]
