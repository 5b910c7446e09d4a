"""Floor 4, what every output is: events in, bytes out to a sink; knows no file and no terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pgtail.relations import Relation
from pgtail.transaction import Event, Transaction
from pgtail.wire.decoder import RowTaker


class Sink(Protocol):
    """Where an output's bytes go; the pipeline decides when they are really written."""

    def write(self, data: bytes, /) -> object: ...


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What the user may choose about outputs; each takes what concerns it.

    `width` is the terminal's, in cells; `max_width` (cells of a value) and `max_rows` (of a transaction) are None
    for no limit.
    """

    fill_unchanged: bool = False
    transactions: bool = False
    schema_changes: bool = False
    color: bool = False
    width: int = 80
    max_width: int | None = 60
    max_rows: int | None = 20


class Output(Protocol):
    """Renders the events of one stream, in order.

    It gets Started, changes and Ended of one transaction after another (never interleaved), LogicalMessage also
    between transactions, Outcome and SchemaChange anywhere, and no Note. Changes come before the end is known: an
    output must not hold a transaction whole.
    """

    def event(self, event: Event) -> None:
        """Render one event."""

    def finish(self) -> None:
        """The input ended, or broke off: close what is open, so that what was written is well formed."""


class Position(Protocol):
    """Where the stream is, for an output that takes rows straight from the bytes (the assembler knows it)."""

    whole: Transaction | None
    """The transaction that a row message would belong to now, if it came whole and its Started was told."""

    tables: dict[int, Relation]
    """The tables in force outside of stream segments."""


@runtime_checkable
class TakesRows(Protocol):
    """An output with a short way for ordinary rows, for when nothing is filtered."""

    def row_taker(self, position: Position, start: Callable[[], None]) -> RowTaker:
        """The short way; it calls `start` where a transaction has just begun and a row is about to come."""
