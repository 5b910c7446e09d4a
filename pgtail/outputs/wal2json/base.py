"""The common parts of both versions of wal2json's format: options, and how they write values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from pgtail.changes.events import LogicalMessage, Transaction
from pgtail.changes.relations import Column, Relation
from pgtail.files.sink import Sink
from pgtail.log import logger
from pgtail.native.plan import Encoding, Field, Form, Piece, Side, Value
from pgtail.outputs import OutputOptions
from pgtail.outputs.ndjson import dumps, keys
from pgtail.outputs.planned import PlannedOutput
from pgtail.outputs.rows import Shape, encoding_of_text
from pgtail.outputs.wal2json.options import enabled
from pgtail.pgoutput.scalars import lsn_text
from pgtail.terminal.escape import escape
from pgtail.values import Undecoded
from pgtail.values.jsonsyntax import NUMBER

BOOLOID: Final = 16
BYTEAOID: Final = 17
_NUMBERS: Final = frozenset((20, 21, 23, 26, 700, 701, 1700))
"""int8, int2, int4, oid, float4, float8, numeric; by OID, so that a domain is a string, as in wal2json."""

_is_number = re.compile(NUMBER).fullmatch
_SPECIAL: Final = ("NaN", "Infinity", "-Infinity")


def member(name: bytes, field: Field, *, quote: bytes = b'"', before: bytes = b"", after: bytes = b"") -> Value:
    """A member of a JSON object, with the texts `before` and `after` it; null if the field is unknown."""
    start = before + b'"%b":' % name
    return Value(field, start + quote, quote + after, missing=start + b"null" + after)


def identity_of(shape: Shape) -> tuple[Side, list[int]] | None:
    """The columns that identify the old row: of the old tuple or, if none was sent, of the new one.

    None if there are none.
    """
    if shape.old_width is not None:
        return "old", [*range(shape.old_width)]
    if shape.op == "update" and shape.relation.key:
        return "new", [i for i, column in enumerate(shape.relation.columns[: shape.new_width]) if column.key]
    return None


def type_json(column: Column) -> bytes:
    """The name of a column's type; one in double quotes without them (arrays keep them), as wal2json writes it."""
    name = column.type_name
    if name.startswith('"') and name.endswith('"') and '"."' not in name:
        name = name[1:-1].replace('""', '"')
    return dumps(name)


def encoding_of(column: Column, *, as_string: bool, mark: bytes = b"") -> Encoding:
    """How the values of a column are written; `as_string` is numeric-data-types-as-string.

    A value that cannot be decoded is a string with `mark` after it.
    """
    encode, form = _ENCODERS.get(column.type_oid, (dumps, Form("string")))
    if as_string and column.type_oid in _NUMBERS:
        encode, form = _number_string, Form("number", parameter=True)

    def undecoded(found: Undecoded) -> bytes:
        return dumps(found.text) + mark

    return encoding_of_text(column, encode, form=form, undecoded=undecoded)


def _number(text: str) -> bytes:
    _check_number(text)
    return b"null" if text in _SPECIAL else text.encode()


def _number_string(text: str) -> bytes:
    _check_number(text)
    return dumps(text)


def _check_number(text: str) -> None:
    if text not in _SPECIAL and not _is_number(text):
        raise Undecoded(text)


def _boolean(text: str) -> bytes:
    if text not in ("t", "f"):
        raise Undecoded(text)
    return b"true" if text == "t" else b"false"


def _bytea(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise Undecoded(text)
    return dumps(text[2:])


_ENCODERS: Final[dict[int, tuple[Callable[[str], bytes], Form]]] = {
    **dict.fromkeys(_NUMBERS, (_number, Form("number_or_null"))),
    BOOLOID: (_boolean, Form("boolean")),
    BYTEAOID: (_bytea, Form("hex")),
}


class Wal2JsonBase(PlannedOutput):
    """One of the versions; `_on` are the options that are on."""

    buffers_prepared = True

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        super().__init__(sink, options)
        self._on = enabled(options.wal2json)

    def started(self, transaction: Transaction) -> None:
        table = self.written.repeated(transaction)
        if table is not None:
            name, place = escape(table.qualified), lsn_text(transaction.commit_lsn or 0)
            logger.info(f"the snapshot of {name} at {place} repeats rows: readers take them for inserts")
        super().started(transaction)

    def table_keys(self, relation: Relation) -> bytes:
        """The names of the table and, if that is asked for, of its schema."""
        return self._names(relation, relation.name)

    def row_keys(self, relation: Relation) -> bytes:
        """The same for its rows, which are about to be written, also if it was not described."""
        self.written.add(relation)
        return self._names(relation, relation.name_or_oid)

    def _names(self, relation: Relation, name: str) -> bytes:
        return keys(("schema", relation.schema if "include-schemas" in self._on else None), ("table", name))

    def next_lsn(self) -> list[Piece]:
        """The end LSN of the transaction, if it is known and asked for."""
        return [Value(Field.END_LSN, b',"nextlsn":"', b'"')] if "include-lsn" in self._on else []


def message_keys(message: LogicalMessage) -> bytes:
    r"""A logical message; its content as text or, if it is not text, as `\x` and hex digits."""
    head = keys(("transactional", message.transactional), ("prefix", message.prefix))
    try:
        return head + keys(("content", message.content.decode()))
    except ValueError:
        return head + keys(("content", f"\\x{message.content.hex()}"), ("undecoded", True))
