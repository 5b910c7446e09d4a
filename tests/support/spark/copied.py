"""A server that is made up: tables with rows from before the capture, transactions, and snapshots of the tables at any
position; with what the tables have after each of them. Knows of pgtail only how captures are written."""

from __future__ import annotations

import copy
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

from pgtail.capture.format import SnapshotPart, copy_data
from pgtail.capture.recorder import Recorder, Rotation
from pgtail.capture.snapshot_writer import SnapshotWriter
from pgtail.capture.snapshots import open_state
from pgtail.capture.state import SnapshotFile, StateFile, TableSnapshot
from tests.support import encode
from tests.support.encode import INT4, TEXT, UNCHANGED

HEAD: Final = {
    "pgtail.slot": "s",
    "pgtail.system_identifier": "7",
    "pgtail.database": "shop",
    "pgtail.timeline": "1",
    "client_encoding": "UTF8",
}
SMALL: Final = Rotation(size=4000, sync_size=1500)
_NUMERIC: Final = 1700
_MOOD: Final = 16_400
_BLOCK: Final = 1000
"""Numbers of rows for each part of a snapshot."""

Row: TypeAlias = dict[str, str | None]
Rows: TypeAlias = Counter[tuple[tuple[str, str | None], ...]]


@dataclass
class Table:
    """A table; `identity` as in a Relation message: d (a key), f (full) or n (nothing)."""

    relid: int
    name: str
    identity: str
    columns: list[tuple[str, int]]
    key: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    version: int = 0

    def describe(self) -> list[bytes]:
        """Its Type and Relation messages."""
        names = [name for name, _ in self.columns]
        key = range(len(names)) if self.identity == "f" else [names.index(name) for name in self.key]
        relation = encode.relation(self.relid, self.name, self.columns, identity=self.identity, key=[*key])
        types = [encode.type_(_MOOD, "mood") for _, kind in self.columns if kind == _MOOD]
        return [*types, relation]

    def cells(self, row: Row) -> list[encode.Cell]:
        return [row[name] for name, _ in self.columns]

    def identified(self, row: Row) -> list[encode.Cell]:
        """The old tuple of a row."""
        return [row[name] if self.identity == "f" or name in self.key else None for name, _ in self.columns]


@dataclass(frozen=True)
class Described:
    """That a table is described by these messages, if it was not described so before."""

    relid: int
    version: int
    messages: Sequence[bytes]


@dataclass(frozen=True)
class Transaction:
    """What the server sends of a transaction, or of the outcome of one."""

    lsn: int
    items: Sequence[Described | bytes]


@dataclass(frozen=True)
class Snapshot:
    """Tables as they were at a consistent point."""

    lsn: int
    time: int
    tables: Sequence[Table]


Step: TypeAlias = Transaction | Snapshot


class Server:
    """Makes up `steps`; `truth` has the contents of all tables after each position that changes them."""

    def __init__(self, choose: Random, tables: int) -> None:
        self._choose = choose
        self.lsn, self._time, self._xid, self._next_key = 0x1000, 800_000_000_000_000, 700, 0
        self.tables = [self._table(16_384 + number) for number in range(tables)]
        self.steps: list[Step] = []
        self.truth: list[tuple[int, dict[int, Rows]]] = []
        self._prepared: list[tuple[int, str, Table, list[Row]]] = []

    def run(self, transactions: int) -> None:
        for _ in range(transactions):
            chance = self._choose.random()
            if chance < 0.15:
                self._prepare()
            elif chance < 0.3 and self._prepared:
                self._outcome()
            else:
                self._transaction()
            if chance > 0.95:
                self.alter(self._choose.choice(self.tables))

    def transact(self, transactions: int) -> None:
        """Transactions alone: none is prepared, and no table is altered."""
        for _ in range(transactions):
            self._transaction()

    def snapshot(self, tables: Sequence[Table], *, adjacent: bool = False) -> int:
        """Take one of some tables; with `adjacent` the next transaction's commit starts right there."""
        self.lsn += 64
        self.steps.append(Snapshot(self.lsn, self._tick(), copy.deepcopy(list(tables))))
        taken = self.lsn
        if adjacent:
            self.lsn -= 64
        return taken

    # -- tables --------------------------------------------------------------------------------------------------

    def _table(self, relid: int) -> Table:
        identity = "dddfn"[relid % 5]
        columns = [("id", INT4), ("v", _NUMERIC), ("mood", _MOOD), ("body", TEXT)]
        key = {"d": ("id",) if relid % 2 else ("id", "mood"), "f": (), "n": ()}[identity]
        table = Table(relid, f"t{relid - 16_384}", identity, columns, key)
        for _ in range(self._choose.choice((0, 3, 12))):
            table.rows.append(self.row(table))
        return table

    def row(self, table: Table) -> Row:
        """Another row of a table."""
        choose = self._choose
        self._next_key += 1
        few = table.identity != "d"
        values: Row = {
            "id": str(choose.randrange(3) if few else self._next_key),
            "v": choose.choice((None, "1.50", "NaN") if few else (None, "1.50", "-2", "NaN")),
            "mood": choose.choice(("sad", "o'k")),
            "body": choose.choice((None, "x", "é" * 40)),
        }
        return {name: values.get(name) for name, _ in table.columns}

    def alter(self, table: Table) -> None:
        """Adds or removes a column; not of a table whose rows are found by all of their values."""
        if table.identity != "d" or any(one is table for _, _, one, _ in self._prepared):
            return
        table.version += 1
        names = [name for name, _ in table.columns]
        if "extra" in names:
            table.columns = [one for one in table.columns if one[0] != "extra"]
            for row in table.rows:
                del row["extra"]
        else:
            table.columns = [*table.columns, ("extra", TEXT)]
            for row in table.rows:
                row["extra"] = "default"

    # -- transactions --------------------------------------------------------------------------------------------

    def _tick(self) -> int:
        self._time += 1_000_000
        return self._time

    def _next(self) -> tuple[int, int, int]:
        """xid, LSN and time of a transaction."""
        self._xid += 1
        self.lsn += 64
        return self._xid, self.lsn, self._tick()

    def _free(self) -> list[Table]:
        return [table for table in self.tables if not any(one is table for _, _, one, _ in self._prepared)]

    def _transaction(self) -> None:
        xid, lsn, time = self._next()
        free = self._free()
        items: list[Described | bytes] = [encode.begin(xid, lsn, time)]
        for table in self._choose.sample(free, min(len(free), self._choose.randint(1, 4))):
            items += self._changes(table, table.rows)
        self.steps.append(Transaction(lsn, [*items, encode.commit(lsn, lsn + 48, time)]))
        self._remember(lsn)

    def _prepare(self) -> None:
        xid, lsn, time = self._next()
        table = self._choose.choice(self._free())
        rows, gid = copy.deepcopy(table.rows), f"g{xid}"
        items = [encode.begin_prepare(xid, gid, lsn, lsn + 48, time), *self._changes(table, rows)]
        self.steps.append(Transaction(lsn, [*items, encode.prepare(xid, gid, lsn, lsn + 48, time)]))
        self._prepared.append((xid, gid, table, rows))

    def _outcome(self) -> None:
        xid, gid, table, rows = self._prepared.pop(0)
        _, lsn, time = self._next()
        if self._choose.random() < 0.7:
            table.rows = rows
            item = encode.commit_prepared(xid, gid, lsn, lsn + 48, time)
        else:
            item = encode.rollback_prepared(xid, gid, 0, lsn + 48, time, time)
        self.steps.append(Transaction(lsn, [item]))
        self._remember(lsn)

    def _remember(self, lsn: int) -> None:
        self.truth.append((lsn, {table.relid: contents(table.rows) for table in self.tables}))

    def _changes(self, table: Table, rows: list[Row]) -> list[Described | bytes]:
        """Some changes of a table, made to these rows."""
        described = Described(table.relid, table.version, table.describe())
        return [described, *(self._change(table, rows) for _ in range(self._choose.choice((1, 2, 5))))]

    def _change(self, table: Table, rows: list[Row]) -> bytes:
        choose, chance = self._choose, self._choose.random()
        if chance < 0.02:
            rows.clear()
            return encode.truncate(table.relid)
        if chance < 0.35 or not rows or table.identity == "n":
            rows.append(self.row(table))
            return encode.insert(*table.cells(rows[-1]), oid=table.relid)
        row = choose.choice(rows)
        old = dict(row)
        kind = "O" if table.identity == "f" else "K"
        if chance < 0.5:
            rows.remove(row)
            return encode.delete(*table.identified(old), kind=kind, oid=table.relid)
        row["v"] = choose.choice((None, "7", "0.00"))
        if chance > 0.85:
            self._next_key += 1
            row["id"] = str(self._next_key)
        sent: list[encode.Cell] = table.cells(row)
        if row["body"] is not None and choose.random() < 0.6:
            sent[[name for name, _ in table.columns].index("body")] = UNCHANGED
        moved = table.identity == "f" or row["id"] != old["id"]
        return encode.update(sent, table.identified(old) if moved else None, kind, oid=table.relid)


def contents(rows: Iterable[Row]) -> Rows:
    """Rows that can be compared."""
    return Counter(tuple(sorted(row.items())) for row in rows)


class Recording:
    """A capture of a server's steps, which goes on with each call of record()."""

    def __init__(
        self, directory: Path, *, snapshots: bool = True, part: int = 500, head: Mapping[str, str] = HEAD
    ) -> None:
        """`part` are the bytes of a segment of a snapshot."""
        self._head = dict(head)
        self.directory = directory
        self._snapshots = snapshots
        self._part = Rotation(size=part, sync_size=part)
        directory.mkdir()

    def record(self, steps: Sequence[Step], *, gap: tuple[int, int] | None = None) -> None:
        """Record steps by a new session; a snapshot that comes first is the slot's own. `gap` was lost before them."""
        start = steps[0].lsn if isinstance(steps[0], Snapshot) else 0
        state = open_state(self.directory, 0) if start and not any(self.directory.iterdir()) else None
        if state is not None and self._snapshots and isinstance(steps[0], Snapshot):
            for one in self._copies(steps[0]):
                state.list_snapshot(one, self._head)
            steps = steps[1:]
        recorder = Recorder(self.directory, self._head, rotation=SMALL, gap=gap, start=start, state=state)
        described: dict[int, int] = {}
        for step in steps:
            if isinstance(step, Transaction):
                for message in _messages(step, described):
                    recorder.take_frame(encode.frame(message, step.lsn))
            elif self._snapshots:  # as by another run of the command, whose session sends every description again
                recorder.close()
                state = StateFile(self.directory)
                for one in self._copies(step):
                    state.list_snapshot(one, self._head)
                recorder, described = Recorder(self.directory, self._head, rotation=SMALL, state=state), {}
                recorder.reached(step.lsn)
        recorder.close()

    def _copies(self, step: Snapshot) -> list[TableSnapshot]:
        found, first = [], 1
        for table in step.tables:
            parts = [table.rows[: len(table.rows) // 3], table.rows[len(table.rows) // 3 :]]
            written: list[SnapshotFile] = []
            messages = [*table.describe(), encode.begin(0, step.lsn - 1, step.time)]
            for number, rows in enumerate(parts):
                writer = SnapshotWriter(
                    self.directory,
                    self._head,
                    SnapshotPart(step.lsn, table.relid, number),
                    [_frame(message, step) for message in messages],
                    first=first,
                    rotation=self._part,
                )
                for row in rows:
                    writer.add_rows([copy_data(_frame(encode.insert(*table.cells(row), oid=table.relid), step))], 1)
                commit = _frame(encode.commit(step.lsn - 1, step.lsn, step.time), step)
                written += writer.finish(commit if number else None)
                first += _BLOCK
            files = tuple(written)
            found.append(TableSnapshot(step.lsn, 1, table.relid, "public", table.name, len(table.rows), files))
        return found


def _messages(step: Transaction, described: dict[int, int]) -> Iterable[bytes]:
    for item in step.items:
        if isinstance(item, bytes):
            yield item
        elif described.get(item.relid) != item.version:
            described[item.relid] = item.version
            yield from item.messages


def _frame(message: bytes, step: Snapshot) -> bytes:
    return b"w" + struct.pack(">QQq", step.lsn - 1, step.lsn, step.time) + message
