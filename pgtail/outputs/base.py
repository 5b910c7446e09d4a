"""The interface of all outputs, and their notes of written tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pgtail.changes.events import Event, Rows, Transaction
from pgtail.changes.relations import Relation
from pgtail.files.sink import Sink

if TYPE_CHECKING:
    from pgtail.changes.seen_rows import SeenRows


class WrittenTables:
    """Tables by their names."""

    def __init__(self) -> None:
        self.names: set[tuple[str, str]] = set()
        """Schema and table of each."""

    def add(self, relation: Relation) -> None:
        """Rows of this table are written."""
        if relation.seen:
            self.names.add((relation.schema, relation.name))

    def repeated(self, transaction: Transaction) -> Relation | None:
        """The table of a snapshot, if rows of it were written before."""
        table = transaction.table
        return table if table is not None and (table.schema, table.name) in self.names else None


class Once:
    """Things to write or report once in a stream, of which several processes may write parts.

    Each thing has a name, and a value that does not change.
    """

    def __init__(self) -> None:
        self.done: dict[str, object] = {}
        self.before: Callable[[], Iterable[tuple[str, object]]] | None = None
        """Waits for what was done in the parts before this one; None if all of that is in `done`."""

    def first(self, name: str, value: object = True) -> object:
        """Do a thing: returns None if this is the first time, else the value of that time."""
        if name not in self.done and self.before is not None:
            before, self.before = self.before, None
            self.done.update(before())
        if name in self.done:
            return self.done[name]
        self.done[name] = value
        return None


OpenFile: TypeAlias = Callable[[tuple[str, ...], bytes], Sink]
"""Opens the file of a table in the output directory: (schema and table, header) -> a sink after the header.

A table may come again; with another header it gets another file."""


Mask: TypeAlias = Callable[[Relation], Relation]
"""A table -> the same with codecs that mask values."""


class Output(Protocol):
    """Writes the events of one stream, in order.

    It receives Started, the changes and Ended of one transaction after another (never interleaved), LogicalMessage also
    between transactions, Outcome, SchemaChange and FromClient anywhere, and no Note. Transactions may have any size: an
    output must not keep a whole one in memory.

    Rows that are not decoded come through write_rows(), with the starts and ends of their transactions.
    """

    needs_outcomes: bool = False
    """Whether a prepared transaction counts as shown only when it is committed.

    With a filter, every output receives the outcome of a prepared transaction if it received a change of it. An output
    with this flag also receives it when the Prepare is missing.
    """
    buffers_prepared: bool = False
    """Whether it writes a prepared transaction on its commit only (PreparedBuffer in outputs/planned.py)."""

    @property
    def written(self) -> WrittenTables:
        """The tables that were written, if the output needs to know."""
        return WrittenTables()

    @property
    def once(self) -> Once:
        """The things that it writes or reports once."""
        return Once()

    @property
    def settled(self) -> bool:
        """Whether it waits for nothing, such as the outcome of a prepared transaction. Asked between transactions."""
        return True

    @property
    def takes_slices(self) -> bool:
        """Whether it has write_rows(), which needs compiled code. Asked once, after `mask` is set."""
        return False

    @property
    def needs_end(self) -> bool:
        """Whether its text of a transaction is incomplete without the end of the transaction."""
        return True

    mask: Mask | None = None
    """Masks tables; write_rows() applies it, event() gets masked ones. None if nothing does. The pipeline sets it."""
    takes_whole: bool = True
    """Whether write_rows() takes starts and ends of transactions, and not only rows of an open one."""
    seen_rows: SeenRows | None = None
    """Fills in old rows that were not sent; None if nothing does. The pipeline sets it."""
    lacks_changes: bool = False
    """Whether it could not process every selected change as requested: the exit status is then 1."""
    left_out: int = 0
    """The number of changes or messages that it could not write. It reports this at the end."""

    def event(self, event: Event) -> None:
        """Write one event."""

    def write_rows(self, rows: Rows) -> None:
        """Write rows that were not decoded, with the starts and ends of their transactions."""
        return

    def finish(self) -> None:
        """Close what is open, so that the output is well formed, at the end of the input or after an error.

        May be called again if the first call failed.
        """

    def new_file(self) -> None:
        """The following output goes to another file: write the beginning of a file again. Only between transactions."""
        return

    def takes(self, transaction: Transaction) -> bool:
        """Whether write_rows() may get rows of this transaction, whose start went through event()."""
        return True
