"""wal2json's format-version 1: a JSON object for each transaction, written while its changes come.

Source: wal2json.c (pg_decode_begin_txn_v1, pg_decode_change_v1, ...).
"""

from __future__ import annotations

from pgtail._orjson import orjson
from pgtail.changes.events import Ended, Event, LogicalMessage, RowChange, Started, TableTruncate, Transaction
from pgtail.files.sink import Sink
from pgtail.outputs.base import OutputOptions
from pgtail.outputs.cells import timestamp
from pgtail.outputs.prepared import PreparedBuffer
from pgtail.outputs.wal2json.v2 import message_keys
from pgtail.outputs.wal2json.fields import Field, Values
from pgtail.pgoutput.scalars import lsn_text


class Wal2JsonV1:
    """`-o wal2json-v1`.

    Unlike wal2json it writes truncates, as {"kind":"truncate"}, and nextlsn at the end of the object, because it is not
    known earlier. A value that cannot be decoded is a string, and its column is listed in an added key "undecoded".
    """

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        self._write = sink.write
        on = options.wal2json
        self._xids = "include-xids" in on
        self._timestamp = "include-timestamp" in on
        self._lsn = "include-lsn" in on
        self._schemas = "include-schemas" in on
        self._types = "include-types" in on
        self._type_oids = "include-type-oids" in on
        as_string = "numeric-data-types-as-string" in on
        self._values = Values(as_string=as_string, fill=options.fill_unchanged)
        self._open = False
        self._comma = b""
        self._after: list[bytes] = []
        self._prepared_buffer = PreparedBuffer(self._event, options.tell)
        self.event = self._prepared_buffer.event

    def finish(self) -> None:
        self._prepared_buffer.finish()
        if self._open:
            self._close(b',"incomplete":true')

    def _event(self, event: Event) -> None:
        if isinstance(event, RowChange):
            self._row(event)
        elif isinstance(event, TableTruncate):
            self._change(b'{"kind":"truncate"%b}' % self._table(event.relation.schema, event.relation.name))
        elif isinstance(event, LogicalMessage):
            self._message(event)
        elif isinstance(event, Started):
            self._start(event.transaction)
        elif isinstance(event, Ended):
            self._end(event)

    def _start(self, transaction: Transaction) -> None:
        head = b"{"
        if self._xids:
            head += b'"xid":%b,' % orjson.dumps(transaction.xid)
        if self._timestamp:
            time = transaction.commit_ts
            head += b'"timestamp":%b,' % orjson.dumps(None if time is None else timestamp(time))
        self._open, self._comma = True, b""
        self._write(head + b'"change":[')

    def _end(self, event: Ended) -> None:
        if not event.complete:
            self._close(b',"incomplete":true')
        elif self._lsn and event.transaction.end_lsn is not None:
            self._close(b',"nextlsn":%b' % orjson.dumps(lsn_text(event.transaction.end_lsn)))
        else:
            self._close(b"")

    def _close(self, last: bytes) -> None:
        self._open = False
        self._write(b"]%b}\n" % last)
        for line in self._after:
            self._write(line)
        self._after.clear()

    def _change(self, change: bytes) -> None:
        self._write(self._comma + change)
        self._comma = b","

    def _table(self, schema: str, name: str) -> bytes:
        named = b',"schema":%b' % orjson.dumps(schema) if self._schemas else b""
        return b'%b,"table":%b' % (named, orjson.dumps(name))

    def _row(self, change: RowChange) -> None:
        relation = change.relation
        parts = [
            b'{"kind":"%b"' % change.op.encode(),
            self._table(relation.schema, relation.name if relation.seen else relation.qualified),
        ]
        undecoded: list[bytes] = []
        if change.new is not None:
            parts.append(b"," + self._lists(b"column", list(self._values.new(change)), undecoded))
        identity = self._values.identity(change)
        if identity is not None:
            fields = [field for field in identity if not field.null]
            parts.append(b',"oldkeys":{%b}' % self._lists(b"key", fields, undecoded))
        if undecoded:
            parts.append(b',"undecoded":[%b]' % b",".join(undecoded))
        self._change(b"".join([*parts, b"}"]))

    def _lists(self, what: bytes, fields: list[Field], undecoded: list[bytes]) -> bytes:
        """Lists of names, types and values; adds the names of undecoded columns to `undecoded`."""
        undecoded += [field.name for field in fields if field.undecoded and field.name not in undecoded]
        lists = [(b"names", [field.name for field in fields])]
        if self._types:
            lists.append((b"types", [field.type for field in fields]))
        if self._type_oids:
            lists.append((b"typeoids", [b"%d" % field.type_oid for field in fields]))
        lists.append((b"values", [field.value for field in fields]))
        return b",".join([b'"%b%b":[%b]' % (what, name, b",".join(items)) for name, items in lists])

    def _message(self, message: LogicalMessage) -> None:
        text = b'{"kind":"message"%b}' % message_keys(message)
        if message.transaction is not None:
            self._change(text)
            return
        line = b'{"change":[%b]}\n' % text
        if self._open:
            self._after.append(line)
        else:
            self._write(line)
