"""Floor 4, newline-delimited JSON, one line per change: the public contract (man page pgtail-json(5)).

Lines are put together from bytes: what a relation and a transaction contribute is made once for each of them.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from pgtail.outputs.base import OutputOptions, Parts, Sink
from pgtail.relations import Relation, differences
from pgtail.transaction import (
    Ended,
    Event,
    LogicalMessage,
    Outcome,
    RowChange,
    SchemaChange,
    Started,
    TableTruncate,
    Transaction,
)
from pgtail.unhurried import orjson
from pgtail.values import Codec, Undecoded
from pgtail.values.render import hex_pieces, string_pieces
from pgtail.wire.cells import UNCHANGED, Binary, TupleData
from pgtail.wire.scalars import lsn_text, time_text

LARGE: Final = 1024 * 1024
"""Bytes of a row from which on its parts are written one by one, so that it is not held in memory once more."""

_BASE64_PIECE: Final = 3 * 256 * 1024
"""A number of bytes that base64 encodes without padding."""

ABORTED: Final = b'"aborted":true,'

Part: TypeAlias = bytes | Iterator[bytes]
"""A part of a JSON object: bytes, or a long value in pieces."""

_Column: TypeAlias = tuple[bytes, Callable[[bytes], bytes], bytes]
"""(the name and its colon, text cell -> JSON, the name and null)"""


def dumps(value: object) -> bytes:
    """JSON as everywhere in pgtail's output."""
    return orjson.dumps(value)


def pairs(*items: tuple[str, object]) -> bytes:
    """`"name":value,` for each item whose value is not None."""
    return b"".join([b"%b:%b," % (dumps(name), dumps(value)) for name, value in items if value is not None])


def xid_part(xid: int | None) -> bytes:
    """A transaction's xid as it stands in a line, with its comma."""
    return b"" if xid is None else b'"xid":%d,' % xid


def place_parts(word: str, lsn: int | None, time: int | None) -> bytes:
    """The same of the LSN and the time of its commit or prepare."""
    where = b"" if lsn is None else b'"%b_lsn":"%X/%X",' % (word.encode(), lsn >> 32, lsn & 0xFFFFFFFF)
    when = b"" if time is None else b'"%b_ts":"%b",' % (word.encode(), time_text(time).encode())
    return where + when


def about(transaction: Transaction) -> Parts:
    """A transaction's keys as they stand in a line."""
    word = "prepare" if transaction.state is not None else "commit"
    names = (transaction.origin, transaction.gid, transaction.state)
    rest = b"" if names == (None, None, None) else pairs(*zip(("origin", "gid", "state"), names, strict=True))
    return xid_part(transaction.xid), place_parts(word, transaction.lsn, transaction.time), rest


class RelationJson:
    """What one version of a table contributes to every line about it."""

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
        """Name the columns that the Relation does not have ?n, up to `count` of them."""
        for number in range(len(self.columns) + 1, count + 1):
            self.names.append(f"?{number}")
            self.codecs.append(self.relation.beyond)
            self.columns.append(_column(self.names[-1], self.relation.beyond))

    def row(self, cells: TupleData) -> bytes | None:
        """A row of text cells and NULLs as a JSON object; None where it takes the careful way."""
        try:
            return b"{%b}" % b",".join(
                [
                    name + json(cell)
                    if cell.__class__ is bytes and len(cell) < LARGE
                    else null
                    if cell is None
                    else _careful()
                    for cell, (name, json, null) in zip(cells, self.columns)  # noqa: B905 -- a row may be shorter
                ]
            )
        except Undecoded:
            return None


def _careful() -> bytes:
    raise Undecoded("")


def _column(name: str, codec: Codec) -> _Column:
    quoted = dumps(name) + b":"
    return quoted, codec.json_text, quoted + b"null"


class RowParts:
    """One tuple rendered the careful way: the JSON object in parts, and the columns that need a word."""

    def __init__(self) -> None:
        self.unchanged: list[str] = []
        self.undecoded: list[str] = []

    def parts(
        self, table: RelationJson, cells: TupleData, skip: Iterable[int] = (), fill: TupleData = ()
    ) -> list[Part]:
        """The object; columns at the places in `skip` are left out, `fill` has values for unchanged ones."""
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
    """The keys of a change that are its own, as parts of a JSON object: shared by json and json-tx."""

    def __init__(self, *, fill_unchanged: bool) -> None:
        self._fill = fill_unchanged
        self._tables: dict[int, RelationJson] = {}

    def table(self, relation: Relation) -> RelationJson:
        """The cached parts of a table's version."""
        table = self._tables.get(relation.version)
        if table is None or table.relation is not relation:
            table = self._tables[relation.version] = RelationJson(relation)
        return table

    def own_parts(self, change: RowChange) -> list[Part]:
        """A change without its transaction's keys, in parts that end with a comma."""
        table = self.table(change.relation)
        numbers = pairs(("seq", change.seq), ("lsn", lsn_or_none(change.lsn)))
        return [table.heads[change.op] + numbers, *self.tuples(table, change)]

    def truncate_parts(self, change: TableTruncate) -> list[Part]:
        """The same for one table of a Truncate."""
        numbers = pairs(("seq", change.seq), ("lsn", lsn_or_none(change.lsn)))
        return [self.table(change.relation).heads["truncate"], numbers, truncate_pairs(change)]

    def tuples(self, table: RelationJson, change: RowChange) -> list[Part]:
        """identity, key, old, new, unchanged, undecoded and aborted: parts that end with a comma."""
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


def not_in_identity(change: RowChange) -> list[int]:
    """The places of the old tuple that say nothing: a key tuple has NULL in every column outside of the identity.

    The same holds for a table that was never described.
    """
    if change.old is None or (change.old_kind == "O" and change.relation.seen):
        return []
    keys = [column.key for column in change.relation.columns]
    return [i for i, cell in enumerate(change.old) if cell is None and not (i < len(keys) and keys[i])]


class Json:
    """`-o json`."""

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        self.write = sink.write
        self.options = options
        self._changes = ChangeJson(fill_unchanged=options.fill_unchanged)
        self._transactions = options.transactions
        self._schema_changes = options.schema_changes
        self._of: Transaction | None = None
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
        """Every line is whole already."""

    def _enter(self, transaction: Transaction) -> None:
        """Make what a transaction contributes to each of its lines."""
        self._of = transaction
        self._xid, self._commit, self._origin = about(transaction)

    def _started(self, event: Started) -> None:
        self._enter(event.transaction)
        if self._transactions and event.transaction.settled:
            self._line(b'{"op":"begin",', self._xid, self._commit, self._origin)

    def _ended(self, event: Ended) -> None:
        transaction = event.transaction
        if self._transactions and event.complete and transaction.settled:
            self._enter(transaction)
            changes = transaction.changes if transaction.begun else None
            end = pairs(("end_lsn", lsn_or_none(transaction.end_lsn)), ("changes", changes))
            op = b'{"op":"prepare",' if transaction.state else b'{"op":"commit",'
            self._line(op, self._xid, self._commit, self._origin, end)
        self._of = None

    def _row(self, change: RowChange) -> None:
        if change.transaction is not self._of:
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
        """What a version of a table contributes to its lines."""
        return self._changes.table(relation)

    def parts_of(self, transaction: Transaction) -> Parts:
        """What a transaction contributes to its lines."""
        if transaction is not self._of:
            self._enter(transaction)
        return self._xid, self._commit, self._origin

    def _truncate(self, change: TableTruncate) -> None:
        if change.transaction is not self._of:
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
        if message.transaction is not self._of:
            self._enter(message.transaction)
        self._line(b'{"op":"message",', self._xid, self._commit, lsn, self._origin, *message_parts(message))

    def _outcome(self, outcome: Outcome) -> None:
        self._line(b"{", outcome_parts(outcome))

    def _schema(self, event: SchemaChange) -> None:
        if self._schema_changes:
            self._line(b"{", relation_parts(event))

    def _line(self, *parts: Part) -> None:
        """Write an object whose parts each end with a comma."""
        write_object([*parts], self.write, b"\n")


def write_object(parts: list[Part], write: Callable[[bytes], object], end: bytes = b"") -> None:
    """Write a JSON object that its parts make up but for the closing brace; the last one's comma is left out."""
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
    """The options of a Truncate, and what became of it."""
    options = pairs(("cascade", change.cascade), ("restart_identity", change.restart_identity))
    return options + ABORTED * change.aborted


def message_parts(message: LogicalMessage) -> list[Part]:
    """prefix, transactional and content of a logical decoding message, and what became of it."""
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
    """A log position's text, where there is one."""
    return None if lsn is None else lsn_text(lsn)


def _time(time: int | None) -> str | None:
    return None if time is None else time_text(time)
