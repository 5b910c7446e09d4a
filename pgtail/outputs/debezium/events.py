"""Write the values of Debezium's events as Kafka Connect's JsonConverter does.

Sources: Debezium's documentation, "Data change events" and "Transaction metadata"; SourceInfo.java. pgtail adds a key
"undecoded" with the text of columns that are null because their value has no Debezium form.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pgtail import __version__
from pgtail._orjson import orjson
from pgtail.changes.events import Ended, Event, LogicalMessage, SnapshotEnded, TableTruncate, Transaction
from pgtail.changes.relations import Column, Relation
from pgtail.errors import OptionError
from pgtail.files.sink import Sink
from pgtail.humanize import counted
from pgtail.native.plan import (
    Cell,
    Cells,
    Field,
    IfChanged,
    Ordinal,
    Ordinals,
    Piece,
    Plan,
    Undecodable,
    UndecodedValue,
    Value,
    joined,
)
from pgtail.outputs import OutputOptions
from pgtail.outputs.debezium import schema
from pgtail.outputs.debezium.snapshot import MARK, SnapshotRows
from pgtail.outputs.debezium.values import UNAVAILABLE, Converter, converter
from pgtail.outputs.planned import PlannedOutput
from pgtail.outputs.rows import Shape, Write, encoding_of_text
from pgtail.terminal.escape import escape

_READ: Final = b"r"
_OPS: Final = {"insert": b"c", "update": b"u", "delete": b"d", "snapshot": _READ}
_ROWS: Final = {"old": "before", "new": "after"}
_XID: Final = (Value(Field.XID, missing=b"None"), b":")
_POSITION: Final = (Value(Field.POSITION_NUMBER, missing=b"None"),)
"""The two parts of a transaction's ID; the position is that of the change or, if unknown, of the commit."""
_ALL, _MESSAGES = "events", "messages"
"""Keys of the numbers with --transactions. Those of tables are their names, which have a dot."""
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

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        super().__init__(sink, options)
        self._server, _, database = (options.source_name or "pgtail").partition("/")
        self._database = database or options.database
        self.begin = self._boundary(b"BEGIN", _POSITION, [b'"event_count":null,"data_collections":null'])
        self.end = self._boundary(b"END", [Value(Field.END_NUMBER, missing=Field.POSITION_NUMBER)], [Ordinals(_counts)])
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
            super().started(transaction)

    def ended(self, event: Ended) -> None:
        if not event.transaction.snapshot:
            super().ended(event)
        elif event.complete:
            self._snapshot.end_table()

    def close(self) -> None:
        super().close()
        self._snapshot.end(complete=False)
        if self._truncates:
            self.options.tell(f"left out {counted(self._truncates, 'truncate')}: they have no key (--keys)")
            self._truncates = 0

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        converters = [(column, converter(column, self.options.numbers)) for column in shape.columns]
        relation, envelope = shape.relation, self._envelope(shape.relation, converters)

        def event(op: bytes, before: Cells | None, after: Cells | None) -> Plan:
            states = [b'"before":', *_object(before), b',"after":', *_object(after), b","]
            undecoded = _undecoded(shape.columns, [cells.side for cells in (before, after) if cells is not None])
            line = self._line(envelope, self._payload(op, relation, states, [Undecodable(undecoded)]))
            return self._keyed(op, line, relation, converters, after or before)

        before = None if shape.old_width is None else _before(shape, converters[: shape.old_width])
        after = None if shape.new_width is None else _after(converters[: shape.new_width])
        plan = event(_OPS[shape.op], before, after)
        # REPLICA IDENTITY DEFAULT is the only one whose columns are the primary key. The old key is also sent if it is
        # TOASTed.
        if before is not None and after is not None and relation.identity == "default" and not relation.partition:
            key = tuple(relation.key_indexes)
            # The connector writes a delete of the old key and a create of the new one.
            plan = (IfChanged(key, event(b"d", before, None) + event(b"c", None, after), plan),)
        return plan, self._snapshot.write if shape.op == "snapshot" else self.write

    def other(self, event: Event) -> None:
        if isinstance(event, SnapshotEnded):
            self._snapshot.end(complete=event.complete)
        elif isinstance(event, TableTruncate) and self.options.keys:
            self._truncates += 1
        elif isinstance(event, TableTruncate):
            relation = event.relation
            converters = [(column, converter(column, self.options.numbers)) for column in relation.columns]
            plan = self._line(self._envelope(relation, converters), self._payload(b"t", relation))
            self.write(self.rows.truncate(plan, event))
        elif isinstance(event, LogicalMessage):
            content = b',"message":{"prefix":%b,"content":"%b"}' % (_dumps(event.prefix), b64encode(event.content))
            payload = self._payload(b"m", None, [], [content], inside=event.transaction is not None)
            line = self._line(schema.MESSAGE, payload)
            if self.options.keys:
                key = self._with_schema(schema.MESSAGE_KEY, [b'{"prefix":%b}' % _dumps(event.prefix)])
                line = joined([*key, b"\t", *line])
            self.write(self.rows.message(line, event))

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
        block = self._block(relation) if inside and op != _READ else [b"null"]
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

    def _block(self, relation: Relation | None) -> list[Piece]:
        """The transaction block: the event's position in its transaction; null without --transactions."""
        if not self.options.transactions:
            return [b"null"]
        collection = _MESSAGES if relation is None else f"{relation.schema}.{relation.name_or_oid}"
        orders = (b'"total_order":', Ordinal(_ALL), b',"data_collection_order":', Ordinal(collection))
        return [b'{"id":"', *_XID, *_POSITION, b'",', *orders, b"}"]

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
            self._tell_without_key(relation)
            return joined([b"\t", *line])
        cells = tuple([cell for cell in row.cells if converters[cell.index][0].name in names])
        described = [pair for pair in converters if pair[0].name in names]
        named = schema.key(self._server, relation.schema, relation.name_or_oid, described)
        key = self._with_schema(named, [b"{", Cells(row.side, cells, fill=row.fill), b"}"])
        tombstone = [*key, b"\t\n"] if op == b"d" else []
        return joined([*key, b"\t", *line, *tombstone])

    def _tell_without_key(self, relation: Relation) -> None:
        name = relation.qualified
        if name not in self._without_key:
            self._without_key.add(name)
            identity = relation.identity or "unknown"
            self.options.tell(
                f"note: the key of {escape(name)} is not known (replica identity {identity}): --keys leaves it empty"
            )

    def _with_schema(self, described: bytes, payload: list[Piece]) -> list[Piece]:
        """A key or an event with its schema, if that is asked for."""
        return [b'{"schema":%b,"payload":' % described, *payload, b"}"] if self.options.kafka_schema else payload

    def _line(self, described: bytes, payload: list[Piece]) -> Plan:
        return joined([*self._with_schema(described, payload), b"\n"])


def _counts(ordinals: Mapping[str, int]) -> bytes:
    """What the end of a transaction says of its events."""
    tables = [{"data_collection": key, "event_count": count} for key, count in ordinals.items() if "." in key]
    return b'"event_count":%d,"data_collections":%b' % (ordinals.get(_ALL, 0), _dumps(tables))


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
        encoding_of_text(column, convert.encode, form=convert.form, undecoded=lambda _: b"null"),
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
