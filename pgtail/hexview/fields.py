"""Describe the fields of a message: the decoder's spans become names, values and explanations, in a scope.

The scope has the current tables and the transaction. The assembler tracks them too, but it buffers streamed changes
until their commit; `inspect` shows messages in their order in the input.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from pgtail.changes.events import Transaction
from pgtail.changes.redaction import MASK, Redaction
from pgtail.changes.relations import IDENTITIES, Relation, Relations, unnamed
from pgtail.pgoutput.cells import Binary
from pgtail.pgoutput.cursor import Buffer, Span
from pgtail.pgoutput.decoder import AnyFrame
from pgtail.pgoutput.kinds import FRAMES, MESSAGES, Role, messages
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.pgoutput.schema import Relation as RelationMessage
from pgtail.pgoutput.schema import Type as TypeMessage
from pgtail.pgoutput.streaming import StreamAbort, StreamCommit, StreamStart, StreamStop
from pgtail.pgoutput.two_phase import StreamPrepare
from pgtail.terminal.layout import Item, breakable
from pgtail.terminal.values import BARE, ValueStyle, name, table_name
from pgtail.values import UNKNOWN, Types

_WITH_OWN_XID: Final = messages(Role.BEGIN, Role.STREAM_END, Role.OUTCOME)
"""Messages with the xid of the top-level transaction that they are about."""
_LAST: Final = messages(Role.END, Role.STREAM_END, Role.OUTCOME) | {StreamStop}
"""Messages after which no transaction is open."""


class Scope:
    """Follows the messages of one stream: call enter() before a message is shown and leave() after it."""

    def __init__(self, types: Types, redaction: Redaction | None = None) -> None:
        self._relations = Relations(types)
        self.redaction = redaction
        """Masks cells, if not None."""
        self._stream: int | None = None
        self.xid: int | None = None
        """The top-level transaction of the message, if known; 0 in a snapshot."""

    def relation(self, oid: int) -> Relation:
        """The current version of a table; one with `seen` False if no Relation described it."""
        return self._relations.get(oid, self._stream)

    @property
    def transaction(self) -> Transaction:
        """The transaction of the message, whose changes are not counted."""
        return Transaction(self.xid or None, begun=False, snapshot=self.xid == 0)

    def enter(self, message: AnyFrame) -> None:
        changes = self._relations.follow(message, self._stream)
        if type(message) in _WITH_OWN_XID:
            self.xid = getattr(message, "xid", None)
        elif isinstance(message, StreamStart):
            self.xid = self._stream = message.xid
        elif isinstance(message, RelationMessage):
            changes.append(self._relations.see(message, self._stream))
        elif isinstance(message, TypeMessage):
            self._relations.see_type(message)
        for before, now in changes:
            if self.redaction is not None and now is not before:
                self.redaction.learn(before, now)

    def leave(self, message: AnyFrame) -> None:
        if isinstance(message, StreamCommit | StreamPrepare):
            self._relations.keep(message.xid)
        elif isinstance(message, StreamAbort) and message.subxid == message.xid:
            self._relations.drop(message.xid)
        if type(message) in _LAST:
            self.lost()

    def lost(self) -> None:
        """No transaction is open: one ended, or messages were skipped."""
        self._stream = self.xid = None


_PART = re.compile(r"(old|new|column|relation)\[(\d+)\](?: (.+))?")
_TUPLES = {"K": "the old row's identity", "O": "the whole old row", "N": "the new row"}
_KINDS = {"n": "NULL", "u": "unchanged TOAST, not sent", "t": "text", "b": "binary"}
_BYTES: Final[dict[str, dict[str, str]]] = {
    "frame": {chr(tag): class_.__name__ for tag, class_ in FRAMES.items()},
    "tag": {chr(tag): class_.__name__ for tag, class_ in MESSAGES.items()},
    "replica identity": IDENTITIES,
    "tuple kind": _TUPLES,
    "new tuple": _TUPLES,
}
_BITS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("Truncate", "options"): ("cascade", "restart identity"),
    ("Message", "flags"): ("transactional",),
    ("StreamStart", "first segment"): ("the first segment",),
    ("Keepalive", "reply requested"): ("the server wants an answer at once",),
    ("StandbyStatusUpdate", "reply requested"): ("the client wants an answer at once",),
    ("Relation", "flags"): ("part of the identity",),
}
_NOT_SET: Final = {("Message", "flags"): "not transactional"}

_I32 = struct.Struct(">i").unpack
_I64 = struct.Struct(">q").unpack


class ShownField(NamedTuple):
    """One field: its span in the buffer, its name, its value and explanations of it.

    `depth` is 1 inside a list. The bytes of a `masked` field must not be shown.
    """

    span: Span
    name: str
    type: str
    value: Item
    words: tuple[str, ...] = ()
    depth: int = 0
    masked: bool = False


class FieldDescriber:
    """Describes the fields of messages; `values` shows their values, `encoding` is that of names and prefixes."""

    def __init__(self, scope: Scope, values: ValueStyle, *, encoding: str) -> None:
        self._scope = scope
        self._values = values
        self._encoding = encoding
        self._kind = ""
        self.relation: Relation | None = None
        """The table of the last message, if it has one."""
        self._tuple = ""
        self._cells = 0
        self._redaction = scope.redaction
        self._read: dict[str, Callable[[Span, bytes], tuple[str, str]]] = {
            "Byte1": self._byte,
            "Int8": self._bits,
            "Int32": self._signed,
            "Int32 (Oid)": self._oid,
            "Int32 (TransactionId)": self._xid,
            "Int64 (XLogRecPtr)": lambda _, data: (lsn_text(int.from_bytes(data)), ""),
            "Int64 (TimestampTz)": lambda _, data: (time_text(_I64(data)[0]).replace("T", " "), ""),
        }

    def describe(self, buf: Buffer, spans: Sequence[Span]) -> Iterator[ShownField]:
        """The fields of a message, as far as it could be decoded."""
        self._kind, self.relation, self._tuple, self._cells = "", None, "", 0
        for span in spans:
            data = buf[span.start : span.end]
            part = _PART.fullmatch(span.field)
            if part is None:
                yield self._field(span, data, span.field)
            elif part[1] == "relation":
                yield self._field(span, data, span.field, depth=1)
            elif part[1] == "column":
                yield self._column(span, data, int(part[2]), part[3])
            else:
                yield self._cell(span, data, int(part[2]), part[3])

    def named(self, field: str) -> str:
        """The name to show for a field of the last message, decoded or not: that of the column for new[1]."""
        part = _PART.fullmatch(field)
        if part is None or part[1] not in ("old", "new"):
            return field
        return " ".join([self._column_name(int(part[2])), *filter(None, [part[3]])])

    def _column_name(self, index: int) -> str:
        columns = self.relation.columns if self.relation is not None else ()
        return name(columns[index].name) if index < len(columns) else unnamed(index)

    def _field(self, span: Span, data: bytes, label: str, *, depth: int = 0) -> ShownField:
        if span.type == "String":
            value, word = self._values.string(data[:-1].decode(self._encoding, "backslashreplace")), ""
        elif span.type.startswith("Byte") and span.type != "Byte1":
            if self._redaction is not None and span.field == "body":  # of an unknown message
                return ShownField(span, label, span.type, ((MASK, "note"),), (), depth, masked=True)
            value, word = self._values.cell(UNKNOWN, data, mark=()), ""
        else:
            text, word = self._read.get(span.type, self._number)(span, data)
            value = breakable(text, "value")
        return ShownField(span, label, span.type, value, (word,) if word else (), depth)

    def _number(self, span: Span, data: bytes) -> tuple[str, str]:
        if span.field.endswith("number of columns"):
            self._cells = int.from_bytes(data)
        return str(int.from_bytes(data)), ""

    def _signed(self, span: Span, data: bytes) -> tuple[str, str]:
        signed = span.field.endswith(("length", "atttypmod"))
        return str(_I32(data)[0] if signed else int.from_bytes(data)), ""

    def _byte(self, span: Span, data: bytes) -> tuple[str, str]:
        char = chr(data[0])
        word = _BYTES.get(span.field, {}).get(char, "")
        if span.field in ("frame", "tag"):
            self._kind = word
        elif span.field in ("tuple kind", "new tuple"):
            self._tuple = char
        return (repr(char) if 0x20 <= data[0] < 0x7F else f"0x{data[0]:02x}"), word

    def _bits(self, span: Span, data: bytes) -> tuple[str, str]:
        what = (self._kind, span.field.rpartition(" ")[2] if span.field.startswith("column") else span.field)
        bits = _BITS.get(what, ())
        words = [word for bit, word in enumerate(bits) if data[0] >> bit & 1]
        if data[0] >> len(bits):
            words.append(f"unknown bits 0x{data[0] >> len(bits) << len(bits):02x}")
        return str(data[0]), ", ".join(words) or _NOT_SET.get(what, "")

    def _xid(self, span: Span, data: bytes) -> tuple[str, str]:
        xid = int.from_bytes(data)
        return str(xid), "none: the rows of a snapshot follow" if self._kind == "Begin" and not xid else ""

    def _oid(self, span: Span, data: bytes) -> tuple[str, str]:
        oid = int.from_bytes(data)
        about = span.field.startswith("relation") or (self._kind == "Relation" and span.field == "oid")
        if not about:
            return str(oid), ""
        self.relation = self._scope.relation(oid)
        if not self.relation.seen:
            return str(oid), "never described" if self._kind != "Relation" else ""
        return str(oid), table_name(self.relation)

    def _column(self, span: Span, data: bytes, index: int, part: str) -> ShownField:
        field = self._field(span, data, span.field, depth=1)
        if part == "type" and self.relation is not None and index < len(self.relation.columns):
            return field._replace(words=(name(self.relation.columns[index].type_name),))
        return field

    def _cell(self, span: Span, data: bytes, index: int, part: str | None) -> ShownField:
        columns = self.relation.columns if self.relation is not None else ()
        column = columns[index] if index < len(columns) else None
        label = self._column_name(index)
        if part == "kind":
            kind = chr(data[0])
            word = _KINDS.get(kind, "")
            if kind == "n" and self._tuple in ("K", "O") and column is not None and not column.key:
                word = "not part of the identity"
            return ShownField(span, f"{label} kind", span.type, ((repr(kind), "value"),), (word,), 1)
        if part == "length":
            return self._field(span, data, f"{label} length", depth=1)
        words = () if column is None else (name(column.type_name),)
        codec, bare = (UNKNOWN, False) if column is None else (column.codec, column.type_oid in BARE)
        cell = Binary(data) if span.type == "binary" else data
        redaction, relation = self._redaction, self.relation
        if redaction is not None and (relation is None or redaction.hides(relation, index, self._cells)):
            value = self._values.cell(redaction.masking(codec), cell, "note", bare=True)
            return ShownField(span, label, f"Byten ({span.type})", value, words, 1, masked=True)
        return ShownField(span, label, f"Byten ({span.type})", self._values.cell(codec, cell, bare=bare), words, 1)
