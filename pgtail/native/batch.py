"""The types of what compiled code makes of messages (native/core/index.pyx and native/rows)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from pgtail.pgoutput.cells import TupleData
from pgtail.pgoutput.cursor import Buffer


class BeginEntry(NamedTuple):
    """A Begin; `start` is where its frame starts in the buffer."""

    start: int
    final_lsn: int
    commit_time: int
    xid: int


class Batch(Protocol):
    """The messages of a part of a buffer, from `start` to `stop`, as arrays.

    Rows without a Begin in the batch, and a Commit without one, are of a transaction that began before. `ended` says
    why the batch ends: all of the part is in it (whole), it would become too large (full), the message at `stop` is
    cut off (incomplete), or that has no place in the arrays: it is damaged, very large, or of another kind (other).
    """

    start: int
    stop: int
    framing: int
    in_stream: bool
    ended: Literal["whole", "full", "incomplete", "other"]

    @property
    def buffer(self) -> Buffer: ...
    def has(self, start: int) -> bool:
        """Whether a message of the batch starts at this position of the buffer."""

    def slice(self, start: int, current: Mapping[int, Any], transaction: Any) -> Slice | None:
        """The Slice from this position of the buffer on; None if no message of the batch starts there.

        Ask for them in ascending order. `current` are the tables by OID, `transaction` the Transaction that is open, or
        None. A slice ends before a mark, and before what only the decoder can judge: a row that does not fit its
        table, a Commit that does not match its Begin, the Begin of a snapshot, a Begin after which there is nothing
        yet, as an Origin may follow, and forged LSNs and times, which not every output can write.
        """

    @property
    def arrays(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The bytes of the arrays of rows, cells, transactions and marks (native/core/index.pxd)."""


class Copied(NamedTuple):
    """What copied_messages() copies of a batch: CopyData messages, and what these are.

    `tables` have the OID of each table and its inserts, updates and deletes, in the order of the first rows. Of whole
    transactions: the commit LSNs as native unsigned integers of 8 bytes, the least and the greatest xid and commit
    time, and the end LSN of the last one. `stop` is where the first message starts that is left.
    """

    messages: bytes
    rows: int
    tables: list[tuple[int, int, int, int]]
    commits: bytes
    xids: tuple[int, int]
    times: tuple[int, int]
    end_lsn: int
    stop: int

    @property
    def transactions(self) -> int:
        """How many transactions it has."""
        return len(self.commits) // 8


class Totals(NamedTuple):
    """What is in a slice: its rows, how many of these a filter hides, how many of them as they could not be tested; its
    messages; how many transactions end, and how many of these are shown.

    `times` are the least and the greatest time of the commits, `end_lsn` is that of the last one. If the slice ends
    inside a transaction, `changes` is the number of its last row, and `opened` its Begin if that is in the slice.
    """

    rows: int
    left_out: int
    not_sent: int
    messages: int
    transactions: int
    shown: int
    times: tuple[int, int] | None
    end_lsn: int | None
    opened: BeginEntry | None
    changes: int
    started: bool
    """Whether it ends inside a transaction whose start is written."""


class SliceRow(NamedTuple):
    """A row of a slice.

    `begin` is None if its transaction began before; `is_last`: that transaction is open at the end of the slice.
    """

    begin: BeginEntry | None
    is_last: bool
    op: str
    seq: int
    lsn: int | None
    relation: Any
    old_kind: str
    old: TupleData | None
    new: TupleData | None


class Slice(Protocol):
    """The rows of a batch from `start` to `stop` with their Begins and Commits.

    `continues`: it starts inside a transaction; `goes_on`: it ends inside one. `relations` are the tables of its rows.
    """

    start: int
    stop: int
    continues: bool
    goes_on: bool
    relations: list[Any]

    def end_before(self, until: int | None, last_lsn: int, latest: int) -> None:
        """End before the Commit of the first transaction that ends at or after the LSN `until` (None: no limit), and
        before the Begin of one that commits after it, after `last_lsn`, or after the time `latest`."""

    def end_shown(self, count: int, after: bool = False) -> None:
        """End before the Commit with which the `count`th shown transaction ends, or `after` it."""

    def end_inside(self) -> None:
        """End before the first Commit."""

    def totals(self) -> Totals: ...
    def counts(self, *, shown: bool = False) -> list[tuple[Any, list[int]]]:
        """The tables, each with the number of its rows in the order of ROW_OPS; with `shown`, of those not hidden."""

    def row(self, place: int) -> SliceRow:
        """A row, by its place in the batch. Raises IndexError."""


Index: TypeAlias = Callable[[Buffer, int, int, int, bool], Batch]
"""index() of native/core/index.pyx: of a buffer, from where to where, its framing, and whether it is of a stream."""


class Batches:
    """The batches of what is read, one after another: each message is indexed once."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._batch: Batch | None = None

    def at(self, buf: Buffer, pos: int, end: int, framing: int, *, in_stream: bool = False) -> Batch:
        """The batch with the message at `pos`; an empty one if that message must be decoded."""
        batch = self._batch
        if batch is None or batch.buffer is not buf or not batch.has(pos):
            self._batch = None  # the next one can take its memory
            batch = self._batch = self._index(buf, pos, end, framing, in_stream)
        return batch


class RowFilter(Protocol):
    """Marks the rows of slices that a Filter hides."""

    def mark(self, rows: Slice, transaction: Any, started: bool, /) -> None:
        """Mark the rows of a slice, before its totals() and end_shown(). `transaction` is the one that continues;
        `started` says whether its start was written."""


class SeenFiller(Protocol):
    """Fills in the old rows of slices from SeenRows, and remembers their new ones."""

    def fill(self, rows: Slice, /) -> None:
        """Process the rows of a slice, before a RowFilter does. It ends before what only SeenRows itself can judge: all
        that is left in the slice must be taken."""


class RowCounter(Protocol):
    """Counts the rows of slices for a Statistics, with their transactions."""

    def count(self, rows: Slice, /) -> None: ...


class Writer(Protocol):
    """Writes slices by the plans of an output. `elements` is how many elements of the open transaction were written."""

    elements: int

    def enter(self, rows: Slice, transaction: Any) -> None:
        """write_rows() writes this slice next. `transaction` is the one that continues."""

    def write_rows(self) -> int | None:
        """Write the rest of the slice. Stops at a row that it cannot write exactly and returns its place: the caller
        writes it and calls again. None at the end."""

    def take_ended(self) -> dict[str, int]:
        """How often the pieces Count were executed in transactions that ended; removes them."""
