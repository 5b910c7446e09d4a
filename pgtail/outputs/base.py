"""Floor 4, what every output is: events in, bytes out to a sink; knows no file and no terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from pgtail.outputs import wal2json_options
from pgtail.transaction import Event
from pgtail.wire.cursor import Buffer


class Sink(Protocol):
    """Where an output's bytes go; the pipeline decides when they are really written."""

    def write(self, data: bytes, /) -> object: ...


OpenFile: TypeAlias = Callable[[tuple[str, ...], bytes], Sink]
"""(schema and table, header) -> their file in the directory that was asked for, which begins with the header. A table
may come again: with another header it is another file."""


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What the user may choose about outputs; each takes what concerns it.

    `width` is the terminal's, in cells; `max_width` (cells of a value) and `max_rows` (of a transaction) are None
    for no limit. `tell` says a sentence to a person; `open_file` is None where everything goes to one sink; `colors`
    changes styles of tables, `highlight` has regular expressions, `format` is the string of --format-string.
    """

    fill_unchanged: bool = False
    transactions: bool = False
    schema_changes: bool = False
    color: bool = False
    width: int = 80
    max_width: int | None = 60
    max_rows: int | None = 20
    numbers: Literal["exact", "string"] = "exact"
    undo: bool = False
    wal2json: frozenset[str] = wal2json_options.ON
    """wal2json's own options that are on."""
    source_name: str = "pgtail"
    database: str = ""
    kafka_schema: bool = False
    tell: Callable[[str], None] = lambda _: None
    open_file: OpenFile | None = None
    colors: str = ""
    highlight: tuple[str, ...] = ()
    format: str = ""


class Output(Protocol):
    """Renders the events of one stream, in order.

    It gets Started, changes and Ended of one transaction after another (never interleaved), LogicalMessage also
    between transactions, Outcome and SchemaChange anywhere, and no Note. Changes come before the end is known: an
    output must not hold a transaction whole.
    """

    def event(self, event: Event) -> None:
        """Render one event."""

    def finish(self) -> None:
        """The input ended, or broke off: close what is open, so that what was written is well formed.

        May be called again, where ending failed the first time.
        """


Parts: TypeAlias = tuple[bytes, bytes, bytes]
"""What a transaction contributes to its lines: xid; commit or prepare; origin, gid and state."""


class RowRun(Protocol):
    """Takes runs of ordinary row messages, with their Begin and Commit, from bytes to lines: pgtail._rows.Rows, or
    outputs/ndjson_rows.Rows where that is not there.

    It is told where the stream is by enter() and leave(), and tells it by `inside` after each take().
    """

    inside: bool
    """Whether the stream is inside a transaction."""
    began: bool
    """Whether that transaction began in this run: `transaction` then has its xid, commit LSN and commit time."""
    passed: bool
    """Whether any of its rows was shown."""
    seq: int
    """The number of its last row."""
    rows: int
    """How many rows were taken in this run."""
    shown: int
    """How many transactions with rows that were shown ended in this run."""
    end_lsn: int
    """The end of the last of all that ended, or 0."""
    most: int | None
    """The Commit that would make `shown` this many is not taken, None: all are."""
    until: int | None
    """No transaction is taken that ends at this position or behind it."""

    @property
    def transaction(self) -> tuple[int, int, int]: ...
    def forget(self) -> None:
        """Tables may be other ones now."""

    def enter(self, parts: Parts, commit_lsn: int | None, commit_ts: int | None, seq: int, passed: bool) -> None:
        """The next run begins inside this transaction."""

    def leave(self) -> None:
        """The next run begins outside of a transaction."""

    def take(self, buf: Buffer, pos: int, end: int, framing: int, in_stream: bool = False) -> int:
        """Take messages from buf[pos:end] on; returns where the first one starts that is to be decoded.

        `in_stream` says that they come out of stream segments, each with an xid: then all are rows.
        """
