"""Write the values of Debezium's events as Kafka Connect's JsonConverter does.

Sources: Debezium's documentation, "Data change events" and "Transaction metadata"; SourceInfo.java. pgtail adds a key
"undecoded" with the text of columns that are null because their value has no Debezium form.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pgtail import __version__
from pgtail._orjson import orjson
from pgtail.changes.events import Ended, Event, LogicalMessage, RowChange, SnapshotEnded, TableTruncate, Transaction
from pgtail.changes.relations import Column, Relation
from pgtail.errors import OptionError
from pgtail.files.sink import Sink
from pgtail.humanize import counted
from pgtail.log import log_outcome, logger
from pgtail.native.plan import Cell, Cells, Field, Piece, Plan, Undecodable, UndecodedValue, Value, joined
from pgtail.outputs import OutputOptions
from pgtail.outputs.debezium import schema
from pgtail.outputs.debezium.snapshot import MARK, SnapshotRows
from pgtail.outputs.debezium.values import UNAVAILABLE, Converter, converter
from pgtail.outputs.planned import PlannedOutput
from pgtail.outputs.rows import Rows, Shape, Write, encoding_of_text
from pgtail.pgoutput.cells import UNCHANGED
from pgtail.terminal.escape import escape

_READ: Final = b"r"
_OPS: Final = {"insert": b"c", "update": b"u", "delete": b"d", "snapshot": _READ}
_ROWS: Final = {"old": "before", "new": "after"}
_XID: Final = (Value(Field.XID, missing=b"None"), b":")
_POSITION: Final = (Value(Field.POSITION_NUMBER, missing=b"None"),)
"""The two parts of a transaction's ID; the position is that of the change or, if unknown, of the commit."""
_ORDERS: Final = b"\1"
"""Stands in events for their numbers in the transaction (--transactions). JSON has no such byte."""
_ALL, _MESSAGES = "events", "messages"
"""Keys of these numbers. Those of tables are their names, which have a dot."""
_TIMES: Final = (
    *(b'"ts_ms":', Value(Field.NOW_MS)),
    *(b',"ts_us":', Value(Field.NOW_US)),
    *(b',"ts_ns":', Value(Field.NOW_NS)),
)
"""The time of processing."""

_dumps = orjson.dumps


class Debezium(PlannedOutput):
    """`-o debezium`.

    With --keys each line is a key, a tab and an event, or no event (a tombstone) after a delete. Truncates have no key
    and are left out. Raises OptionError for --keys with --transactions.
    """

    buffers_prepared = True
    events_only = True

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        super().__init__(sink, options)
        self._server, _, database = (options.source_name or "pgtail").partition("/")
        self._database = database or options.database
        self.begin = self._boundary(b"BEGIN", _POSITION, [b'"event_count":null,"data_collections":null'])
        self._numbers: Counter[str] = Counter()
        """The last number of the open transaction by key."""
        self._new_keys = Rows(self._new_key, self.clock)
        self._snapshot = SnapshotRows(self.write)
        self._truncates = 0
        """The truncates that were left out."""
        self._without_key: set[str] = set()
        """The tables whose key is not known."""
        if options.keys and options.transactions:
            raise OptionError(
                "--keys is for one Kafka topic; the connector sends the events of --transactions to another"
            )

    def started(self, transaction: Transaction) -> None:
        """The connector sends no transactions for snapshots."""
        if transaction.snapshot:
            self._snapshot.begin_table(transaction)
        else:
            self._numbers.clear()
            super().started(transaction)

    def ended(self, event: Ended) -> None:
        transaction = event.transaction
        if event.complete and transaction.snapshot:
            self._snapshot.end_table()
        elif event.complete:
            position = [Value(Field.END_NUMBER, missing=Field.POSITION_NUMBER)]
            plan = self._boundary(b"END", position, [_counts(self._numbers)])
            self.write(self.rows.boundary(plan, transaction, lsn=transaction.commit_lsn))

    def close(self) -> None:
        super().close()
        self._snapshot.end(complete=False)
        if self._truncates:
            log_outcome(f"left out {counted(self._truncates, 'truncate')}: they have no key (--keys)")
            self._truncates = 0

    def _row(self, change: RowChange) -> None:
        if _has_new_key(change):
            self._new_keys.last_end = self.rows.last_end
            self._new_keys.write(change)
        else:
            super()._row(change)

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        before, after = self._tuples(shape)
        plan = self._row_event(shape, _OPS[shape.op], before, after)
        return plan, self._snapshot.write if shape.op == "snapshot" else self._numbering(shape.relation)

    def _new_key(self, shape: Shape) -> tuple[Plan, Write]:
        """An update of the key: the connector writes a delete of the old key and a create of the new one."""
        before, after = self._tuples(shape)
        plan = self._row_event(shape, b"d", before, None) + self._row_event(shape, b"c", None, after)
        return joined(plan), self._numbering(shape.relation)

    def _tuples(self, shape: Shape) -> tuple[Cells | None, Cells | None]:
        converters = self._converters(shape.columns)
        return (
            None if shape.old_width is None else _before(shape, converters[: shape.old_width]),
            None if shape.new_width is None else _after(converters[: shape.new_width]),
        )

    def _converters(self, columns: Sequence[Column]) -> list[tuple[Column, Converter]]:
        return [(column, converter(column, self.options.numbers)) for column in columns]

    def _row_event(self, shape: Shape, op: bytes, before: Cells | None, after: Cells | None) -> Plan:
        relation, converters = shape.relation, self._converters(shape.columns)
        states = [b'"before":', *_object(before), b',"after":', *_object(after), b","]
        undecoded = _undecoded(shape.columns, [cells.side for cells in (before, after) if cells is not None])
        payload = self._payload(op, relation, states, [Undecodable(undecoded)])
        line = self._line(self._envelope(relation, converters), payload)
        return self._keyed(op, line, relation, converters, after or before)

    def _numbering(self, relation: Relation | None) -> Write:
        """The function that writes events, or parts of them, of a table or of messages."""
        if not self.options.transactions:
            return self.write
        collection = _MESSAGES if relation is None else f"{relation.schema}.{relation.name_or_oid}"
        return partial(self._write_numbered, collection)

    def _write_numbered(self, collection: str, text: bytes) -> None:
        first, *rest = text.split(_ORDERS)
        for part in rest:
            self._numbers.update((_ALL, collection))
            numbers = self._numbers[_ALL], self._numbers[collection]
            first += b'"total_order":%d,"data_collection_order":%d%b' % (*numbers, part)
        self.write(first)

    def other(self, event: Event) -> None:
        if isinstance(event, SnapshotEnded):
            self._snapshot.end(complete=event.complete)
        elif isinstance(event, TableTruncate) and self.options.keys:
            self._truncates += 1
        elif isinstance(event, TableTruncate):
            relation = event.relation
            envelope = self._envelope(relation, self._converters(relation.columns))
            plan = self._line(envelope, self._payload(b"t", relation))
            self._numbering(relation)(self.rows.truncate(plan, event))
        elif isinstance(event, LogicalMessage):
            content = b',"message":{"prefix":%b,"content":"%b"}' % (_dumps(event.prefix), b64encode(event.content))
            payload = self._payload(b"m", None, [], [content], inside=event.transaction is not None)
            line = self._line(schema.MESSAGE, payload)
            if self.options.keys:
                key = self._with_schema(schema.MESSAGE_KEY, [b'{"prefix":%b}' % _dumps(event.prefix)])
                line = joined([*key, b"\t", *line])
            self._numbering(None)(self.rows.message(line, event))

    def _boundary(self, status: bytes, position: Sequence[Piece], counts: Sequence[Piece]) -> Plan:
        """The start or the end of a transaction, with --transactions."""
        if not self.options.transactions:
            return ()
        time = Value(Field.UNIX_MS, missing=Field.NOW_MS)
        event = [b'{"status":"%b","id":"' % status, *_XID, *position, b'",', *counts, b',"ts_ms":', time, b"}"]
        return self._line(schema.BOUNDARY, event)

    def _payload(
        self,
        op: bytes,
        relation: Relation | None,
        states: Sequence[Piece] = (),
        last: Sequence[Piece] = (),
        *,
        inside: bool = True,
    ) -> list[Piece]:
        """An event; `inside` a transaction, or outside any. A message has no relation."""
        source = self._source(relation, MARK if op == _READ else b"false")
        block = self._block() if inside and op != _READ else [b"null"]
        return [b"{", *states, *source, b',"transaction":', *block, b',"op":"%b",' % op, *_TIMES, *last, b"}"]

    def _source(self, relation: Relation | None, snapshot: bytes) -> list[Piece]:
        """The source block of a change. Its time is that of the commit; without a commit, the current time."""
        version, name, database = _dumps(f"pgtail {__version__}"), _dumps(self._server), _dumps(self._database)
        table = (b'""', b'""') if relation is None else (_dumps(relation.schema), _dumps(relation.name_or_oid))
        return [
            b'"source":{"version":%b,"connector":"postgresql","name":%b' % (version, name),
            *(b',"ts_ms":', Value(Field.UNIX_MS, missing=Field.NOW_MS)),
            b',"snapshot":"%b","db":%b' % (snapshot, database),
            *(b',"sequence":"[', Value(Field.LAST_END, b'\\"', b'\\"', b"null")),
            *(b",", Value(Field.LSN_NUMBER, b'\\"', b'\\"', b"null")),
            *(b']","ts_us":', Value(Field.UNIX_US, missing=Field.NOW_US)),
            *(b',"ts_ns":', Value(Field.UNIX_NS, missing=Field.NOW_NS)),
            b',"schema":%b,"table":%b' % table,
            *(b',"txId":', Value(Field.XID, missing=b"null")),
            *(b',"lsn":', Value(Field.LSN_NUMBER, missing=b"null"), b',"xmin":null}'),
        ]

    def _block(self) -> list[Piece]:
        """The transaction block: the event's position in its transaction; null without --transactions."""
        return [b'{"id":"', *_XID, *_POSITION, b'",', _ORDERS, b"}"] if self.options.transactions else [b"null"]

    def _envelope(self, relation: Relation, converters: list[tuple[Column, Converter]]) -> bytes:
        """The schema of a table's events; empty without --schema."""
        if not self.options.kafka_schema:
            return b""
        key = relation.identity != "full"
        return schema.envelope(self._server, relation.schema, relation.name_or_oid, converters, key=key)

    def _keyed(
        self, op: bytes, line: Plan, relation: Relation, converters: list[tuple[Column, Converter]], row: Cells | None
    ) -> Plan:
        """An event after its key, and with its tombstone if it is a delete; without --keys the event alone."""
        if not self.options.keys or row is None:
            return line
        names = frozenset(relation.key)
        if not names or relation.partition is not None:
            self._note_without_key(relation)
            return joined([b"\t", *line])
        cells = tuple([cell for cell in row.cells if converters[cell.index][0].name in names])
        described = [pair for pair in converters if pair[0].name in names]
        named = schema.key(self._server, relation.schema, relation.name_or_oid, described)
        key = self._with_schema(named, [b"{", Cells(row.side, cells, fill=row.fill), b"}"])
        tombstone = [*key, b"\t\n"] if op == b"d" else []
        return joined([*key, b"\t", *line, *tombstone])

    def _note_without_key(self, relation: Relation) -> None:
        name = relation.qualified
        if name not in self._without_key:
            self._without_key.add(name)
            identity = relation.identity or "unknown"
            logger.info(f"the key of {escape(name)} is not known (replica identity {identity}): --keys leaves it empty")

    def _with_schema(self, described: bytes, payload: list[Piece]) -> list[Piece]:
        """A key or an event with its schema, if that is asked for."""
        return [b'{"schema":%b,"payload":' % described, *payload, b"}"] if self.options.kafka_schema else payload

    def _line(self, described: bytes, payload: list[Piece]) -> Plan:
        return joined([*self._with_schema(described, payload), b"\n"])


def _has_new_key(change: RowChange) -> bool:
    """Whether this is an update of the key. REPLICA IDENTITY DEFAULT is the only one whose columns are the primary key.

    The old key is also sent if it is TOASTed. An unchanged value does not differ.
    """
    old, new, relation = change.old, change.new, change.relation
    if old is None or new is None or relation.identity != "default" or relation.partition is not None:
        return False
    known = [index for index in relation.key_indexes if index < min(len(old), len(new)) and new[index] is not UNCHANGED]
    return any(old[index] != new[index] for index in known)


def _counts(numbers: Counter[str]) -> bytes:
    tables = [{"data_collection": key, "event_count": count} for key, count in numbers.items() if "." in key]
    return b'"event_count":%d,"data_collections":%b' % (numbers[_ALL], _dumps(tables))


def _object(cells: Cells | None) -> tuple[Piece, ...]:
    return (b"null",) if cells is None else (b"{", cells, b"}")


def _before(shape: Shape, converters: list[tuple[Column, Converter]]) -> Cells:
    cells = [_cell(index, *pair, null=shape.in_old(index)) for index, pair in enumerate(converters)]
    return Cells("old", tuple(cells))


def _after(converters: list[tuple[Column, Converter]]) -> Cells:
    return Cells("new", tuple([_cell(index, *pair, null=True) for index, pair in enumerate(converters)]), fill=True)


def _cell(index: int, column: Column, convert: Converter, *, null: bool) -> Cell:
    return Cell(
        index,
        _dumps(column.name) + b":",
        encoding_of_text(column, convert.encode, undecoded=lambda shown: convert.partly(shown.text)),
        b"null" if null else None,
        convert.placeholder or b"null",
        unchanged_undecoded="" if convert.placeholder else UNAVAILABLE,
    )


def _undecoded(columns: Sequence[Column], sides: Sequence[str]) -> Callable[[Sequence[UndecodedValue]], bytes]:
    """Writes the text of the undecoded columns of these rows."""

    def of(values: Sequence[UndecodedValue]) -> bytes:
        found: dict[str, dict[str, str]] = {}
        for one in values:
            if one.side in sides:
                found.setdefault(_ROWS[one.side], {})[columns[one.column].name] = one.text
        return b',"undecoded":%b' % _dumps(found) if found else b""

    return of
