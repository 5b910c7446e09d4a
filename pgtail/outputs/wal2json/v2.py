"""wal2json's format-version 2: a line of JSON for each change, and for the begin and end of each transaction.

Source: wal2json.c (pg_decode_begin_txn_v2, pg_decode_change_v2, ...).
"""

from __future__ import annotations

from pgtail._orjson import orjson
from pgtail.changes.events import Ended, Event, LogicalMessage, RowChange, Started, TableTruncate, Transaction
from pgtail.files.sink import Sink
from pgtail.outputs.base import OutputOptions
from pgtail.outputs.cells import timestamp
from pgtail.outputs.prepared import PreparedBuffer
from pgtail.outputs.wal2json.values import Field, Values
from pgtail.pgoutput.scalars import lsn_text

_ACTIONS = {"insert": b"I", "update": b"U", "delete": b"D"}


class Wal2Json:
    """`-o wal2json`. A value that cannot be decoded is a string, with an added key "undecoded"."""

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        self._write = sink.write
        on = options.wal2json
        self._transaction = "include-transaction" in on
        self._xids = "include-xids" in on
        self._timestamp = "include-timestamp" in on
        self._lsn = "include-lsn" in on
        self._schemas = "include-schemas" in on
        self._types = "include-types" in on
        self._type_oids = "include-type-oids" in on
        as_string = "numeric-data-types-as-string" in on
        self._values = Values(as_string=as_string, fill=options.fill_unchanged)
        self._prepared_buffer = PreparedBuffer(self._event, options.tell)
        self.event = self._prepared_buffer.event

    def finish(self) -> None:
        self._prepared_buffer.finish()

    def _event(self, event: Event) -> None:
        if isinstance(event, RowChange):
            self._row(event)
        elif isinstance(event, TableTruncate):
            head = self._head(b"T", event.transaction, event.lsn)
            self._line(head, self._table(event.relation.schema, event.relation.name))
        elif isinstance(event, LogicalMessage):
            self._message(event)
        elif isinstance(event, Started) and self._transaction:
            self._line(self._head(b"B", event.transaction, event.transaction.commit_lsn), self._next(event.transaction))
        elif isinstance(event, Ended) and event.complete and self._transaction:
            self._line(self._head(b"C", event.transaction, event.transaction.commit_lsn), self._next(event.transaction))

    def _head(self, action: bytes, transaction: Transaction | None, lsn: int | None) -> bytes:
        """The keys of every line; null if unknown."""
        parts = [b'{"action":"%b"' % action]
        if self._xids:
            parts.append(b',"xid":%b' % orjson.dumps(None if transaction is None else transaction.xid))
        if self._timestamp:
            time = None if transaction is None else transaction.commit_ts
            parts.append(b',"timestamp":%b' % orjson.dumps(None if time is None else timestamp(time)))
        if self._lsn:
            parts.append(b',"lsn":%b' % orjson.dumps(None if lsn is None else lsn_text(lsn)))
        return b"".join(parts)

    def _next(self, transaction: Transaction) -> bytes:
        """The end LSN of the transaction, if known: it is not at the begin of a transaction."""
        if not self._lsn or transaction.end_lsn is None:
            return b""
        return b',"nextlsn":%b' % orjson.dumps(lsn_text(transaction.end_lsn))

    def _table(self, schema: str, name: str) -> bytes:
        named = b',"schema":%b' % orjson.dumps(schema) if self._schemas else b""
        return b'%b,"table":%b' % (named, orjson.dumps(name))

    def _row(self, change: RowChange) -> None:
        relation = change.relation
        parts = [
            self._head(_ACTIONS[change.op], change.transaction, change.lsn),
            self._table(relation.schema, relation.name if relation.seen else relation.qualified),
        ]
        if change.new is not None:
            parts.append(b',"columns":[%b]' % b",".join(map(self._column, self._values.new(change))))
        identity = self._values.identity(change)
        if identity is not None:
            parts.append(b',"identity":[%b]' % b",".join(map(self._column, identity)))
        self._line(*parts)

    def _column(self, field: Field) -> bytes:
        named = b',"type":%b' % field.type if self._types else b""
        numbered = b',"typeoid":%d' % field.type_oid if self._type_oids else b""
        undecoded = b',"undecoded":true' if field.undecoded else b""
        return b'{"name":%b%b%b,"value":%b%b}' % (field.name, named, numbered, field.value, undecoded)

    def _message(self, message: LogicalMessage) -> None:
        head = self._head(b"M", message.transaction, message.lsn)
        transactional = b"true" if message.transactional else b"false"
        prefix = orjson.dumps(message.prefix)
        self._line(head, b',"transactional":%b,"prefix":%b' % (transactional, prefix), content_of(message))

    def _line(self, *parts: bytes) -> None:
        self._write(b"".join([*parts, b"}\n"]))


def content_of(message: LogicalMessage) -> bytes:
    r"""A logical message's content as text, as wal2json writes it; if it is not text, as `\x` and hex digits."""
    try:
        return b',"content":%b' % orjson.dumps(message.content.decode())
    except ValueError:
        return b',"content":%b,"undecoded":true' % orjson.dumps(f"\\x{message.content.hex()}")
