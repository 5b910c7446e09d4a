"""The records of the library: transactions and changes, which keep what was sent and decode it when it is read."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, ItemsView, Iterator, Sequence, ValuesView
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import EllipsisType
from typing import Any, Final, Literal, NoReturn, Protocol, Self, TypeAlias, cast

from pgtail.api.values import Form, context_of, loader_of
from pgtail.changes import events
from pgtail.changes.ddl import DdlMessage
from pgtail.changes.events import OLD_ROWS, SEEN
from pgtail.changes.relations import Relation
from pgtail.errors import InputError, UndecodedError
from pgtail.outputs import OutputOptions
from pgtail.outputs.choice import ColumnChoice
from pgtail.outputs.ndjson import Json
from pgtail.outputs.rows import columns_of
from pgtail.pgoutput.cells import UNCHANGED, Cell, TupleData
from pgtail.pgoutput.scalars import lsn_text, parse_lsn
from pgtail.terminal.escape import escape
from pgtail.values import Undecoded

Op: TypeAlias = Literal["insert", "update", "delete", "snapshot", "truncate", "message", "ddl"]
_QUOTED: Final = 60
"""Characters of a text that an error quotes."""
EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_NO_TABLE: Final = Relation(0, "", "", "nothing", ())


class NotSent(Enum):
    """The type of NOT_SENT."""

    NOT_SENT = "not sent"

    def __repr__(self) -> str:
        return "NOT_SENT"


NOT_SENT: Final = NotSent.NOT_SENT
"""Stands in `old` for a value that the replica identity has, but that was not sent and is not known."""


class Lsn(int):
    """A log position: a number of bytes, whose text is PostgreSQL's, such as 0/16B3748. Raises ValueError."""

    __slots__ = ()

    def __new__(cls, position: int | str) -> Lsn:
        """From a number, or from PostgreSQL's text."""
        number = parse_lsn(position) if isinstance(position, str) else position
        if not 0 <= number < 1 << 64:
            raise ValueError(f"{number} is not a log position: these have 64 bits")
        return super().__new__(cls, number)

    def __str__(self) -> str:
        return lsn_text(self)

    def __repr__(self) -> str:
        return f"Lsn({lsn_text(self)!r})"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class _Row(dict[str, Any]):
    """A row with errors in place of the values that could not be decoded: reading one of these raises its error."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, UndecodedError):
            raise value
        return value

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())  # without this method dict(row) would not ask for each value

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        return ItemsView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        return ValuesView(self)


class Layout:
    """How the rows of one version of a table are read: the columns that are shown, of at least `width`.

    A cell is ... where a row does not have it.
    """

    def __init__(self, relation: Relation, width: int, shown: ColumnChoice, options: OutputOptions, form: Form) -> None:
        columns = columns_of(relation, width)
        indexes = shown.columns(relation, columns)
        self._columns = [(index, columns[index], loader_of(columns[index], form)) for index in indexes]
        self._fill = options.fill_unchanged
        self._keys = frozenset(relation.key_indexes)
        self._relation = relation
        self.width: int = len(columns)

    def key(self, change: events.RowChange) -> dict[str, Any]:
        """The values of the replica identity: those of the old row, if they were sent."""
        cells = enumerate(change.old or change.new or ())
        return self._row([cell if index in self._keys else ... for index, cell in cells])

    def old(self, change: events.RowChange) -> dict[str, Any]:
        """The old row, as far as it was sent."""
        cells, kind, columns = change.old or (), change.old_kind, self._relation.columns
        if kind in OLD_ROWS and self._relation.seen:
            return self._row([NOT_SENT if cell is UNCHANGED else cell for cell in cells] if kind == SEEN else cells)
        missing = ... if self._relation.partition is None else NOT_SENT
        in_key = [column.key for column in columns] + [False] * (len(cells) - len(columns))
        return self._row([missing if cell is None and not in_key[index] else cell for index, cell in enumerate(cells)])

    def new(self, change: events.RowChange) -> dict[str, Any]:
        """The new row; with `fill_unchanged`, values that did not change are those of the old row, if it has them."""
        cells, old = change.new or (), change.old or ()
        if self._fill and old and UNCHANGED in cells:
            pairs = itertools.zip_longest(cells, old[: len(cells)])
            return self._row([before if cell is UNCHANGED and before is not None else cell for cell, before in pairs])
        return self._row(cells)

    def unchanged(self, change: events.RowChange) -> tuple[str, ...]:
        """The columns of the new row that were not sent because they did not change."""
        cells = change.new or ()
        if UNCHANGED not in cells:
            return ()
        return tuple([column.name for index, column, _ in self._columns if cells[index : index + 1] == (UNCHANGED,)])

    def undecoded(self, change: events.RowChange) -> tuple[str, ...]:
        """The columns with a value that cannot be decoded, in the order of the JSON output."""
        rows = [self.old(change) if change.old else {}, self.new(change) if change.new else {}]
        values = [item for row in rows for item in dict.items(row)]
        return tuple(dict.fromkeys([name for name, value in values if isinstance(value, UndecodedError)]))

    def _row(self, cells: Sequence[Cell | NotSent | EllipsisType]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        decoded, sent = True, len(cells)
        for index, column, load in self._columns:
            cell = cells[index] if index < sent else ...
            if isinstance(cell, bytes):
                try:
                    row[column.name] = load(cell)
                except Undecoded as found:
                    row[column.name], decoded = self._error(column.name, column.type_name, found.text), False
            elif cell is not ...:
                row[column.name] = cell
        return row if decoded else _Row(row)

    def _error(self, column: str, type_: str, text: str) -> UndecodedError:
        shown = text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."
        where = escape(f"{self._relation.qualified}, column {column}")
        return UndecodedError(f"{where}: {shown!r} is not a value of type {type_}", column=column, text=text)


class Reading:
    """How the changes of one stream are read; `form` is that of their values. Raises OptionError."""

    def __init__(self, options: OutputOptions, form: Form) -> None:
        self._options, self._form = options, form
        self._choice = ColumnChoice(options)
        self._layouts: dict[int, Layout] = {}
        """By id() of their tables, which they keep."""
        self._parts: list[bytes] = []
        self._json = Json(self, options)

    def write(self, data: bytes) -> None:
        """A part of a text, from the output that makes it."""
        self._parts.append(data)

    def json(self, change: events.Change) -> str:
        """The line of `-o json`."""
        self._json.event(change)
        parts, self._parts = self._parts, []
        return b"".join(parts).decode().rstrip("\n")

    def layout(self, relation: Relation, *rows: TupleData | None) -> Layout:
        """The layout of these rows of a table."""
        layout, width = self._layouts.get(id(relation)), max(map(len, filter(None, rows)), default=0)
        if layout is None or layout.width < width:
            layout = self._layouts[id(relation)] = Layout(relation, width, self._choice, self._options, self._form)
        return layout

    def finish(self) -> None:
        """Note which names in `columns` no table had."""
        self._choice.note_unused()


class Change:
    """A row that was inserted, updated or deleted, or read for a snapshot; the base of Truncate and Message, too.

    Its values are decoded when they are read, and it may be kept. `transaction` is the one that it belongs to.
    """

    __slots__ = ("_event", "_key", "_new", "_old", "_reading", "transaction")

    def __init__(self, event: events.RowChange, transaction: Transaction, reading: Reading) -> None:
        self._event, self._reading = event, reading
        self.transaction: Transaction = transaction
        self._key: dict[str, Any] | None = None
        self._old: dict[str, Any] | None = None
        self._new: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<{self.op} {escape(self.relation.qualified)} {self.key}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a change is not copied or pickled: it decodes its values when they are read; pickle what it has, such as"
            " key and new, or its json()"
        )

    @property
    def op(self) -> Op:
        """What happened."""
        return cast(Op, self._event.op)

    @property
    def schema(self) -> str:
        """The schema of the table."""
        return self._event.relation.schema

    @property
    def table(self) -> str:
        """The name of the table; its description may be missing in the input: then this is "relation OID"."""
        return self._event.relation.name_or_oid

    @property
    def lsn(self) -> Lsn | None:
        """The position of the change in the log; None if the input does not have it."""
        return _lsn(self._event.lsn)

    @property
    def seq(self) -> int | None:
        """The number of the change within its transaction, from 1, before any filter; None if its start is missing."""
        return self._event.seq

    @property
    def relation(self) -> Relation:
        """The table as it was described then."""
        return self._event.relation

    @property
    def key(self) -> dict[str, Any]:
        """The values of the replica identity: of the old row, if they were sent. Empty where there is no such key."""
        if self._key is None:
            self._key = self._layout.key(self._event)
        return self._key

    @property
    def old(self) -> dict[str, Any] | None:
        """The old row of an update or a delete, as far as it was sent; None if nothing of it was.

        It does not have columns outside of the replica identity. A value that is not known is NOT_SENT.
        """
        if self._old is None and self._event.old is not None:
            self._old = self._layout.old(self._event)
        return self._old

    @property
    def new(self) -> dict[str, Any] | None:
        """The row, or the new row of an update; None for a delete. A TOASTed value that was not sent is UNCHANGED."""
        if self._new is None and self._event.new is not None:
            self._new = self._layout.new(self._event)
        return self._new

    @property
    def unchanged(self) -> tuple[str, ...]:
        """The columns whose TOASTed value an update did not change, and the server did not send."""
        return self._layout.unchanged(self._event)

    @property
    def undecoded(self) -> tuple[str, ...]:
        """The columns with a value that could not be read as its type; to read it from a row raises UndecodedError."""
        return self._layout.undecoded(self._event)

    @property
    def context(self) -> dict[str, Any] | str | bytes | None:
        """The content of the last message with the prefix `context` that its transaction sent before it; None without.

        A JSON object is a dict, other text a str. It is the client's claim, and as masked as the row.
        """
        context = self._event.transaction.context
        return None if context is None else context_of(context.shown)

    def json(self) -> str:
        """The line of `pgtail decode -o json`."""
        return self._reading.json(self._event)

    @property
    def _layout(self) -> Layout:
        return self._reading.layout(self._event.relation, self._event.old, self._event.new)


class _Rowless(Change):
    """A change that has no row."""

    __slots__ = ("_sent",)

    def __init__(
        self,
        event: events.TableTruncate | events.LogicalMessage,
        relation: Relation,
        seq: int | None,
        transaction: Transaction,
        reading: Reading,
    ) -> None:
        within = event.transaction or events.Transaction(None)
        rowless = events.RowChange(event.op, within, seq, event.lsn, relation, "", None, None)
        super().__init__(rowless, transaction, reading)
        self._sent = event

    def json(self) -> str:
        return self._reading.json(self._sent)


class Truncate(_Rowless):
    """A table that was truncated, maybe together with others. There is no row, and `key` is empty."""

    __slots__ = ("cascade", "restart_identity")

    def __init__(self, event: events.TableTruncate, transaction: Transaction, reading: Reading) -> None:
        super().__init__(event, event.relation, event.seq, transaction, reading)
        self.cascade: bool = event.cascade
        self.restart_identity: bool = event.restart_identity


class Message(_Rowless):
    """A logical message, of pg_logical_emit_message(); of op "ddl" if it is about a schema change (pgtail-ddl(1)).

    There is no row, and no table but that of "ddl", whose `relation` has no columns. If it is not `transactional`, it
    was sent at once, even if its transaction was rolled back.
    """

    __slots__ = ("content", "prefix", "transactional")

    def __init__(self, event: events.LogicalMessage, transaction: Transaction, reading: Reading) -> None:
        ddl = event.ddl if isinstance(event, DdlMessage) else None
        about = Relation(ddl.oid or 0, ddl.schema or "", ddl.name or "", "nothing", ()) if ddl else _NO_TABLE
        super().__init__(event, about, None, transaction, reading)
        self.prefix: str = event.prefix
        self.content: bytes = event.content
        self.transactional: bool = event.transactional

    def __repr__(self) -> str:
        about = f" about {escape(self.relation.qualified)}" if self.table else ""
        return f"<{self.op} {self.prefix!r} of {len(self.content)} bytes{about}>"


class Transaction:
    """A committed transaction, or the rows of a table in a snapshot, to be iterated over once: its changes in order.

    Iterate before the next transaction is taken; what is left of it then is skipped. With `async for`, if the stream
    was entered with `async with`. A logical message that is not transactional, and comes between transactions, is one
    without an xid. What is not known is None; some is known only at the end of the changes.
    """

    __slots__ = ("_begun", "_record", "_stream", "gid", "origin", "snapshot", "xid")

    def __init__(self, record: events.Transaction, stream: Transactions) -> None:
        self._record, self._stream, self._begun = record, stream, False
        self.xid: int | None = record.xid
        self.origin: str | None = record.origin
        """The replication origin that it came from."""
        self.gid: str | None = record.gid
        """The name under which it was prepared, if it was committed by COMMIT PREPARED."""
        self.snapshot: bool = record.snapshot
        """Whether these are the rows that a table had at `commit_lsn`: its changes are all of op "snapshot"."""

    def __repr__(self) -> str:
        what = "snapshot" if self.snapshot else f"transaction {self.xid}"
        return f"<{what} at {self.commit_lsn}>"

    def __iter__(self) -> Iterator[Change]:
        """The changes, once. Raises InputError inside of a transaction that the input breaks off."""
        if self._begun or self._stream.current is not self:
            why = "it was iterated over before" if self._begun else "the next one was taken, or it was acknowledged"
            raise RuntimeError(f"{self!r} has no changes left: {why}")
        self._begun = True
        return self._stream.changes(self)

    def __aiter__(self) -> AsyncIterator[Change]:
        return self._stream.changes_async(self)

    @property
    def messages(self) -> Iterator[Message]:
        """The iteration with its logical messages alone."""
        for change in self:
            if isinstance(change, Message):
                yield change

    @property
    def truncates(self) -> Iterator[Truncate]:
        """The iteration with its truncated tables alone."""
        for change in self:
            if isinstance(change, Truncate):
                yield change

    @property
    def commit_lsn(self) -> Lsn | None:
        """The position of its commit record."""
        return _lsn(self._record.commit_lsn)

    @property
    def end_lsn(self) -> Lsn | None:
        """The position after its commit record, from which to resume; None until all changes were read."""
        return _lsn(self._record.end_lsn)

    @property
    def commit_ts(self) -> datetime | None:
        """The time of its commit, in UTC."""
        micros = self._record.commit_ts
        try:
            return None if micros is None else EPOCH + timedelta(microseconds=micros)
        except OverflowError:
            raise InputError(f"{self!r} has a time that Python does not have: it is damaged") from None


class EventStream(Iterator[events.Event], Protocol):
    """The events of a stream; close() ends it."""

    def close(self) -> None: ...


_END: Final = events.Ended(events.Transaction(None), complete=False)
"""What follows the last event."""


class Transactions(Iterator[Transaction]):
    """The transactions of a stream, in the order of their commits. Close it, or use it as a context, to end early.

    An error of the input comes after everything before it. Objects are for one thread.
    """

    def __init__(self, stream: EventStream, reading: Reading) -> None:
        self._events: Iterator[events.Event] = stream
        self._stream, self._reading = stream, reading
        self.current: Transaction | None = None
        """The last one that was taken, until it is skipped."""
        self._first: events.Change | None = None
        """The first change of it, until it is iterated over."""
        self._started: events.Transaction | None = None
        """The one that has started, and no change of it came yet."""
        self._inside = False
        """Whether the end of it was not read yet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End: close the files, and remove temporary ones."""
        self._stream.close()

    def skip(self) -> None:
        """Skip the rest of the transaction that was taken last: its end is known then."""
        while self._inside:
            self._inside = not isinstance(next(self._events, _END), events.Ended)
        self.current = None

    def __next__(self) -> Transaction:
        self.skip()
        for event in self._events:
            if isinstance(event, events.Started):
                self._started = event.transaction
            elif isinstance(event, events.Ended):
                self._started = None
            elif isinstance(event, events.RowChange | events.TableTruncate | events.LogicalMessage):
                started, self._started = self._started, None
                self._inside = started is not None
                # One message alone is a transaction, which ends with it.
                self.current = Transaction(started or events.Transaction(None, end_lsn=event.lsn), self)
                self._first = event
                return self.current
        raise StopIteration

    def changes(self, transaction: Transaction) -> Iterator[Change]:
        """The changes of the last transaction that was taken."""
        first, self._first = self._first, None
        reading = self._reading
        for event in itertools.chain((first,), self._events):
            if event.__class__ is events.RowChange:
                yield Change(event, transaction, reading)
            elif isinstance(event, events.TableTruncate):
                yield Truncate(event, transaction, reading)
            elif isinstance(event, events.LogicalMessage):
                yield Message(event, transaction, reading)
            elif isinstance(event, events.Ended):
                self._inside = False
                if not event.complete:
                    self._raise_broken_off(transaction)
                return
            if not self._inside or self.current is not transaction:
                return
        raise InputError(f"{transaction!r} is not complete: the stream was closed")

    def changes_async(self, transaction: Transaction) -> AsyncIterator[Change]:
        """The same for `async for`; raises RuntimeError for a stream without it."""
        raise RuntimeError("only pgtail.follow() has async for")

    def _raise_broken_off(self, transaction: Transaction) -> NoReturn:
        """Raise the error of the input that was the reason, or that there was no other."""
        following = next(self._events, None)
        if following is not None:
            self._events = itertools.chain((following,), self._events)
        raise InputError(f"{transaction!r} is not complete: the input has no more of it")


def _lsn(position: int | None) -> Lsn | None:
    return None if position is None else Lsn(position)
