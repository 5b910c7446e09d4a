r"""Row plans: how a format writes a row, as a list of pieces that the Writer and outputs/executor.py both execute.

A plan belongs to one version of a table, one operation and one kind of old tuple. A format with lines such as
`7 insert public.t id="1" v=NULL` is:

    class Example(PlannedOutput):
        rows_alone = True

        def row(self, shape: Shape) -> tuple[Plan, Write]:
            table, side = shape.relation.qualified, shape.row_side
            cells = [
                Cell(index, f"{column.name}=".encode(), self._encoding(column), null=b"NULL", unchanged=b"?")
                for index, column in enumerate(shape.columns[: shape.width(side)])
            ]
            head = f" {shape.op} {table} ".encode()
            return (Value(Field.XID, missing=b"?"), head, Cells(side, tuple(cells), separator=b" "), b"\n"), self.write

        def _encoding(self, column: Column) -> Encoding:
            return encoding_of_text(column, dumps, form=Form("string"))

        def no_plan(self, change: RowChange, reason: NoPlan) -> None:
            self.write(f"? {change.op}: {reason}\n".encode())

`dumps` encodes a decoded text, and the form names the compiled function that does the same (values/encode.pyx). The
compiled writer declines a row before it has written any of it if it cannot execute a piece; the row is then decoded.
no_plan() writes a row without a plan, for which row() or a piece raised NoPlan; here no row is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from pgtail.values.codec import Codec, Pieces, Undecoded


class NotTested(Exception):
    """A value was not sent, or cannot be compared."""


class NativeTest(NamedTuple):
    """A compiled test: its operator, how texts compare (HOWS in rows/condition.pyx), the values to compare with."""

    op: str
    how: str
    values: tuple[bytes, ...] = ()


ROW_OPS: Final = ("insert", "update", "delete", "snapshot")
"""The operations on rows; compiled code knows them by their places. A snapshot is of a row that was there before."""
INSERT_OPS: Final = frozenset(("insert", "snapshot"))
"""Operations of Insert messages, which have a new row only."""

Side: TypeAlias = Literal["old", "new"]
"""The old tuple of a row message, or the new one."""


class Field(enum.IntEnum):
    """A property of a row or its transaction, as text.

    LSN texts are PostgreSQL's (0/16B3748), LSN numbers decimal. Times are those of the commit.
    """

    XID = 0
    COMMIT_LSN = 1
    COMMIT_TS = 2
    """ISO 8601 in UTC with six fractional digits: 2026-01-31T12:00:00.000000Z."""
    TIMESTAMP = 3
    """As PostgreSQL prints a timestamptz in UTC: 2026-01-31 12:00:00+00."""
    END_LSN = 4
    """Known at the end of the transaction only."""
    CHANGES = 5
    """The number of row changes and truncated tables, at the end of the transaction. Compiled code ends no snapshot."""
    SEQ = 6
    LSN = 7
    ABORTED = 8
    """`true` for a change that was rolled back, otherwise unknown."""
    COMMIT_TIME = 9
    """As COMMIT_TS, with a blank in place of the T."""
    STATE = 10
    """`aborted` for a change that was rolled back, otherwise `prepared` or `open`; unknown for what was committed."""
    TIME = 11
    """As COMMIT_TIME, of the commit or the prepare."""
    # Compiled code does not know these.
    CLOCK = 12
    """The same in fewer characters, see local_clock()."""
    UNIX_MS = 13
    UNIX_US = 14
    UNIX_NS = 15
    LAST_END = 16
    """The end LSN of the transaction written before, which is no snapshot, as a number."""
    LSN_NUMBER = 17
    POSITION_NUMBER = 18
    """The number of the row's LSN or, if unknown, of the transaction's."""
    END_NUMBER = 19
    """The number of END_LSN."""
    NOW_MS = 20
    """The current time, read once for a row."""
    NOW_US = 21
    NOW_NS = 22


TRANSACTION_FIELDS: Final = frozenset(
    [
        *(Field.XID, Field.COMMIT_LSN, Field.COMMIT_TS, Field.TIMESTAMP, Field.COMMIT_TIME, Field.TIME, Field.CLOCK),
        *(Field.UNIX_MS, Field.UNIX_US, Field.UNIX_NS, Field.LAST_END),
    ]
)
"""The fields that are the same for all rows of a transaction."""


class Value(Struct, frozen=True):
    """A field between two texts, or `missing` (a text, or another field without them) if it is unknown."""

    field: Field
    before: bytes = b""
    after: bytes = b""
    missing: bytes | Field = b""


class Text(Struct, frozen=True, eq=False):
    """A text that depends on the transaction only.

    `render` gets the Transaction. It must return b"" for a transaction between Begin and Commit without an Origin,
    unless compiled code does not write the output (PlannedOutput.events_only).
    """

    render: Callable[[Any], bytes]


EncoderName: TypeAlias = Literal[
    "",
    "string",
    "number",
    "boolean",
    "json",
    "strings",
    "numbers",
    "booleans",
    "csv",
    "sql",
    "sql_date",
    "bare",
    "number_or_null",
    "hex",
]
"""The encoders of compiled code (values/encode.pyx); the empty name is none of them."""


class Form(NamedTuple):
    """How compiled code encodes PostgreSQL's text: an encoder and its parameter."""

    name: EncoderName
    parameter: int = 0


class Encoding(Struct, frozen=True, eq=False):
    """How a format writes the values of one column.

    `text` and `binary` convert a text and a binary cell; they raise Undecoded. `undecoded` is what is written for a
    value that cannot be decoded. `form` does the same as `text` in compiled code, if it knows the column's type.
    `long_text` and `long_binary` convert a long cell in pieces.
    """

    codec: Codec
    text: Callable[[bytes], bytes]
    binary: Callable[[bytes], bytes]
    undecoded: Callable[[Undecoded], bytes | Iterator[bytes]]
    form: Form | None = None
    long_text: Pieces | None = None
    long_binary: Pieces | None = None


class Skip(enum.IntEnum):
    """Which values a plan does not write."""

    NOTHING = 0
    UNCHANGED = 1
    """Unchanged TOAST in the new tuple."""
    SAME = 2
    """The same, and values that have the same bytes in the other tuple."""
    DIFFERENT = 3
    """The values that SAME writes: in the new tuple, those that are not unchanged and differ from the old ones."""


class Previous(NamedTuple):
    """The value of the other tuple between two texts, written before a value that differs from it.

    If neither is NULL, `pair` writes both instead; compiled code does not support it.
    """

    before: bytes
    after: bytes
    pair: Callable[[bytes, bytes], tuple[bytes, bytes]] | None = None


class Cell(Struct, frozen=True, eq=False):
    """One column of a tuple: the text before its value, how to encode it, and the text after it.

    `null` and `unchanged` replace the value; None leaves the column out. `null_absent`: a NULL is no value but a column
    outside the replica identity. If `encoding` is None, the value is not written, only `before` and `after` (for lists
    of names). `required`, for columns of the replica identity: without a value there is no plan for the row. `skip`:
    such a value is replaced by `skipped`; None leaves the column out. `previous`: write the other tuple's value after
    `before`, if it differs and is not unchanged. `unchanged_undecoded`: if not empty, an unchanged value also counts as
    an UndecodedValue, with this text; compiled code declines such rows. `uncompared`: replaces `before` if the value of
    the other tuple is unchanged; compiled code does not support such plans.
    """

    index: int
    before: bytes
    encoding: Encoding | None
    null: bytes | None
    unchanged: bytes | None = None
    after: bytes = b""
    null_absent: bool = False
    required: bool = False
    skip: Skip = Skip.NOTHING
    skipped: bytes | None = None
    previous: Previous | None = None
    unchanged_undecoded: str = ""
    uncompared: bytes | None = None


class Cells(Struct, frozen=True, eq=False):
    """The cells of a tuple, with a separator between those that are written.

    `fill`: an unchanged cell of the new tuple takes the value of the old one if that was sent. `not_empty`: a row
    without a written cell is Empty. `complete`: there is no plan for a row with an unchanged cell in this tuple.
    """

    side: Side
    cells: tuple[Cell, ...]
    separator: bytes = b","
    fill: bool = False
    not_empty: bool = False
    complete: bool = False


class Names(Struct, frozen=True, eq=False):
    """The columns that were not sent: unchanged ones and, if `absent`, NULLs outside the replica identity.

    `filled`: also list unchanged columns whose value was taken from the old row. `render` receives the indexes in
    ascending order, one tuple after another, and is not called without any.
    """

    sides: tuple[Side, ...]
    render: Callable[[Sequence[int]], bytes]
    filled: bool = False
    absent: bool = False


class Changed(Struct, frozen=True, eq=False):
    """The columns of the new tuple whose value differs from the old one, and those whose value may.

    The first are columns at `compared` whose bytes differ in the old tuple; the second those at `unknown`, and those at
    `compared` whose old value was not sent. Unchanged TOAST is in neither. `render` receives both as indexes in
    ascending order, even if there are none.
    """

    compared: tuple[int, ...]
    unknown: tuple[int, ...]
    render: Callable[[Sequence[int], Sequence[int]], bytes]


class UndecodedValue(NamedTuple):
    """A value that could not be decoded, and the text shown instead."""

    side: Side
    column: int
    text: str


class Undecodable(Struct, frozen=True, eq=False):
    """The text about values that could not be decoded, if there are any. Compiled code declines such rows."""

    render: Callable[[Sequence[UndecodedValue]], bytes]


class Dollars(Struct, frozen=True, eq=False):
    """Dollar-quoted pieces: between $$ and $$ or, if they contain $$, other tags. Compiled code declines the latter."""

    pieces: tuple[Piece, ...]


class Padded(Struct, frozen=True, eq=False):
    """Pieces whose text is padded with blanks to `least` terminal cells.

    SGR sequences have no width. `pad` does this to any text; compiled code to printable ASCII, and declines others.
    """

    pieces: tuple[Piece, ...]
    pad: Callable[[bytes], bytes]
    least: int


class Count(Struct, frozen=True):
    """Writes nothing and counts the row under `key`: in Rows.counts or Written.counts. It ends its plan."""

    key: str


Piece: TypeAlias = bytes | Value | Text | Cells | Names | Changed | Undecodable | Dollars | Padded | Count
Plan: TypeAlias = tuple[Piece, ...]


def joined(pieces: Iterable[Any]) -> tuple[Any, ...]:
    """The pieces with neighbouring texts joined, without empty ones."""
    merged: list[Any] = []
    for piece in pieces:
        if isinstance(piece, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += piece
        elif piece != b"":
            merged.append(piece)
    return tuple(merged)


def grouped(pieces: Sequence[Any]) -> Iterator[Any]:
    """The pieces, with tuples of those that do not depend on the row and of the texts between them."""
    start = 0
    while start < len(pieces):
        end = _end_of_group(pieces, start)
        yield tuple(pieces[start:end]) if end > start else pieces[start]
        start = max(end, start + 1)


def _end_of_group(pieces: Sequence[Any], start: int) -> int:
    """Where the group ends that starts here; `start` if none does."""
    end = start
    for index in range(start, len(pieces)):
        piece = pieces[index]
        if isinstance(piece, Text) or (isinstance(piece, Value) and piece.field in TRANSACTION_FIELDS):
            end = index + 1
        elif end == start or not isinstance(piece, bytes):
            break
    return end


class NoPlan(Exception):
    """A row that its plan cannot express; the text is the reason."""


class Empty(NoPlan):
    """A row of which no cell is written, by Cells.not_empty."""


SEEN_ROW_SIZE: Final = 240
"""Bytes: the approximate memory overhead of a row that is remembered (changes/seen_rows.py)."""

LARGE: Final = 1024 * 1024
"""Bytes; longer values are converted in pieces, and rows with them written in parts, to avoid copies in memory."""
