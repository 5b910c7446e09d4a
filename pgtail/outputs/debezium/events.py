"""Write the values of Debezium's events as Kafka Connect's JsonConverter does.

Sources: Debezium's documentation, "Data change events" and "Transaction metadata"; SourceInfo.java. pgtail adds a key
"undecoded" with the text of columns that are null because their value has no Debezium form.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from pgtail import __version__
from pgtail._orjson import orjson
from pgtail.changes.events import (
    Ended,
    Event,
    LogicalMessage,
    RowChange,
    Started,
    TableTruncate,
    Transaction,
    not_in_identity,
)
from pgtail.changes.relations import Column, Relation
from pgtail.files.sink import Sink
from pgtail.outputs.base import OutputOptions
from pgtail.outputs.cells import cell_text, columns_of, filled
from pgtail.outputs.debezium import schema
from pgtail.outputs.debezium.values import UNAVAILABLE, Converter, converter
from pgtail.outputs.prepared import PreparedBuffer
from pgtail.pgoutput.cells import UNCHANGED, TupleData
from pgtail.pgoutput.scalars import unix_micros
from pgtail.values import Undecoded
from pgtail.values.arraytext import NotAnArray

_OPS: Final = {"insert": b"c", "update": b"u", "delete": b"d"}
_dumps = orjson.dumps


class _Table:
    """The parts of events that depend on the version of a table only."""

    def __init__(self, relation: Relation, count: int, options: OutputOptions) -> None:
        self.relation = relation
        self.columns: list[tuple[bytes, Column, Converter]] = [
            (_dumps(column.name), column, converter(column, options.numbers)) for column in columns_of(relation, count)
        ]
        self.name = relation.name if relation.seen else relation.qualified
        self.collection = f"{relation.schema}.{self.name}"
        self.source = b'"schema":%b,"table":%b' % (_dumps(relation.schema), _dumps(self.name))
        self.schema = b""
        if options.kafka_schema:
            columns = [(column, convert) for _, column, convert in self.columns]
            key = relation.identity != "full"
            prefix = options.source_name
            self.schema = schema.envelope(prefix, relation.schema, self.name, columns, key=key)


class _Row:
    """A row as JSON, and the text of its undecoded columns."""

    def __init__(self, table: _Table, cells: TupleData, skip: frozenset[int] = frozenset()) -> None:
        self.undecoded: dict[str, str] = {}
        found = []
        for index, (cell, (name, column, convert)) in enumerate(zip(cells, table.columns)):  # noqa: B905 -- may be shorter
            if index in skip:
                continue
            if cell is None:
                found.append(name + b":null")
            elif cell is UNCHANGED:
                found.append(b"%b:%b" % (name, convert.placeholder or self._null(column, UNAVAILABLE)))
            else:
                found.append(b"%b:%b" % (name, self._value(column, convert, cell)))
        self.json = b"{%b}" % b",".join(found)

    def _value(self, column: Column, convert: Converter, cell: Any) -> bytes:
        try:
            text = cell_text(column.codec, cell)
        except Undecoded as undecoded:
            return self._null(column, undecoded.text)
        try:
            return convert.json(text)
        except (ValueError, NotAnArray):
            return self._null(column, text)

    def _null(self, column: Column, text: str) -> bytes:
        self.undecoded[column.name] = text
        return b"null"


def clock() -> int:
    """The current time in nanoseconds since 1970-01-01 UTC."""
    return time.time_ns()


class Debezium:
    """`-o debezium`. `now` is the clock for the times of processing (ts_ms, ts_us, ts_ns)."""

    def __init__(self, sink: Sink, options: OutputOptions, *, now: Callable[[], int] = clock) -> None:
        self._write = sink.write
        self._options = options
        self._now = now
        self._tables: dict[int, _Table] = {}
        self._head = b'"source":{"version":%b,"connector":"postgresql","name":%b' % (
            _dumps(f"pgtail {__version__}"),
            _dumps(options.source_name),
        )
        self._last_commit: int | None = None
        self._counts: Counter[str] = Counter()
        self._prepared_buffer = PreparedBuffer(self._event, options.tell)
        self.event = self._prepared_buffer.event

    def finish(self) -> None:
        self._prepared_buffer.finish()

    def _event(self, event: Event) -> None:
        if isinstance(event, RowChange):
            self._row(event)
        elif isinstance(event, TableTruncate):
            table = self._table(event.relation, 0)
            self._change(table, event, b"t", b"", {})
        elif isinstance(event, LogicalMessage):
            self._message(event)
        elif isinstance(event, Started):
            self._counts.clear()
            if self._options.transactions:
                self._boundary(event.transaction, b"BEGIN", event.transaction.lsn, b'"event_count":null', b"null")
        elif isinstance(event, Ended) and event.complete:
            self._end(event.transaction)

    def _end(self, transaction: Transaction) -> None:
        if self._options.transactions:
            collections = _dumps(
                [{"data_collection": name, "event_count": count} for name, count in self._counts.items() if name]
            )
            count = b'"event_count":%d' % self._counts.total()
            self._boundary(transaction, b"END", transaction.end_lsn, count, collections)
        self._last_commit = transaction.end_lsn

    def _boundary(
        self, transaction: Transaction, status: bytes, lsn: int | None, count: bytes, collections: bytes
    ) -> None:
        id_ = _dumps(_transaction_id(transaction, lsn))
        millis = self._now() // 1_000_000 if transaction.time is None else unix_micros(transaction.time) // 1000
        payload = b'{"status":"%b","id":%b,%b,"data_collections":%b,"ts_ms":%d}' % (
            status,
            id_,
            count,
            collections,
            millis,
        )
        self._line(schema.BOUNDARY, payload)

    def _table(self, relation: Relation, count: int) -> _Table:
        table = self._tables.get(relation.version)
        if table is None or table.relation is not relation or len(table.columns) < count:
            table = self._tables[relation.version] = _Table(relation, count, self._options)
        return table

    def _row(self, change: RowChange) -> None:
        table = self._table(change.relation, max(len(change.old or ()), len(change.new or ())))
        before = after = None
        if change.old is not None:
            before = _Row(table, change.old, frozenset(not_in_identity(change)))
        if change.new is not None:
            after = _Row(table, filled(change))
        if change.op == "update" and before is not None and after is not None and _key_changed(change):
            # The connector writes a delete of the old key and a create of the new one.
            self._rows(table, change, b"d", before, None)
            self._rows(table, change, b"c", None, after)
        else:
            self._rows(table, change, _OPS[change.op], before, after)

    def _rows(self, table: _Table, change: RowChange, op: bytes, before: _Row | None, after: _Row | None) -> None:
        rows = [(name, row) for name, row in (("before", before), ("after", after)) if row is not None]
        json = {name: row.json for name, row in rows}
        undecoded = {name: row.undecoded for name, row in rows if row.undecoded}
        states = b'"before":%b,"after":%b,' % (json.get("before", b"null"), json.get("after", b"null"))
        self._change(table, change, op, states, undecoded)

    def _change(
        self, table: _Table, change: RowChange | TableTruncate, op: bytes, states: bytes, undecoded: dict[str, Any]
    ) -> None:
        transaction = change.transaction
        source = self._source(transaction, change.lsn, table.source)
        block = self._block(transaction, change.lsn, table.collection)
        last = b',"undecoded":%b' % _dumps(undecoded) if undecoded else b""
        payload = b'{%b%b,"transaction":%b,"op":"%b",%b%b}' % (states, source, block, op, self._times(), last)
        self._line(table.schema, payload)

    def _message(self, message: LogicalMessage) -> None:
        source = self._source(message.transaction, message.lsn, b'"schema":"","table":""')
        block = b"null" if message.transaction is None else self._block(message.transaction, message.lsn, "")
        content = b64encode(message.content)
        words = b'"message":{"prefix":%b,"content":"%b"}' % (_dumps(message.prefix), content)
        payload = b'{%b,"transaction":%b,"op":"m",%b,%b}' % (source, block, self._times(), words)
        self._line(schema.MESSAGE, payload)

    def _source(self, transaction: Transaction | None, lsn: int | None, table: bytes) -> bytes:
        """The source block of a change. Its time is that of the commit; without a commit, the current time."""
        when = None if transaction is None else transaction.time
        micros = self._now() // 1000 if when is None else unix_micros(when)
        sequence = [None if one is None else str(one) for one in (self._last_commit, lsn)]
        return (
            b'%b,"ts_ms":%d,"snapshot":"false","db":%b,"sequence":%b,"ts_us":%d,"ts_ns":%d,%b,"txId":%b,"lsn":%b,"xmin":null}'
            % (
                self._head,
                micros // 1000,
                _dumps(self._options.database),
                _dumps(_dumps(sequence).decode()),
                micros,
                micros * 1000,
                table,
                _dumps(None if transaction is None else transaction.xid),
                _dumps(lsn),
            )
        )

    def _block(self, transaction: Transaction, lsn: int | None, collection: str) -> bytes:
        """The transaction block: the event's position in its transaction; null without --transactions."""
        if not self._options.transactions:
            return b"null"
        self._counts[collection] += 1
        return b'{"id":%b,"total_order":%d,"data_collection_order":%d}' % (
            _dumps(_transaction_id(transaction, lsn)),
            self._counts.total(),
            self._counts[collection],
        )

    def _times(self) -> bytes:
        nanos = self._now()
        return b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d' % (nanos // 1_000_000, nanos // 1000, nanos)

    def _line(self, schema: bytes, payload: bytes) -> None:
        if self._options.kafka_schema:
            payload = b'{"schema":%b,"payload":%b}' % (schema, payload)
        self._write(payload + b"\n")


def _key_changed(change: RowChange) -> bool:
    """Whether the primary key changed. Its columns are known under REPLICA IDENTITY DEFAULT only.

    The old key is also sent if it is TOASTed; an unsent new column did not change.
    """
    old, new, relation = change.old, change.new, change.relation
    if old is None or new is None or relation.identity != "default":
        return False
    places = [index for index, column in enumerate(relation.columns) if column.key]
    known = [index for index in places if index < min(len(old), len(new)) and new[index] is not UNCHANGED]
    return any(old[index] != new[index] for index in known)


def _transaction_id(transaction: Transaction, lsn: int | None) -> str:
    """xid:LSN, with the LSN of the change or, if unknown, of the commit."""
    return f"{transaction.xid}:{transaction.lsn if lsn is None else lsn}"
