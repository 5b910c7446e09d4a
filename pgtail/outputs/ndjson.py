"""Newline-delimited JSON, one line per change (man page pgtail-json(5))."""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import to_builtins

from pgtail._orjson import orjson
from pgtail.changes.ddl import DdlMessage
from pgtail.changes.events import Ended, Event, LogicalMessage, Outcome, SchemaChange, TableTruncate, Transaction
from pgtail.changes.relations import Column, Relation, differences
from pgtail.files.sink import Sink
from pgtail.native.plan import (
    INSERT_OPS,
    LARGE,
    Cell,
    Cells,
    Encoding,
    Field,
    Form,
    Names,
    Piece,
    Plan,
    Side,
    Text,
    Undecodable,
    Value,
    joined,
)
from pgtail.outputs import OutputOptions
from pgtail.outputs.choice import ColumnChoice, Shown, changed_columns, seen_columns
from pgtail.outputs.executor import Part
from pgtail.outputs.planned import PlannedOutput
from pgtail.outputs.rows import Shape, Write, write_parts
from pgtail.pgoutput.decoder import FromClient
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.pgoutput.walsender import StartReplication
from pgtail.values import Codec, Undecoded
from pgtail.values.render import hex_pieces, string, string_pieces

_BASE64_PIECE: Final = 3 * 256 * 1024
"""A multiple of 3 bytes, which base64 encodes without padding."""


def dumps(value: object) -> bytes:
    """A value as JSON. For numbers, short texts and lists of them, orjson need not be loaded."""
    if isinstance(value, str):
        return string(value)
    if isinstance(value, int):
        return b"%d" % value if not isinstance(value, bool) else b"true" if value else b"false"
    if isinstance(value, list):
        return b"[%b]" % b",".join(map(dumps, value))
    return orjson.dumps(value)


def pairs(*items: tuple[str, object]) -> list[bytes]:
    """`"name":value` for each item whose value is not None."""
    return [b"%b:%b" % (dumps(name), dumps(value)) for name, value in items if value is not None]


def keys(*items: tuple[str, object]) -> bytes:
    """`,"name":value` for each item whose value is not None."""
    return b"".join([b"," + pair for pair in pairs(*items)])


def transaction_keys(*, comma_first: bool) -> list[Piece]:
    """A transaction's keys, each with a comma before or after it: its xid, its commit or prepare, and its origin, gid
    and state."""
    before, after = (b",", b"") if comma_first else (b"", b",")

    def prepare(transaction: Transaction) -> bytes:
        if transaction.state is None:
            return b""
        time = None if transaction.time is None else time_text(transaction.time)
        return members(("prepare_lsn", lsn_or_none(transaction.lsn)), ("prepare_ts", time))

    def names(transaction: Transaction) -> bytes:
        return members(("origin", transaction.origin), ("gid", transaction.gid), ("state", transaction.state))

    def members(*items: tuple[str, object]) -> bytes:
        return b"".join([before + pair + after for pair in pairs(*items)])

    return [
        Value(Field.XID, before + b'"xid":', after),
        Value(Field.COMMIT_LSN, before + b'"commit_lsn":"', b'"' + after),
        Value(Field.COMMIT_TS, before + b'"commit_ts":"', b'"' + after),
        Text(prepare),
        Text(names),
    ]


def snapshot_keys(*, comma_first: bool) -> Text:
    """The keys that mark a snapshot and name its table, which may be empty, each with a comma before or after it."""
    before, after = (b",", b"") if comma_first else (b"", b",")

    def of(transaction: Transaction) -> bytes:
        if not transaction.snapshot:
            return b""
        table = () if transaction.table is None else _table(transaction.table)
        return b"".join([before + pair + after for pair in pairs(("snapshot", True), *table)])

    return Text(of)


def _table(relation: Relation) -> tuple[tuple[str, object], ...]:
    """The keys of a table; its OID if it was not described."""
    if relation.seen:
        return ("schema", relation.schema), ("table", relation.name)
    return (("relid", relation.oid),)


SEQ: Final = Value(Field.SEQ, b',"seq":')
LSN: Final = Value(Field.LSN, b',"lsn":"', b'"')
CONTEXT: Final = Text(lambda transaction: b"" if transaction.context is None else transaction.context.keys)
"""The key of the context that the change has (--context)."""
ABORTED: Final = Value(Field.ABORTED, b',"aborted":')


class RowObjects:
    """The plans of changes as JSON objects, with or without the keys of their transaction; for json and json-tx."""

    def __init__(self, choice: ColumnChoice, options: OutputOptions, *, transaction: bool) -> None:
        self._choice = choice
        self._fill = options.fill_unchanged
        self._transaction = transaction_keys(comma_first=True) if transaction else []
        self._context = [] if options.context is None else [CONTEXT]

    def head(self, op: str, relation: Relation | None) -> list[Piece]:
        """The keys before the rows."""
        table = b""
        if relation is not None:
            table = keys(*_table(relation))
        seq = [] if relation is None else [SEQ]
        xid, commit, names = self._transaction[:1], self._transaction[1:-1], self._transaction[-1:]
        return [b'{"op":"%b"%b' % (op.encode(), table), *xid, *seq, *commit, LSN, *names, *self._context]

    def row(self, shape: Shape, end: bytes) -> Plan:
        """A row as an object, with `end` after it."""
        relation, columns = shape.relation, shape.columns
        pieces = self.head(shape.op, relation)
        if shape.op not in INSERT_OPS:
            pieces.append(keys(("identity", relation.identity or None), ("key", relation.key or None)))
        shown = self._choice.shown(shape)
        if shape.old_width is not None:
            pieces += [b',"old":{', Cells("old", _cells(shape, "old", shown)), b"}"]
        if shape.seen:
            pieces += [b',"old_seen":[', seen_columns(shape, shown, dumps), b"]"]
        if shape.new_width is not None:
            pieces += [b',"new":{', Cells("new", _cells(shape, "new", shown), fill=self._fill), b"}"]

        def unchanged(indexes: Sequence[int]) -> bytes:
            return keys(("unchanged", [columns[index].name for index in indexes]))

        def changed(known: Sequence[int], maybe: Sequence[int]) -> bytes:
            names = [columns[index].name for index in sorted((*known, *maybe))]
            return keys(("changed", names), ("maybe_changed", [columns[index].name for index in maybe] or None))

        partial = self._choice.changed and shape.op == "update"
        sides: tuple[Side, ...] = ("new",) if shape.seen else ("old", "new")
        names = changed_columns(shape, shown, changed) if partial else Names(sides, unchanged, filled=True)
        return joined([*pieces, names, undecoded_names(columns), ABORTED, b"}", end])

    def truncate(self, change: TableTruncate, end: bytes) -> Plan:
        """One table of a Truncate as an object, with `end` after it."""
        options = keys(("cascade", change.cascade), ("restart_identity", change.restart_identity))
        return joined([*self.head("truncate", change.relation), options, ABORTED, b"}", end])


def _cells(shape: Shape, side: Side, shown: Shown) -> tuple[Cell, ...]:
    """The shown columns of a tuple. A key tuple has only those of the replica identity."""
    cells = []
    for index in shown.indexes:
        if index < shape.width(side):
            column, null = shape.columns[index], b"null" if side == "new" or shape.in_old(index) else None
            skip = shown.skip(index, side)
            cells.append(Cell(index, dumps(column.name) + b":", _encoding(column.codec), null, skip=skip))
    return tuple(cells)


def undecoded_names(columns: Sequence[Column]) -> Undecodable:
    """The key with the names of the columns whose values could not be decoded."""
    return Undecodable(
        lambda values: keys(("undecoded", [*dict.fromkeys([columns[one.column].name for one in values])]))
    )


def _encoding(codec: Codec) -> Encoding:
    return Encoding(
        codec,
        codec.json_text,
        codec.json_binary,
        _undecoded,
        None if codec.native is None else Form(codec.native.json, codec.native.quoted),
        codec.long_text,
        codec.long_binary,
    )


def _undecoded(found: Undecoded) -> Part:
    if found.raw is not None and len(found.raw) > LARGE:
        return hex_pieces(found.raw)
    return dumps(found.text)


_BOUNDARY: Final[list[Piece]] = [*transaction_keys(comma_first=True), snapshot_keys(comma_first=True)]
"""The keys of a transaction at its start and its end."""


class Json(PlannedOutput):
    """`-o json`."""

    rows_alone = True

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        super().__init__(sink, options)
        self._objects = RowObjects(self.choice, options, transaction=True)
        if options.transactions:
            self.begin = (b'{"op":"begin"', *_BOUNDARY, b"}\n")
            self.end = _end("commit")

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        return self._objects.row(shape, b"\n"), self.write

    def started(self, transaction: Transaction) -> None:
        if transaction.settled:
            super().started(transaction)

    def ended(self, event: Ended) -> None:
        if not event.transaction.settled:
            return
        if self.end and event.complete and event.transaction.state is not None:
            self.write(self.rows.boundary(_end("prepare"), event.transaction))
        else:
            super().ended(event)

    def other(self, event: Event) -> None:
        if isinstance(event, TableTruncate):
            self.write(self.rows.truncate(self._objects.truncate(event, b"\n"), event))
        elif isinstance(event, LogicalMessage):
            write_parts([*self._message_head(event), *message_parts(event), b"\n"], self.write)
        elif isinstance(event, Outcome):
            self.write(outcome_object(event) + b"\n")
        elif isinstance(event, SchemaChange) and self.options.schema_changes:
            self.write(relation_object(event) + b"\n")
        elif isinstance(event, FromClient) and self.options.client:
            self.write(client_object(event) + b"\n")

    def _message_head(self, message: LogicalMessage) -> list[Part]:
        if message.transaction is None:
            return [message_head(message)]
        return [self.rows.message(joined(self._objects.head(message.op, None)), message)]


def _end(op: str) -> Plan:
    changes = Value(Field.CHANGES, b',"changes":')
    end_lsn = Value(Field.END_LSN, b',"end_lsn":"', b'"')
    return (b'{"op":"%b"' % op.encode(), *_BOUNDARY, end_lsn, changes, b"}\n")


def message_head(message: LogicalMessage) -> bytes:
    """The start of a logical message's object, without its transaction's keys."""
    return b'{"op":"%b"' % message.op.encode() + keys(("lsn", lsn_or_none(message.lsn)))


def message_parts(message: LogicalMessage) -> list[Part]:
    """The rest of the object: prefix, transactional and content, or the schema change; whether it was rolled back."""
    end = (b',"aborted":true' if message.aborted else b"") + b"}"
    if isinstance(message, DdlMessage):
        return [_ddl_keys(message), end]
    head = keys(("prefix", message.prefix), ("transactional", message.transactional))
    try:
        return [head, b',"content":', string_pieces(message.content, "utf-8"), end]
    except Undecoded:
        return [head, b',"content_base64":"', _base64_pieces(message.content), b'"', end]


def _ddl_keys(message: DdlMessage) -> bytes:
    ddl = message.ddl
    described = not ddl.dropped and ddl.error is None
    return keys(
        ("schema", ddl.schema),
        ("table", ddl.name),
        ("tag", ddl.tag),
        ("relid", ddl.oid),
        ("dropped", ddl.dropped or None),
        ("partitioned", ddl.partitioned or None),
        ("identity", ddl.identity),
        ("columns", to_builtins(ddl.columns) if described else None),
        ("differences", message.texts if described and message.before is not None else None),
        ("statement", ddl.statement),
        ("error", ddl.error),
    )


def _base64_pieces(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), _BASE64_PIECE):
        yield binascii.b2a_base64(content[start : start + _BASE64_PIECE], newline=False)


def json_object(*items: tuple[str, object]) -> bytes:
    """An object of the items whose value is not None."""
    return b"{%b}" % b",".join(pairs(*items))


def outcome_object(outcome: Outcome) -> bytes:
    """The object of commit_prepared and rollback_prepared."""
    who = (("op", outcome.op), ("xid", outcome.xid), ("gid", outcome.gid))
    if outcome.op == "commit_prepared":
        lsns = (("commit_lsn", lsn_text(outcome.lsn)), ("end_lsn", lsn_text(outcome.end_lsn)))
        return json_object(*who, *lsns, ("commit_ts", time_text(outcome.time)))
    lsns = (("prepare_end_lsn", lsn_text(outcome.lsn)), ("rollback_end_lsn", lsn_text(outcome.end_lsn)))
    times = (("prepare_ts", _time(outcome.prepare_ts)), ("rollback_ts", time_text(outcome.time)))
    return json_object(*who, *lsns, *times)


def relation_object(event: SchemaChange) -> bytes:
    """The object of a table's description."""
    now = event.now
    columns = [{"name": c.name, "type": c.type_name, "typmod": c.typmod, "key": c.key} for c in now.columns]
    changed = None if event.before is None else differences(event.before, now)
    return json_object(
        ("op", "relation"),
        ("schema", now.schema),
        ("table", now.name),
        ("relid", now.oid),
        ("identity", now.identity),
        ("columns", columns),
        ("differences", changed),
    )


def client_object(event: FromClient) -> bytes:
    """The object of a client's message."""
    message = event.message
    peers = (("packet_ts", _time(event.time)), ("client", event.client), ("server", event.server))
    if isinstance(message, StartReplication):
        found = (("slot", message.slot), ("lsn", message.lsn), ("options", message.options))
        return json_object(("op", "start_replication"), *peers, *found, ("command", message.command))
    return json_object(
        ("op", "standby_status"),
        *peers,
        ("write_lsn", lsn_text(message.write_lsn)),
        ("flush_lsn", lsn_text(message.flush_lsn)),
        ("apply_lsn", lsn_text(message.apply_lsn)),
        ("client_ts", _time(message.clock)),
        ("reply_requested", bool(message.reply_requested)),
    )


def lsn_or_none(lsn: int | None) -> str | None:
    """The text of a log position, if there is one."""
    return None if lsn is None else lsn_text(lsn)


def _time(time: int | None) -> str | None:
    return None if time is None else time_text(time)
