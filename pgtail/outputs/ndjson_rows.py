"""Floor 4, the short way of `-o json`: ordinary row messages straight from bytes to a line, without objects between.

It takes what is ordinary, in a transaction that came whole, and declines everything else before a byte is written:
those messages are decoded and rendered as all others (ndjson.py), and both ways give the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from pgtail.outputs.base import Position
from pgtail.outputs.ndjson import LARGE, Json
from pgtail.relations import Relation
from pgtail.transaction import Transaction
from pgtail.values import Undecoded
from pgtail.wire.cursor import Buffer

_OID: Final = struct.Struct(">I").unpack_from
_HEAD: Final = struct.Struct(">IcH").pack
_CELL: Final = struct.Struct(">BI").unpack_from
_HEAD_SIZE: Final = 8
"""The tag, the relation, the kind of tuple and the number of columns."""

_TEXT, _NULL = b"tn"
_DECLINED: Final = -1
_NONE: Final = -1
"""The upper half of no log position."""

_MANY: Final = 4096
_NUMBERS: Final = [b"%d" % number for number in range(_MANY)]
"""The first numbers of rows, for nearly all transactions are small."""

_Value: TypeAlias = Callable[[bytes], bytes]
"""A text cell -> its JSON token."""


class Rows:
    """A RowTaker (wire/decoder.py) that writes lines to a Json output.

    `start` is called where a transaction has just begun and a row is about to come.
    """

    def __init__(self, output: Json, position: Position, start: Callable[[], None]) -> None:
        self._output = output
        self._write = output.write
        self._position = position
        self._start = start
        self._relations = position.tables
        self._forms: dict[bytes, _Form] = {}
        self._of: Transaction | None = None
        self._high = _NONE
        self._before = self._where = self._behind = b""

    def __call__(self, buf: Buffer, pos: int, end: int, lsn: int, follows: int) -> int:
        transaction = self._position.whole
        if transaction is None:
            self._start()
            transaction = self._position.whole
            if transaction is None:
                return _DECLINED
        high = lsn >> 32 if lsn else _NONE
        if transaction is not self._of or high != self._high:
            self._enter(transaction, high)
        seq = transaction.changes + 1
        start = pos
        try:
            form = self._forms.get(buf[pos : pos + _HEAD_SIZE])
            if form is None or form.relation is not self._relations.get(form.relation.oid):
                form = self._prepare(buf, pos)
                if form is None:
                    return _DECLINED
            values: list[object] = [self._before, _NUMBERS[seq] if seq < _MANY else b"%d" % seq, self._where]
            if lsn:
                values.append(lsn & 0xFFFFFFFF)
            values.append(self._behind)
            pos = _cells(form.values, buf, pos + _HEAD_SIZE, end, values)
        except (IndexError, struct.error, Undecoded):
            return _DECLINED
        if pos > end or pos - start > LARGE or (pos != end if follows < 0 else pos == end or buf[pos] != follows):
            return _DECLINED
        transaction.changes = seq
        self._write((form.line if lsn else form.line_without_lsn) % tuple(values))
        return pos

    def _enter(self, transaction: Transaction, high: int) -> None:
        """Make what the lines of a transaction have in common, up to the lower half of a row's log position."""
        self._of, self._high = transaction, high
        xid, commit, self._behind = self._output.parts_of(transaction)
        self._before = xid + b'"seq":'
        self._where = b"," + commit + (b"" if high == _NONE else b'"lsn":"%X/' % high)

    def _prepare(self, buf: Buffer, pos: int) -> _Form | None:
        """Make the forms of a message's table ready, as it is now; the one of this message, if there is one."""
        relation = self._relations.get(_OID(buf, pos + 1)[0])
        if relation is None or not relation.seen:
            return None
        json = self._output.table(relation)
        new: list[tuple[bytes, _Value | None]] = [
            (name, value) for name, value, _ in json.columns[: len(relation.columns)]
        ]
        key = [
            (name, value if column.key else None) for (name, value), column in zip(new, relation.columns, strict=True)
        ]
        for tag, kind, head, tail, columns in (
            (b"I", b"N", json.heads["insert"], b'"new":', new),
            (b"U", b"N", json.heads["update"], json.identity + b'"new":', new),
            (b"D", b"K", json.heads["delete"], json.identity + b'"old":', key),
        ):
            self._forms[tag + _HEAD(relation.oid, kind, len(columns))] = _Form(relation, head, tail, columns)
        return self._forms.get(buf[pos : pos + _HEAD_SIZE])


class _Form:
    """The lines about one operation on one table: formats, and how each cell becomes JSON.

    A format takes the transaction's and the row's keys in the order of the contract, then a token for each cell shown.
    In a key tuple the columns outside of the identity have None in `values`: they are NULL there, and not shown.
    """

    __slots__ = ("line", "line_without_lsn", "relation", "values")

    def __init__(
        self, relation: Relation, head: bytes, tail: bytes, columns: list[tuple[bytes, _Value | None]]
    ) -> None:
        shown = b",".join([_literal(name) + b"%b" for name, value in columns if value is not None])
        begin, row = _literal(head) + b"%b%b%b", b"%b" + _literal(tail) + b"{" + shown + b"}}\n"
        self.relation = relation
        self.line = begin + b'%X",' + row
        self.line_without_lsn = begin + row
        self.values = [value for _, value in columns]


def _literal(text: bytes) -> bytes:
    """Text that stands for itself in a format."""
    return text.replace(b"%", b"%%")


def _cells(values: list[_Value | None], buf: Buffer, pos: int, end: int, tokens: list[object]) -> int:
    """Add the JSON tokens of a tuple's cells; returns where it ends. Raises Undecoded for what is not text or NULL."""
    cell = _CELL
    add = tokens.append
    for value in values:
        kind, size = cell(buf, pos)
        if kind == _TEXT and value is not None:
            start = pos + 5
            pos = start + size
            if pos > end or size > LARGE:
                raise Undecoded("")
            add(value(buf[start:pos]))
        elif kind == _NULL:
            pos += 1
            if value is not None:
                add(b"null")
        else:
            raise Undecoded("")
    return pos
