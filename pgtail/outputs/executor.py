"""Executes row plans (native/plan.py) for decoded rows.

A Line is a text with slots for what differs from row to row. lines.py makes the lines of a plan.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, cast

from pgtail.changes.events import Transaction
from pgtail.native.plan import (
    LARGE,
    Count,
    Encoding,
    Ordinal,
    Ordinals,
    Piece,
    Side,
    Text,
    Undecodable,
    UndecodedValue,
    Value,
)
from pgtail.outputs.fields import FIELDS
from pgtail.pgoutput.cells import Binary
from pgtail.values import Undecoded

Part: TypeAlias = bytes | Iterator[bytes]
"""A part of a row's text: bytes, or a long value in pieces."""

Clock: TypeAlias = Callable[[], int]
"""The current time in nanoseconds since 1970-01-01 UTC."""

Reader: TypeAlias = "Callable[[Run], bytes]"

Row: TypeAlias = list[Any]
"""A Run, the cells of both tuples, and the Ordinals of its Line."""

CELLS: Final = 1
"""Where the cells begin in a Row: first those of the old tuple."""


class Run:
    """The rows of one transaction: what fields are read from (fields.Known)."""

    __slots__ = ("_clock", "_now", "aborted", "counts", "last_end", "lsn", "ordinals", "seq", "transaction")

    def __init__(
        self,
        transaction: Transaction,
        clock: Clock,
        counts: Counter[str],
        ordinals: dict[str, int],
        last_end: int | None,
    ) -> None:
        self.transaction = transaction
        self.ordinals = ordinals
        self.last_end = last_end
        self.counts = counts
        self.seq: int | None = None
        self.lsn: int | None = None
        self.aborted = False
        self._clock = clock
        self._now = 0

    def row(self, seq: int | None, lsn: int | None, *, aborted: bool = False) -> Row:
        """The next row, without cells."""
        self.seq, self.lsn, self.aborted, self._now = seq, lsn, aborted, 0
        return [self]

    def count(self, key: str) -> bytes:
        """Count an execution of a Count, which writes nothing."""
        self.counts[key] += 1
        return b""

    def ordinal(self, key: str) -> int:
        """The next number of an Ordinal."""
        number = self.ordinals[key] = self.ordinals.get(key, 0) + 1
        return number

    def now(self) -> int:
        """The time of the clock when it was first asked for."""
        self._now = self._now or self._clock()
        return self._now


class Slot(NamedTuple):
    """What differs from row to row: the item of a Row at `place`, converted to text. `value` describes a cell.

    A `nested` line gets the whole row; its text is changed by `fit`.
    """

    place: int | slice
    convert: Callable[[Any], bytes]
    value: tuple[Side, int, Encoding] | None = None
    nested: Line | None = None
    fit: Callable[[bytes], bytes] = bytes


class Line:
    """How rows are written whose cells are of the same kinds."""

    __slots__ = ("_converts", "_format", "_items", "_pieces", "counts", "ordinals")

    def __init__(
        self,
        pieces: Sequence[bytes | Slot | UndecodedValue | Undecodable],
        counts: Sequence[str] = (),
        ordinals: Sequence[str] = (),
    ) -> None:
        self._pieces = pieces
        self.counts = counts
        """The keys of each Count."""
        self.ordinals = ordinals
        """The keys of each Ordinal: numbered() must be called for each row first."""
        self._format = b"".join(
            [
                piece.replace(b"%", b"%%") if isinstance(piece, bytes) else b"%b" if isinstance(piece, Slot) else b""
                for piece in pieces
            ]
        )
        slots = [piece for piece in pieces if isinstance(piece, Slot)]
        if any(isinstance(piece, UndecodedValue) for piece in pieces):
            slots.append(Slot(0, _raise_undecoded))
        self._converts = [slot.convert for slot in slots]
        self._items = _items([slot.place for slot in slots])

    def numbered(self, row: Row, run: Run) -> None:
        """Append the Ordinals to a row."""
        row += [run.ordinal(key) for key in self.ordinals]

    def text(self, row: Row) -> bytes:
        """The text of a row without long values. Raises Undecoded, and NoPlan as converters do."""
        text = self._format % tuple(
            [convert(item) for convert, item in zip(self._converts, self._items(row), strict=True)]
        )
        if self.counts:
            row[0].counts.update(self.counts)
        return text

    def parts(self, row: Row) -> list[Part]:
        """The text of any row."""
        undecoded: list[UndecodedValue] = []
        parts = self._parts(row, undecoded)
        row[0].counts.update(self.counts)
        return parts

    def _parts(self, row: Row, undecoded: list[UndecodedValue]) -> list[Part]:
        parts: list[Part] = []
        later: list[tuple[int, Undecodable]] = []
        for piece in self._pieces:
            if isinstance(piece, bytes):
                parts.append(piece)
            elif isinstance(piece, UndecodedValue):
                undecoded.append(piece)
            elif isinstance(piece, Undecodable):
                later.append((len(parts), piece))
                parts.append(b"")
            elif piece.nested is not None:
                parts.append(piece.fit(joined_parts(piece.nested._parts(row, undecoded))))
            elif piece.value is not None and row[cast(int, piece.place)] is not None:
                parts.append(_part(*piece.value, cast(bytes, row[piece.place]), undecoded))
            else:
                parts.append(piece.convert(row[piece.place]))
        if undecoded:
            for place, piece in later:
                parts[place] = piece.render(undecoded)
        return parts


def _items(places: list[int | slice]) -> Callable[[Row], tuple[Any, ...]]:
    """A function for the items of a row at `places`."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda row: tuple([row[place] for place in places])


def _raise_undecoded(_: Run) -> bytes:
    raise Undecoded("")


def _part(side: Side, column: int, encoding: Encoding, cell: bytes, undecoded: list[UndecodedValue]) -> Part:
    """A value, in pieces if it is long; one that cannot be decoded is added to `undecoded`."""
    try:
        if cell.__class__ is Binary:
            if len(cell) > LARGE and encoding.long_binary is not None:
                return encoding.long_binary(cell)
            return encoding.binary(cell)
        if len(cell) > LARGE and encoding.long_text is not None:
            return encoding.long_text(cell)
        return encoding.text(cell)
    except Undecoded as error:
        undecoded.append(UndecodedValue(side, column, error.text))
        return encoding.undecoded(error)


def reader(piece: Piece) -> Reader:
    """A function for the text of a piece without tuples."""
    if isinstance(piece, bytes):
        return lambda run: piece
    if isinstance(piece, Text):
        return lambda run: piece.render(run.transaction)
    if isinstance(piece, Value):
        return _field_reader(piece)
    if isinstance(piece, Ordinal):
        return lambda run: b"%d" % run.ordinal(piece.key)
    if isinstance(piece, Ordinals):
        return lambda run: piece.render(run.ordinals)
    assert isinstance(piece, Count)
    return lambda run: run.count(piece.key)


def _field_reader(value: Value) -> Reader:
    read, before, after, missing = FIELDS[value.field], value.before, value.after, value.missing

    def text(run: Run) -> bytes:
        found = read(run)
        if found is not None:
            return before + found + after
        return missing if isinstance(missing, bytes) else FIELDS[missing](run) or b""

    return text


def text_of(pieces: Iterable[Piece], run: Run) -> bytes:
    """The text of pieces without tuples."""
    return b"".join([reader(piece)(run) for piece in pieces])


def dollar_quoted(text: bytes) -> bytes:
    """Dollar-quoted text, which must not end with a dollar sign."""
    tags = itertools.chain((b"$$",), (b"$_%d$" % number for number in itertools.count(1)))
    tag = next(tag for tag in tags if tag not in text)
    return tag + text + tag


def joined_parts(parts: Sequence[Part]) -> bytes:
    """The parts as one text."""
    return b"".join([part if isinstance(part, bytes) else b"".join(part) for part in parts])
