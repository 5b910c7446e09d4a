"""Newline-delimited JSON, one line per change (man page pgtail-json(5)).

Lines are joined from bytes. The parts that depend on the relation or the transaction only are made once for each.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from pgtail._orjson import orjson
from pgtail.changes.events import (
    Ended,
    Event,
    LogicalMessage,
    Outcome,
    RowChange,
    SchemaChange,
    Started,
    TableTruncate,
    Transaction,
    not_in_identity,
)
from pgtail.changes.relations import Relation, differences
from pgtail.files.sink import Sink
from pgtail.native import Parts
from pgtail.outputs.base import OutputOptions
from pgtail.outputs.cells import columns_of
from pgtail.pgoutput.cells import UNCHANGED, Binary, TupleData
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.values import Codec, Undecoded
from pgtail.values.render import hex_pieces, string_pieces

LARGE: Final = 1024 * 1024
"""The parts of larger rows (in bytes) are written one by one, to avoid another copy in memory."""

_BASE64_PIECE: Final = 3 * 256 * 1024
"""A multiple of 3 bytes, which base64 encodes without padding."""

ABORTED: Final = b'"aborted":true,'

Part: TypeAlias = bytes | Iterator[bytes]
"""A part of a JSON object: bytes, or a long value in pieces."""

_Column: TypeAlias = tuple[bytes, Callable[[bytes], bytes], bytes]
"""(the name with a colon, a function from a text cell to JSON, the name with a null)"""


def dumps(value: object) -> bytes:
    """A value as JSON."""
    return orjson.dumps(value)


def pairs(*items: tuple[str, object]) -> bytes:
    """`"name":value,` for each item whose value is not None."""
    return b"".join([b"%b:%b," % (dumps(name), dumps(value)) for name, value in items if value is not None])


def xid_part(xid: int | None) -> bytes:
    """The key of a transaction's xid, with a comma."""
    return b"" if xid is None else b'"xid":%d,' % xid


def position_parts(word: str, lsn: int | None, time: int | None) -> bytes:
    """The keys of the LSN and time of its commit or prepare (`word`), each with a comma."""
    where = b"" if lsn is None else b'"%b_lsn":"%X/%X",' % (word.encode(), lsn >> 32, lsn & 0xFFFFFFFF)
    when = b"" if time is None else b'"%b_ts":"%b",' % (word.encode(), time_text(time).encode())
    return where + when


def transaction_parts(transaction: Transaction) -> Parts:
    """A transaction's keys: its xid, its commit or prepare, and its origin, gid and state."""
    word = "prepare" if transaction.state is not None else "commit"
    names = (transaction.origin, transaction.gid, transaction.state)
    rest = b"" if names == (None, None, None) else pairs(*zip(("origin", "gid", "state"), names, strict=True))
    return xid_part(transaction.xid), position_parts(word, transaction.lsn, transaction.time), rest


class RelationJson:
    """The parts of lines that depend on the version of a table only."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self.names = [column.name for column in relation.columns]
        self.codecs = [column.codec for column in relation.columns]
        self.columns: list[_Column] = [
            _column(name, codec) for name, codec in zip(self.names, self.codecs, strict=True)
        ]
        table = b""
        if relation.seen:
            table = pairs(("schema", relation.schema), ("table", relation.name))
        else:
            table = pairs(("relid", relation.oid))
        self.heads = {op: b'{"op":"%b",%b' % (op.encode(), table) for op in ("insert", "update", "delete", "truncate")}
        self.identity = pairs(("identity", relation.identity or None), ("key", relation.key or None))

    def widen(self, count: int) -> None:
        """Add columns named ?n until there are `count`."""
        for column in columns_of(self.relation, count)[len(self.columns) :]:
            self.names.append(column.name)
            self.codecs.append(column.codec)
            self.columns.append(_column(column.name, column.codec))

    def row(self, cells: TupleData) -> bytes | None:
        """A row of text cells and NULLs as a JSON object; None if it needs RowParts."""
        try:
            return b"{%b}" % b",".join(
                [
                    name + json(cell)
                    if cell.__class__ is bytes and len(cell) < LARGE
                    else null
                    if cell is None
                    else _raise_undecoded()
                    for cell, (name, json, null) in zip(cells, self.columns)  # noqa: B905 -- a row may be shorter
                ]
            )
        except Undecoded:
            return None


def _raise_undecoded() -> bytes:
    raise Undecoded("")


def _column(name: str, codec: Codec) -> _Column:
    quoted = dumps(name) + b":"
    return quoted, codec.json_text, quoted + b"null"


class RowParts:
    """The rows of one change as JSON objects in parts, with the names of unchanged and undecoded columns."""

    def __init__(self) -> None:
        self.unchanged: list[str] = []
        self.undecoded: list[str] = []

    def parts(
        self, table: RelationJson, cells: TupleData, skip: Iterable[int] = (), fill: TupleData = ()
    ) -> list[Part]:
        """The object, without the columns at the indexes in `skip`; `fill` has values for unchanged cells."""
        found: list[Part] = []
        left_out = frozenset(skip)
        for index, (cell, (name, _, null)) in enumerate(zip(cells, table.columns)):  # noqa: B905 -- see row()
            if index in left_out:
                continue
            if cell is UNCHANGED:
                self.unchanged.append(table.names[index])
                if index >= len(fill) or fill[index] is None:
                    continue
                cell = fill[index]
            if cell is None:
                found += (b",", null)
            elif isinstance(cell, bytes):
                found += (b",", name, self._value(table.names[index], table.codecs[index], cell))
        return [b"{", *found[1:], b"}"]

    def _value(self, name: str, codec: Codec, cell: bytes) -> Part:
        binary = isinstance(cell, Binary)
        try:
            if len(cell) > LARGE:
                pieces = codec.long_binary if binary else codec.long_text
                if pieces is not None:
                    return pieces(cell)
            return codec.json_binary(cell) if binary else codec.json_text(cell)
        except Undecoded as undecoded:
            if name not in self.undecoded:
                self.undecoded.append(name)
            if undecoded.raw is not None and len(undecoded.raw) > LARGE:
                return hex_pieces(undecoded.raw)
            return dumps(undecoded.text)


class ChangeJson:
    """The keys of changes as parts of JSON objects, without those of the transaction; for json and json-tx."""

    def __init__(self, *, fill_unchanged: bool) -> None:
        self._fill = fill_unchanged
        self._tables: dict[int, RelationJson] = {}

    def table(self, relation: Relation) -> RelationJson:
        """The parts of the table's version, from a cache."""
        table = self._tables.get(relation.version)
        if table is None or table.relation is not relation:
            table = self._tables[relation.version] = RelationJson(relation)
        return table

    def own_parts(self, change: RowChange) -> list[Part]:
        """A change without its transaction's keys, in parts; the last ends with a comma."""
        table = self.table(change.relation)
        numbers = pairs(("seq", change.seq), ("lsn", lsn_or_none(change.lsn)))
        return [table.heads[change.op] + numbers, *self.tuples(table, change)]

    def truncate_parts(self, change: TableTruncate) -> list[Part]:
        """One table of a Truncate without its transaction's keys, in parts; the last ends with a comma."""
        numbers = pairs(("seq", change.seq), ("lsn", lsn_or_none(change.lsn)))
        return [self.table(change.relation).heads["truncate"], numbers, truncate_pairs(change)]

    def tuples(self, table: RelationJson, change: RowChange) -> list[Part]:
        """identity, key, old, new, unchanged, undecoded and aborted, in parts; the last ends with a comma."""
        parts: list[Part] = [b"" if change.op == "insert" else table.identity]
        width = max(len(change.old or ()), len(change.new or ()))
        if width > len(table.columns):
            table.widen(width)
        row = RowParts()
        if change.old is not None:
            parts += [b'"old":', *row.parts(table, change.old, not_in_identity(change)), b","]
        if change.new is not None:
            fill = change.old if self._fill and change.old is not None else ()
            parts += [b'"new":', *row.parts(table, change.new, fill=fill), b","]
        if row.unchanged or row.undecoded:
            parts.append(pairs(("unchanged", row.unchanged or None), ("undecoded", row.undecoded or None)))
        return [*parts, ABORTED * change.aborted]


class Json:
    """`-o json`."""

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        self.write = sink.write
        self.options = options
        self._changes = ChangeJson(fill_unchanged=options.fill_unchanged)
        self._boundaries = options.transactions
        self._schema_changes = options.schema_changes
        self._transaction: Transaction | None = None
        self._xid = self._commit = self._origin = b""
        self._render: dict[type[Event], Callable[[Any], None]] = {
            RowChange: self._row,
            TableTruncate: self._truncate,
            LogicalMessage: self._message,
            Started: self._started,
            Ended: self._ended,
            Outcome: self._outcome,
            SchemaChange: self._schema,
        }

    def event(self, event: Event) -> None:
        render = self._render.get(type(event))
        if render is not None:
            render(event)

    def finish(self) -> None:
        """Does nothing: each event writes a complete line."""

    def _enter(self, transaction: Transaction) -> None:
        """Make the parts of lines that depend on the transaction only."""
        self._transaction = transaction
        self._xid, self._commit, self._origin = transaction_parts(transaction)

    def _started(self, event: Started) -> None:
        self._enter(event.transaction)
        if self._boundaries and event.transaction.settled:
            self._line(b'{"op":"begin",', self._xid, self._commit, self._origin)

    def _ended(self, event: Ended) -> None:
        transaction = event.transaction
        if self._boundaries and event.complete and transaction.settled:
            self._enter(transaction)
            changes = transaction.changes if transaction.begun else None
            end = pairs(("end_lsn", lsn_or_none(transaction.end_lsn)), ("changes", changes))
            op = b'{"op":"prepare",' if transaction.state else b'{"op":"commit",'
            self._line(op, self._xid, self._commit, self._origin, end)
        self._transaction = None

    def _row(self, change: RowChange) -> None:
        if change.transaction is not self._transaction:
            self._enter(change.transaction)
        table = self.table(change.relation)
        op, new = change.op, change.new
        seq = b"" if change.seq is None else b'"seq":%d,' % change.seq
        lsn = b"" if change.lsn is None else b'"lsn":"%X/%X",' % (change.lsn >> 32, change.lsn & 0xFFFFFFFF)
        head = table.heads[op] + self._xid + seq + self._commit + lsn + self._origin
        if change.old is None and new is not None and len(new) <= len(table.columns) and not change.aborted:
            row = table.row(new)
            if row is not None and len(row) < LARGE:
                identity = b"" if op == "insert" else table.identity
                self.write(b'%b%b"new":%b}\n' % (head, identity, row))
                return
        self._line(head, *self._changes.tuples(table, change))

    def table(self, relation: Relation) -> RelationJson:
        """The parts of lines that depend on the version of a table only."""
        return self._changes.table(relation)

    def parts_of(self, transaction: Transaction) -> Parts:
        """The parts of lines that depend on the transaction only."""
        if transaction is not self._transaction:
            self._enter(transaction)
        return self._xid, self._commit, self._origin

    def _truncate(self, change: TableTruncate) -> None:
        if change.transaction is not self._transaction:
            self._enter(change.transaction)
        own = truncate_pairs(change)
        head = self._changes.table(change.relation).heads["truncate"]
        seq, lsn = pairs(("seq", change.seq)), pairs(("lsn", lsn_or_none(change.lsn)))
        self._line(head, self._xid, seq, self._commit, lsn, self._origin, own)

    def _message(self, message: LogicalMessage) -> None:
        lsn = pairs(("lsn", lsn_or_none(message.lsn)))
        if message.transaction is None:
            self._line(b'{"op":"message",', lsn, *message_parts(message))
            return
        if message.transaction is not self._transaction:
            self._enter(message.transaction)
        self._line(b'{"op":"message",', self._xid, self._commit, lsn, self._origin, *message_parts(message))

    def _outcome(self, outcome: Outcome) -> None:
        self._line(b"{", outcome_parts(outcome))

    def _schema(self, event: SchemaChange) -> None:
        if self._schema_changes:
            self._line(b"{", relation_parts(event))

    def _line(self, *parts: Part) -> None:
        """Write a line: the parts of an object, of which the last ends with a comma."""
        write_object([*parts], self.write, b"\n")


def write_object(parts: list[Part], write: Callable[[bytes], object], end: bytes = b"") -> None:
    """Write a JSON object from its parts, with a closing brace in place of the last comma, and then `end`."""
    parts = [part for part in parts if part]
    last = parts[-1]
    assert isinstance(last, bytes)
    parts = [*parts[:-1], last[:-1] + b"}" + end]
    whole = [part for part in parts if isinstance(part, bytes)]
    if len(whole) == len(parts) and sum(map(len, whole)) < LARGE:
        write(b"".join(whole))
        return
    for part in parts:
        if isinstance(part, bytes):
            write(part)
        else:
            for piece in part:
                write(piece)


def truncate_pairs(change: TableTruncate) -> bytes:
    """The options of a Truncate, and whether it was rolled back."""
    options = pairs(("cascade", change.cascade), ("restart_identity", change.restart_identity))
    return options + ABORTED * change.aborted


def message_parts(message: LogicalMessage) -> list[Part]:
    """prefix, transactional and content of a logical message, and whether it was rolled back."""
    head = pairs(("prefix", message.prefix), ("transactional", message.transactional))
    try:
        return [head, b'"content":', string_pieces(message.content, "utf-8"), b",", ABORTED * message.aborted]
    except Undecoded:
        return [head, b'"content_base64":"', _base64_pieces(message.content), b'",', ABORTED * message.aborted]


def _base64_pieces(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), _BASE64_PIECE):
        yield binascii.b2a_base64(content[start : start + _BASE64_PIECE], newline=False)


def outcome_parts(outcome: Outcome) -> bytes:
    """The keys of commit_prepared and rollback_prepared."""
    who = (("op", outcome.op), ("xid", outcome.xid), ("gid", outcome.gid))
    if outcome.op == "commit_prepared":
        lsns = (("commit_lsn", lsn_text(outcome.lsn)), ("end_lsn", lsn_text(outcome.end_lsn)))
        return pairs(*who, *lsns, ("commit_ts", time_text(outcome.time)))
    lsns = (("prepare_end_lsn", lsn_text(outcome.lsn)), ("rollback_end_lsn", lsn_text(outcome.end_lsn)))
    times = (("prepare_ts", _time(outcome.prepare_ts)), ("rollback_ts", time_text(outcome.time)))
    return pairs(*who, *lsns, *times)


def relation_parts(event: SchemaChange) -> bytes:
    """The keys of a relation line."""
    now = event.now
    columns = [{"name": c.name, "type": c.type_name, "typmod": c.typmod, "key": c.key} for c in now.columns]
    changed = None if event.before is None else differences(event.before, now)
    return pairs(
        ("op", "relation"),
        ("schema", now.schema),
        ("table", now.name),
        ("relid", now.oid),
        ("identity", now.identity),
        ("columns", columns),
        ("differences", changed),
    )


def lsn_or_none(lsn: int | None) -> str | None:
    """The text of a log position, if there is one."""
    return None if lsn is None else lsn_text(lsn)


def _time(time: int | None) -> str | None:
    return None if time is None else time_text(time)
