"""Count the events of one stream, in bounded memory.

Compiled code counts the rows of slices, as _row() does those of events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from pgtail.changes.ddl import DdlMessage
from pgtail.changes.events import (
    Ended,
    Event,
    LogicalMessage,
    Outcome,
    RowChange,
    Rows,
    SchemaChange,
    Started,
    TableTruncate,
    Transaction,
)
from pgtail.changes.redaction import MASK, Redaction
from pgtail.changes.relations import Relation, differences
from pgtail.native import compiled
from pgtail.native.batch import RowCounter
from pgtail.native.plan import INSERT_OPS
from pgtail.outputs.base import Output
from pgtail.pgoutput.cells import UNCHANGED, TupleData
from pgtail.pgoutput.decoder import FromClient
from pgtail.stats.clients import Clients
from pgtail.stats.hot_keys import HotKeys, KeyTables, RowKey
from pgtail.stats.prepared import PreparedTransactions
from pgtail.stats.rate import NOTHING, Counts, Rate
from pgtail.stats.transactions import Commit, Transactions

_MAX_MARKS: Final = 100
"""Schema changes, and truncates, that are kept."""
_ROW_HEAD: Final = 5
"""Bytes of a row message before its first tuple: the kind and the table."""


class TableCount(Struct):
    """The counts of one table; `number` counts the tables.

    `bytes` is the size of its row messages (manual: logical replication message formats) without frames and without
    the xid of streamed ones. Rows of snapshots are no changes: they and their bytes are counted apart. `compared`
    counts updates whose whole old row was sent, `same` those of them that changed nothing, `moved` updates of the key,
    `unsent` updates with an unsent TOASTed value; `unsent_columns` counts the latter by column.
    """

    relation: Relation
    number: int
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0
    bytes: int = 0
    snapshot_rows: int = 0
    snapshot_bytes: int = 0
    compared: int = 0
    same: int = 0
    moved: int = 0
    unsent: int = 0
    unsent_columns: Counter[str] = field(default_factory=Counter)

    @property
    def rows(self) -> int:
        """Inserts, updates and deletes."""
        return self.inserts + self.updates + self.deletes

    def add(self, inserts: int, updates: int, deletes: int, size: int) -> None:
        """Count changes and their bytes."""
        self.inserts += inserts
        self.updates += updates
        self.deletes += deletes
        self.bytes += size

    @property
    def most_unsent(self) -> dict[str, int]:
        """`unsent_columns` by count, in descending order, and by name."""
        return dict(sorted(self.unsent_columns.items(), key=lambda one: (-one[1], one[0])))


_Changes: TypeAlias = tuple[TableCount, int, int, int, int]
"""Inserts, updates, deletes and bytes of a table."""


class Mark(Struct):
    """A schema change with the differences of the descriptions, or a truncate.

    `lsn` and `time` are those of the transaction with changes that ended next; None if unknown.
    """

    table: Relation
    differences: list[str]
    lsn: int | None = None
    time: int | None = None


class Marks:
    """The first marks of a stream; `more` counts the others."""

    def __init__(self) -> None:
        self.kept: list[Mark] = []
        self.more = 0

    def add(self, mark: Mark) -> list[Mark]:
        """Keep it, or count it; returns it if it is kept."""
        if len(self.kept) >= _MAX_MARKS:
            self.more += 1
            return []
        self.kept.append(mark)
        return [mark]


class HotKey(Struct, frozen=True):
    """A key whose row was updated or deleted `count` to `count` + HotKeys.error times.

    `relation` has the columns of the key alone.
    """

    relation: Relation
    cells: TupleData
    count: int


class Statistics(Output):
    """The counts of one stream; an Output for the pipeline.

    Counts unmasked values: masked ones would all compare equal. `redaction` masks the hot keys, the only values that
    are reported.
    """

    def __init__(self, redaction: Redaction | None = None) -> None:
        self.redaction = redaction
        self.sources: list[str] = []
        """The names of the files, or of the slot."""
        self.warnings: list[str] = []
        """What was reported about them, such as damage and gaps."""
        self.tables: dict[tuple[int, str], TableCount] = {}
        self.transactions = Transactions()
        self.rate = Rate()
        self.hot_keys = HotKeys()
        self.key_tables = KeyTables(redaction)
        self.clients = Clients()
        self.messages = self.message_bytes = 0
        self.snapshots = 0
        """How many times a table was copied."""
        self.schema_changes, self.truncates = Marks(), Marks()
        self._altered: set[int] = set()
        self._unplaced: list[Mark] = []
        """Those that are kept since the end of the last transaction with changes."""
        self.prepared = PreparedTransactions()
        self.streamed = NOTHING
        self.streamed_count = 0
        """The changes of streamed transactions that ended, and how many there are."""
        self._by_version: dict[int, tuple[TableCount, RowKey]] = {}
        self._counter: RowCounter | None = None
        """Counts the rows of slices; made with the first one."""
        self._transaction: Transaction | None = None
        """The one that was open before the current slice."""
        self._now: dict[int, Counts] = {}
        """The changes of the open transaction, by number of the table. The next two are of it, too."""
        self.first_lsn: int | None = None
        self.anything = False
        self._count: dict[type, Callable[[Any], None]] = {
            RowChange: self._row,
            TableTruncate: self._truncate,
            LogicalMessage: self._message,
            DdlMessage: self._ddl,
            Started: lambda _: self.begin(),
            Ended: self._ended,
            SchemaChange: self._schema,
            FromClient: lambda message: self.clients.add(message, max(self.transactions.commits.last, 0)),
            Outcome: self.prepared.end,
        }

    def event(self, event: Event) -> None:
        count = self._count.get(type(event))
        if count is not None:
            count(event)

    def finish(self) -> None:
        """Does nothing: events are counted at once."""

    @property
    def bytes(self) -> int:
        """The bytes of all tables."""
        return sum([table.bytes for table in self.tables.values()])

    @property
    def snapshot_rows(self) -> int:
        """The rows of all snapshots."""
        return sum([table.snapshot_rows for table in self.tables.values()])

    @property
    def snapshot_bytes(self) -> int:
        """Their bytes."""
        return sum([table.snapshot_bytes for table in self.tables.values()])

    def by_bytes(self) -> list[TableCount]:
        """The tables by bytes, in descending order."""
        return sorted(
            self.tables.values(),
            key=lambda one: (-one.bytes, -one.rows, -one.snapshot_bytes, one.relation.qualified, one.relation.oid),
        )

    def hottest(self, limit: int) -> list[HotKey]:
        """The keys whose rows were updated or deleted most often, at most `limit`."""
        return [HotKey(*self.key_tables.split(key), count) for key, count in self.hot_keys.top(limit)]

    # -- rows that are not decoded ---------------------------------------------------------------------------------

    @property
    def takes_slices(self) -> bool:
        return True

    def write_rows(self, rows: Rows) -> None:
        if self._counter is None:
            module = compiled()
            assert module is not None
            self._counter = module.RowCounter(self)
        self._transaction = rows.transaction
        self._counter.count(rows.slice)

    def begin(self) -> None:
        """Reset the counts of the open transaction."""
        self._now = {}
        self.first_lsn = None
        self.anything = False

    def add_part(self, changes: Sequence[_Changes], first_lsn: int | None) -> None:
        """Count rows of the open transaction."""
        for table, *counts in changes:
            self.add_now(table, *counts)
        self.anything = True
        self.first_lsn = self.first_lsn or first_lsn

    def add_now(self, table: TableCount, inserts: int, updates: int, deletes: int, size: int) -> None:
        """Count changes of the open transaction."""
        table.add(inserts, updates, deletes, size)
        now = self._now.get(table.number, NOTHING)
        self._now[table.number] = now.plus((inserts, updates, deletes, size))

    def committed(self) -> None:
        """Count the commit of the transaction that was open before the slice."""
        assert self._transaction is not None
        self._end(self._transaction)

    def add_committed(self, time: int, changes: Sequence[_Changes]) -> None:
        """Count changes that were committed about that time."""
        for table, *counts in changes:
            table.add(*counts)
        self.rate.add(time, {table.number: Counts(*counts) for table, *counts in changes})

    def add_all(self, commits: Sequence[Commit], cells: Sequence[int]) -> None:
        """Count transactions with changes, in the order of their commits; see Transactions.add_all()."""
        for mark in self._unplaced:
            mark.lsn, mark.time = commits[0][1:3]
        self._unplaced.clear()
        self.transactions.add_all(commits, cells)

    def known(self, relation: Relation) -> tuple[TableCount, RowKey]:
        """The counts of a table, and the key of its rows."""
        known = self._by_version.get(relation.version)
        if known is None:
            known = self._by_version[relation.version] = self.table(relation), self.key_tables.row_key(relation)
        return known

    def table(self, relation: Relation) -> TableCount:
        """The counts of a table."""
        return self.tables.setdefault((relation.oid, relation.qualified), TableCount(relation, len(self.tables)))

    # -- events ------------------------------------------------------------------------------------------------

    def _ended(self, event: Ended) -> None:
        if event.complete:
            self._end(event.transaction)
        else:
            self.transactions.incomplete += 1
            self._unplaced.clear()

    def _end(self, transaction: Transaction) -> None:
        if transaction.snapshot:
            self.snapshots += 1
            return
        if transaction.state == "prepared":
            self.prepared.add(transaction)
        if not self.anything:
            self.transactions.empty += 1
            return
        lsn, time = transaction.lsn, transaction.time
        if transaction.origin is not None:  # its time is that of the server where it began
            self.transactions.add_origin(transaction.origin)
            time = None
        tables = self._now
        if time is not None and tables:
            self.rate.add(time, tables)
        total, cells = NOTHING, list[int]()
        for number, counts in tables.items():
            total = total.plus(counts)
            cells += (0, number, *counts)
        if transaction.streamed:
            self.streamed_count += 1
            self.streamed = self.streamed.plus(total)
        self.add_all([(transaction, lsn, time, total.rows, total.bytes, self.first_lsn)], cells)

    def _row(self, change: RowChange) -> None:
        table, row_key = self.known(change.relation)
        table.relation = change.relation
        new, old = change.new, change.old
        size = _ROW_HEAD
        if new is not None:
            size += _tuple_size(new)
        if old is not None:
            size += _tuple_size(old)
        if change.op == "snapshot":
            table.snapshot_rows += 1
            table.snapshot_bytes += size
        else:
            self._count_change(table, change, size)
        if change.op not in INSERT_OPS:
            key = row_key.of(old if change.old_kind == "K" else new)
            if key is not None:
                self.hot_keys.add(key)
        self.anything = True
        if self.first_lsn is None:
            self.first_lsn = change.lsn

    def _count_change(self, table: TableCount, change: RowChange, size: int) -> None:
        is_update = change.op == "update"
        self.add_now(table, change.op == "insert", is_update, change.op == "delete", size)
        if is_update and change.new is not None:
            self._update(table, change, change.new)

    def _update(self, table: TableCount, change: RowChange, new: TupleData) -> None:
        old = change.old
        if change.old_kind == "O" and old is not None:
            table.compared += 1
            table.same += _same(old, new)
        elif old is not None:
            table.moved += not _same_key(old, new)
        if UNCHANGED in new:
            table.unsent += 1
            for index, cell in enumerate(new):
                if cell is UNCHANGED:
                    table.unsent_columns[change.relation.column_name(index)] += 1

    def _truncate(self, change: TableTruncate) -> None:
        table = self.known(change.relation)[0]
        table.relation = change.relation
        table.truncates += 1
        self.anything = True
        self._unplaced += self.truncates.add(Mark(change.relation, []))

    def _message(self, message: LogicalMessage) -> None:
        self.messages += 1
        self.message_bytes += len(message.content)
        self.anything = self.anything or message.transaction is not None

    def _schema(self, event: SchemaChange) -> None:
        if self.redaction is not None:
            self.redaction.learn(event.before, event.now)
        found = [] if event.before is None else differences(event.before, event.now)
        if event.now.oid in self._altered:  # a message of `pgtail ddl` said it
            self._altered.remove(event.now.oid)
        elif found:
            self._unplaced += self.schema_changes.add(Mark(event.now, found))

    def _ddl(self, message: DdlMessage) -> None:
        self._message(message)
        if message.alters:
            shown = message if self.redaction is None else message.masked(MASK)
            ddl = shown.ddl
            self._altered.add(ddl.oid or 0)
            table = Relation(ddl.oid or 0, ddl.schema or "", ddl.name or "", "", ())
            self._unplaced += self.schema_changes.add(Mark(table, [ddl.tag, *shown.texts]))


def _tuple_size(cells: TupleData) -> int:
    """The bytes of a TupleData and the kind before it."""
    size = 3 + len(cells)
    for cell in cells:
        if cell is not None and cell is not UNCHANGED:
            size += 4 + len(cell)
    return size


def _same_key(old: TupleData, new: TupleData) -> bool:
    """Whether an update kept the key: a TOASTed key is sent even if it did not change. Other columns are NULL."""
    return all(now is UNCHANGED or before is None or now == before for before, now in zip(old, new, strict=False))


def _same(old: TupleData, new: TupleData) -> bool:
    """Whether an update changed nothing: an unsent value is the old one."""
    return old == new or (
        len(old) == len(new) and all(now is UNCHANGED or now == before for now, before in zip(new, old, strict=True))
    )
