"""`--format-string`: a line for each change in the user's own format.

Text from the server is escaped, so that a change is one line and is safe on a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from pgtail.changes.events import Change, Event, LogicalMessage, Outcome, RowChange, TableTruncate, Transaction
from pgtail.changes.relations import Relation
from pgtail.errors import OptionError
from pgtail.files.sink import Sink
from pgtail.outputs.base import OutputOptions
from pgtail.outputs.cells import columns_of
from pgtail.pgoutput.cells import UNCHANGED, Cell, TupleData
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.terminal.values import BARE, ValueStyle, name
from pgtail.values import UNKNOWN

_Shown: TypeAlias = Change | Outcome
_Part: TypeAlias = Callable[[_Shown], str]

_SEQUENCE: Final = re.compile(r"%(?:\{(?P<column>[^}]+)\}|(?P<letter>.?))|\\(?P<escape>.?)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "\\": "\\"}
_VALUES: Final = ValueStyle(None)


def _of_transaction(pick: Callable[[Transaction], object]) -> _Part:
    def part(event: _Shown) -> str:
        transaction = None if isinstance(event, Outcome) else event.transaction
        found = None if transaction is None else pick(transaction)
        return "" if found is None else name(str(found))

    return part


def _of_table(pick: Callable[[Relation], str]) -> _Part:
    def part(event: _Shown) -> str:
        return name(pick(event.relation)) if isinstance(event, RowChange | TableTruncate) else ""

    return part


def _table(event: _Shown) -> str:
    return name(event.prefix) if isinstance(event, LogicalMessage) else _qualified(event)


_qualified: Final = _of_table(lambda relation: relation.qualified)


def _sequence_number(event: _Shown) -> str:
    seq = event.seq if isinstance(event, RowChange | TableTruncate) else None
    return "" if seq is None else str(seq)


def _lsn(event: _Shown) -> str:
    lsn = None if isinstance(event, Outcome) else event.lsn
    return "" if lsn is None else lsn_text(lsn)


def _position(event: _Shown) -> str:
    lsn = event.lsn if isinstance(event, Outcome) else None if event.transaction is None else event.transaction.lsn
    return "" if lsn is None else lsn_text(lsn)


def _time(event: _Shown) -> str:
    time = event.time if isinstance(event, Outcome) else None if event.transaction is None else event.transaction.time
    return "" if time is None else time_text(time)


def _xid(event: _Shown) -> str:
    return str(event.xid) if isinstance(event, Outcome) else _xid_of_change(event)


_xid_of_change: Final = _of_transaction(lambda transaction: transaction.xid)


def _gid(event: _Shown) -> str:
    return name(event.gid) if isinstance(event, Outcome) else _gid_of_change(event)


_gid_of_change: Final = _of_transaction(lambda transaction: transaction.gid)


def _state(event: _Shown) -> str:
    if isinstance(event, Outcome) or event.transaction is None:
        return ""
    return "aborted" if event.aborted else event.transaction.state or ""


def _content(event: _Shown) -> str:
    return _bare(event.content) if isinstance(event, LogicalMessage) else ""


def _key(event: _Shown) -> str:
    """The columns of the replica identity, with their values after the change."""
    if not isinstance(event, RowChange):
        return ""
    keys = set(event.relation.key)
    return ",".join([text for column, text in _cells(event, _row_of(event)) if column in keys])


def _row(event: _Shown) -> str:
    return " ".join([text for _, text in _cells(event, _row_of(event))]) if isinstance(event, RowChange) else ""


def _old(event: _Shown) -> str:
    return " ".join([text for _, text in _cells(event, event.old)]) if isinstance(event, RowChange) else ""


SEQUENCES: Final[dict[str, tuple[_Part, str]]] = {
    "o": (lambda event: event.op, "the operation, as in the JSON"),
    "t": (_table, "the table with its schema; the prefix of a logical message"),
    "T": (_of_table(lambda relation: relation.name), "the table alone"),
    "S": (_of_table(lambda relation: relation.schema), "the schema alone"),
    "k": (_key, "the key: id=1,n='x'; nothing under identity full or nothing"),
    "v": (_row, "the row: of a delete the old one, as far as it was sent, else the new one"),
    "O": (_old, "the old row, as far as it was sent"),
    "x": (_xid, "the transaction's xid"),
    "q": (_sequence_number, "the change's seq"),
    "l": (_lsn, "the change's LSN"),
    "c": (_position, "the LSN of the commit, or of the prepare"),
    "d": (_time, "the time of the commit, or of the prepare"),
    "r": (_of_transaction(lambda transaction: transaction.origin), "the origin"),
    "g": (_gid, "the gid of a prepared transaction"),
    "a": (_state, "prepared, aborted or open; nothing of what was committed"),
    "m": (_content, "the content of a logical message"),
    "%": (lambda event: "%", "a percent sign"),
}
"""Letter -> (function that writes it, description for the help text)."""


class Template:
    """`--format-string`. Raises OptionError for an unknown sequence."""

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        self._write = sink.write
        self._parts = [*_parts(options.format)]

    def event(self, event: Event) -> None:
        if isinstance(event, RowChange | TableTruncate | LogicalMessage | Outcome):
            line = "".join([part if isinstance(part, str) else part(event) for part in self._parts])
            self._write(f"{line}\n".encode())

    def finish(self) -> None:
        """Does nothing: each event writes a complete line."""


def _parts(format_: str) -> Iterator[str | _Part]:
    end = 0
    for match in _SEQUENCE.finditer(format_):
        yield format_[end : match.start()]
        end = match.end()
        letter, escape = match["letter"], match["escape"]
        if match["column"] is not None:
            yield _column(match["column"])
        elif letter in SEQUENCES:
            yield SEQUENCES[letter][0]
        elif escape in _ESCAPES:
            yield _ESCAPES[escape]
        else:
            known = ", %".join(SEQUENCES)
            raise OptionError(f"--format-string: {match[0]} is none of %{known}, %{{COLUMN}}, \\n, \\t and \\\\")
    yield format_[end:]


def _column(wanted: str) -> _Part:
    """A column's value without quotes; empty if it is NULL or was not sent."""

    def part(event: _Shown) -> str:
        if not isinstance(event, RowChange):
            return ""
        for index, column in enumerate(event.relation.columns):
            row = _row_of(event) or ()
            if column.name == wanted and index < len(row):
                return _plain(event, index, row[index])
        return ""

    return part


def _plain(change: RowChange, index: int, cell: Cell) -> str:
    if cell is None or cell is UNCHANGED or cell == b"":
        return ""
    return _text(_VALUES.cell(change.relation.columns[index].codec, cell, bare=True, mark=()))


def _bare(content: bytes) -> str:
    return _text(_VALUES.cell(UNKNOWN, content, bare=True, mark=())) if content else ""


def _row_of(change: RowChange) -> TupleData | None:
    return change.old if change.new is None else change.new


def _cells(change: RowChange, row: TupleData | None) -> Iterator[tuple[str, str]]:
    """Each column's name, and the name with its value as tables show it, without columns outside of a key tuple."""
    whole = change.old_kind == "O" and change.relation.seen
    cells = row or ()
    for column, cell in zip(columns_of(change.relation, len(cells)), cells):  # noqa: B905 -- a row may be shorter
        if cell is None and row is change.old and not whole and not column.key:
            continue
        shown = _VALUES.cell(column.codec, cell, bare=column.type_oid in BARE)
        yield column.name, f"{name(column.name)}={_text(shown)}"


def _text(item: Iterable[tuple[str, Any]]) -> str:
    return "".join([text for text, _ in item])
