"""`--format-string`: a line for each change in the user's own format.

Text from the server is escaped, so that a change is one line and is safe on a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Final, TypeAlias

from pgtail.changes.condition import CONTEXT
from pgtail.changes.ddl import Ddl, DdlMessage
from pgtail.changes.events import Event, LogicalMessage, Outcome, TableTruncate, Transaction
from pgtail.changes.relations import Column, Relation
from pgtail.errors import OptionError
from pgtail.files.sink import Sink
from pgtail.humanize import did_you_mean
from pgtail.log import logger
from pgtail.native.plan import Cell, Cells, Field, Piece, Plan, Side, Text, Value, joined
from pgtail.outputs import OutputOptions
from pgtail.outputs.planned import PlannedOutput
from pgtail.outputs.rows import Shape, Write
from pgtail.outputs.values import shown_encoding, text_of_item
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.terminal.escape import escape
from pgtail.terminal.values import BARE, NULL, UNCHANGED_MARK, ValueStyle, name
from pgtail.values import UNKNOWN

_Shown: TypeAlias = Shape | TableTruncate | LogicalMessage | Outcome
"""What is written as a line: the rows of a shape, or one of the other events."""
_Sequence: TypeAlias = Callable[[_Shown], list[Piece]]

_SEQUENCE: Final = re.compile(
    r"%(?:\{(?P<column>[^}]+)\}|\[(?P<shown>[^]]+)\]|(?P<letter>.?))|\\(?P<escape>.?)", re.DOTALL
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "\\": "\\"}
_VALUES: Final = ValueStyle(None)


def _of_table(pick: Callable[[Relation | Ddl], str | None]) -> _Sequence:
    def pieces(shown: _Shown) -> list[Piece]:
        if isinstance(shown, DdlMessage):
            return [name(pick(shown.ddl) or "").encode()]
        return [name(pick(shown.relation) or "").encode()] if isinstance(shown, Shape | TableTruncate) else []

    return pieces


def _of_change(*pieces: Piece, outcome: Callable[[Outcome], str] = lambda _: "") -> _Sequence:
    """The pieces of a change, or the text of an outcome."""
    return lambda shown: [outcome(shown).encode()] if isinstance(shown, Outcome) else [*pieces]


def _of_transaction(pick: Callable[[Transaction], str | None]) -> Text:
    def of(transaction: Transaction) -> bytes:
        found = pick(transaction)
        return b"" if found is None else name(found).encode()

    return Text(of)


def _of_prepare(text: Callable[[int], str], pick: Callable[[Transaction], int | None]) -> Text:
    """A property of the prepare, for a transaction without a commit."""

    def of(transaction: Transaction) -> str | None:
        found = pick(transaction) if transaction.commit_lsn is None else None
        return None if found is None else text(found)

    return _of_transaction(of)


def _table(shown: _Shown) -> list[Piece]:
    if isinstance(shown, LogicalMessage) and not isinstance(shown, DdlMessage):
        return [name(shown.prefix).encode()]
    return _qualified(shown)


_qualified: Final = _of_table(lambda relation: relation.qualified)


def _content(shown: _Shown) -> list[Piece]:
    if not isinstance(shown, LogicalMessage) or not shown.content:
        return []
    return [text_of_item(_VALUES.cell(UNKNOWN, shown.content, bare=True, mark=()))]


def _key(shown: _Shown) -> list[Piece]:
    """The columns of the replica identity, with their values after the change."""
    if not isinstance(shown, Shape):
        return []
    return _cells(shown, shown.row_side, b",", frozenset(shown.relation.key))


def _row(shown: _Shown) -> list[Piece]:
    return _cells(shown, shown.row_side) if isinstance(shown, Shape) else []


def _old(shown: _Shown) -> list[Piece]:
    return _cells(shown, "old") if isinstance(shown, Shape) else []


SEQUENCES: Final[dict[str, _Sequence]] = {
    "o": lambda shown: [shown.op.encode()],  # the operation, as in the JSON
    "t": _table,  # the table with its schema; the prefix of a logical message
    "T": _of_table(lambda relation: relation.name),  # the table alone
    "S": _of_table(lambda relation: relation.schema),  # the schema alone
    "k": _key,  # the key: id=1,n='x'; nothing under identity full or nothing
    "v": _row,  # the row: of a delete the old one, as far as it was sent, else the new one
    "O": _old,  # the old row, as far as it was sent
    "x": _of_change(Value(Field.XID), outcome=lambda outcome: str(outcome.xid)),
    "q": _of_change(Value(Field.SEQ)),
    "l": _of_change(Value(Field.LSN)),
    "c": _of_change(  # the LSN of the commit, or of the prepare
        Value(Field.COMMIT_LSN),
        _of_prepare(lsn_text, lambda transaction: transaction.prepare_lsn),
        outcome=lambda outcome: lsn_text(outcome.lsn),
    ),
    "d": _of_change(  # the time of the commit, or of the prepare
        Value(Field.COMMIT_TS),
        _of_prepare(time_text, lambda transaction: transaction.prepare_ts),
        outcome=lambda outcome: time_text(outcome.time),
    ),
    "r": _of_change(_of_transaction(lambda transaction: transaction.origin)),
    "g": _of_change(_of_transaction(lambda transaction: transaction.gid), outcome=lambda outcome: name(outcome.gid)),
    "a": _of_change(Value(Field.STATE)),  # prepared, aborted or open; nothing of what was committed
    "m": _content,  # the content of a logical message
    "%": lambda shown: [b"%"],
}
"""Letter -> function that returns what it stands for."""


class Template(PlannedOutput):
    """`--format-string`. Raises OptionError for an unknown sequence."""

    def __init__(self, sink: Sink, options: OutputOptions) -> None:
        super().__init__(sink, options)
        format_ = options.format_string or ""
        self._sequences = [*_sequences(format_, context=options.context is not None)]
        named = [match["column"] or match["shown"] for match in _SEQUENCE.finditer(format_)]
        of_context = [one for one in named if options.context is not None and _of_context(one) is not None]
        self._named = {one for one in named if one is not None and one not in of_context}
        self._columns: set[str] = set()
        """The columns of the tables that were shown."""

    def finish(self) -> None:
        super().finish()
        for wanted in sorted(self._named - self._columns) if self._columns else ():
            meant = did_you_mean(wanted, self._columns)
            logger.info(escape(f"no table had a column {wanted} (--format-string){meant}"))
        self._columns.clear()

    def row(self, shape: Shape) -> tuple[Plan, Write]:
        self._columns.update(column.name for column in shape.columns)
        return self._plan(shape), self.write

    def other(self, event: Event) -> None:
        if isinstance(event, TableTruncate):
            self.write(self.rows.truncate(self._plan(event), event))
        elif isinstance(event, LogicalMessage):
            self.write(self.rows.message(self._plan(event), event))
        elif isinstance(event, Outcome):
            self.write(self.rows.boundary(self._plan(event), Transaction(event.xid)))

    def _plan(self, shown: _Shown) -> Plan:
        return joined([piece for sequence in self._sequences for piece in sequence(shown)] + [b"\n"])


def _of_context(wanted: str | None) -> _Sequence | None:
    """The context in %{context}, or a member of it in %{context.KEY}; None for a column."""
    first, *path = (wanted or "").split(".")
    if first != CONTEXT:
        return None

    def text(transaction: Transaction) -> bytes:
        context = transaction.context
        found = b"" if context is None else context.text(path)
        return text_of_item(_VALUES.cell(UNKNOWN, found, bare=True, mark=())) if found else b""

    return _of_change(Text(text))


def _sequences(format_: str, *, context: bool) -> Iterator[_Sequence]:
    end = 0
    for match in _SEQUENCE.finditer(format_):
        yield _literal(format_[end : match.start()])
        end = match.end()
        letter, escape = match["letter"], match["escape"]
        if context and (sequence := _of_context(match["column"])) is not None:
            yield sequence
        elif match["column"] is not None:
            yield _column(match["column"])
        elif match["shown"] is not None:
            yield _column(match["shown"], as_shown=True)
        elif letter in SEQUENCES:
            yield SEQUENCES[letter]
        elif escape in _ESCAPES:
            yield _literal(_ESCAPES[escape])
        else:
            known = ", %".join(SEQUENCES)
            raise OptionError(
                f"--format-string: {match[0]} is none of %{known}, %{{COLUMN}}, %[COLUMN], \\n, \\t and \\\\"
            )
    yield _literal(format_[end:])


def _literal(text: str) -> _Sequence:
    """A text of the user's, whose bytes need not be UTF-8."""
    encoded = text.encode(errors="surrogateescape")
    return lambda shown: [encoded]


def _column(wanted: str, *, as_shown: bool = False) -> _Sequence:
    """A column's value without quotes, empty if it is NULL or was not sent; or `as_shown` in tables."""

    def pieces(shown: _Shown) -> list[Piece]:
        if not isinstance(shown, Shape):
            return []
        side = shown.row_side
        for index, column in enumerate(shown.relation.columns[: shown.width(side)]):
            if column.name == wanted:
                if as_shown:
                    return [Cells(side, (_shown_cell(shown, side, index, column, b""),))]
                return [Cells(side, (Cell(index, b"", shown_encoding(column.codec, _VALUES, alone=True), b"", b""),))]
        return []

    return pieces


def _cells(shape: Shape, side: Side, separator: bytes = b" ", wanted: Collection[str] | None = None) -> list[Piece]:
    """The columns of a tuple, or those of the `wanted` names, each as its name with its value as tables show it.

    Without the columns outside of a key tuple.
    """
    cells = [
        _shown_cell(shape, side, index, column, name(column.name).encode() + b"=")
        for index, column in enumerate(shape.columns[: shape.width(side)])
        if wanted is None or column.name in wanted
    ]
    return [Cells(side, tuple(cells), separator)] if cells else []


def _shown_cell(shape: Shape, side: Side, index: int, column: Column, before: bytes) -> Cell:
    """A value as tables show it; nothing for a column outside of a key tuple."""
    encoding = shown_encoding(column.codec, _VALUES, bare=column.type_oid in BARE)
    null = NULL[0].encode() if side == "new" or shape.in_old(index) else None
    return Cell(index, before, encoding, null, UNCHANGED_MARK[0].encode())
