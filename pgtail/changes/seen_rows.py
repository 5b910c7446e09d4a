"""Remembers the rows that a stream has shown, and fills in old values that the server did not send.

A row is identified by its replica identity, in tables whose identity is a key. A row that may have changed unseen is
forgotten: no value is a guess. This requires every insert, update and delete of the table, without gaps.

- A transaction's rows count once it is known to be committed. Those of a prepared one wait for its outcome.
- A description of a table forgets its rows, even if unchanged: an ALTER TABLE that rewrites all rows and an ALTER
  PUBLICATION leave no other trace. Exception: the first description in a session or after a snapshot keeps them if the
  catalogs prove that neither happened. A TRUNCATE forgets the rows, too. A snapshot replaces those of its table.
- A gap, damage, a transaction whose start or end is missing, and a commit LSN that does not ascend forget everything.
- A repeated description may be the trace of an ALTER PUBLICATION, after which the stream may lack changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from pgtail.changes.complete_tables import EVERY, NONE, CompleteTables
from pgtail.changes.events import SEEN, Described, Ended, Event, Note, Outcome, RowChange, Started, TableTruncate
from pgtail.changes.relations import Relation
from pgtail.log import logger
from pgtail.native.plan import SEEN_ROW_SIZE
from pgtail.pgoutput.cells import UNCHANGED, Cell, TupleData, packed, unpacked
from pgtail.pgoutput.scalars import lsn_text
from pgtail.values.oids import BUILTIN

LIMIT: Final = 256 << 20
"""Bytes of rows that are remembered, unless told otherwise."""

_RESTS_ON: Final = """--old-values seen is right for tables of which the input has every insert, update and \
delete: their publication must leave out none of these, and the input must not be made with origin = none"""
_PREFIX: Final = 8
"""Bytes of a key that say of which version of a table it is."""
_BATCH: Final = 64
"""The part of the limit that is made free at once."""


def _oids(*names: str) -> frozenset[int]:
    """The OIDs of these types and their arrays; a name that ends with * stands for all that begin so."""
    oids = {
        oid
        for oid, builtin in BUILTIN.items()
        if any(builtin.name.startswith(name[:-1]) if name[-1] == "*" else builtin.name == name for name in names)
    }
    return frozenset([*oids, *(oid for oid, builtin in BUILTIN.items() if builtin.element in oids)])


_RENAMED: Final = _oids("reg*", "aclitem")
"""Types whose text has names of objects, which may be renamed: what was seen may not be what the text is now."""
_ROUNDED: Final = _oids("float4", "float8")
"""Types of which two values may have the same text, as extra_float_digits may be less than 1: no keys."""


class IsSame(Protocol):
    """Called for each description of a table: whether it is certain that no change of its seen rows was missed.

    `commits_at` is the commit LSN of its transaction, None if that is not known; `seen`: whether there are such rows.
    """

    def __call__(self, oid: int, commits_at: int | None, /, *, seen: bool) -> bool: ...


class SeenTable:
    """A version of a table; `keys` are the columns of its key, none if its rows are not remembered.

    `copied_at` is the commit LSN of the snapshot that began it, -1 if none did.
    """

    __slots__ = ("copied_at", "hidden", "keys", "others", "prefix", "relation", "width")

    def __init__(self, relation: Relation, number: int, *, complete: bool, copied_at: int) -> None:
        columns = relation.columns
        keys = relation.key_indexes
        if not complete or any(columns[index].type_oid in _RENAMED | _ROUNDED for index in keys):
            keys = []
        if relation.partition is not None:
            keys = []  # that of a partition: another one may have a row with the same
        self.relation = relation
        self.copied_at = copied_at
        self.prefix = number.to_bytes(_PREFIX, "big")
        """The first bytes of the keys of its rows."""
        self.width = len(columns)
        self.keys = tuple(keys)
        self.others = tuple([index for index in range(len(columns)) if index not in keys])
        self.hidden = frozenset([index for index in self.others if columns[index].type_oid in _RENAMED])
        """The columns whose values are not remembered."""

    def key(self, cells: Sequence[Cell]) -> bytes | None:
        """The key of a row; None if a part of it is missing."""
        found = [cells[index] for index in self.keys]
        return None if None in found or UNCHANGED in found else self.prefix + packed(found)

    def fits(self, cells: TupleData | None) -> bool:
        return cells is None or len(cells) == self.width


class SeenRows:
    """The rows of one stream, at most `limit` bytes of them: the least recently used are dropped.

    Only tables that `selects` (schema and name) selects and of which the stream has every change are remembered, see
    trust(). If that is not known, or in doubt after another description, they are if `asked`. Notes name what they rest
    on then, and each other table. `is_same` is asked whether rows are still right when another session describes a
    table. Of a row that is not known, why_not() says why.

    Compiled code does the same for slices (native/rows/seen.pyx) with `rows`, which has the rows that count by their
    keys, both packed, the least recently used first; with `size`, `last_lsn`, table() and make_room().
    """

    def __init__(
        self,
        limit: int = LIMIT,
        *,
        asked: bool = True,
        selects: Callable[[str, str], bool] = lambda schema, name: True,
        is_same: IsSame | None = None,
    ) -> None:
        self.limit = limit
        self._complete: CompleteTables | None = None if asked else NONE
        self._asked, self._selects = asked, selects
        self._is_same = is_same
        self._noted = False
        """Whether a note has named what they rest on."""
        self._refused: set[tuple[str, str]] = set()
        self._described: set[int] = set()
        """The tables that were described since the publications were asked, over all reconnections, by OID."""
        self._unsure: set[int] = set()
        """Those that were described again since trust(): an ALTER PUBLICATION may have been the reason."""
        self._settled_until = -1
        """Up to this commit LSN no description stands for an ALTER PUBLICATION that leaves out changes."""
        self.doubts = 0
        """How often a table was described again."""
        self.dropped = 0
        """How many rows were dropped because of the limit."""
        self.forgotten = 0
        """How often tables were forgotten."""
        self._why: dict[int, str] = {}
        """Where and why the rows of tables were forgotten last, by OID."""
        self._short: set[bytes] = set()
        """The tables of which rows were dropped, by prefix."""
        self._number = 0
        """The number of the last table."""
        self.rows: OrderedDict[bytes, bytes] = OrderedDict()
        self.size = 0
        """The approximate memory in bytes of all rows, those that wait and those of forgotten tables included."""
        self.last_lsn = -1
        """The position of the last transaction."""
        self._copied_at = -1
        """The commit LSN of the snapshot that the stream is inside of; -1 outside of one."""
        self._tables: dict[int, SeenTable] = {}
        self._numbers: set[bytes] = set()
        """The prefixes of these tables."""
        self._has_stale = False
        """Whether there are rows of tables that were forgotten."""
        self._prepared: dict[int | None, dict[bytes, bytes]] = {}
        """The rows of transactions that are prepared, by xid."""
        self._waiting: dict[bytes, bytes] | None = None
        """The rows of the open transaction, if it is to be prepared."""
        self._steps: dict[type, Callable[[Any], None]] = {
            RowChange: self._change,
            Started: self._started,
            Ended: self._ended,
            TableTruncate: lambda event: self.forget(event.relation.oid, "the table was truncated"),
            Described: self._describe,
            Outcome: self._outcome,
            Note: lambda event: self.forget_all(event.text),
        }

    def take_event(self, event: Event) -> None:
        """Process the next event of the stream; fill in the old row of an update or delete if it is known.

        A change that is not committed, or not yet, is left as it is.
        """
        step = self._steps.get(event.__class__)
        if step is not None:
            step(event)

    def table(self, relation: Relation) -> SeenTable:
        """The remembered rows of a version of a table; another version is forgotten."""
        table = self._tables.get(relation.oid)
        if table is None or table.relation is not relation:
            self.forget(relation.oid, "its description changed")
            self._number += 1
            table = self._tables[relation.oid] = SeenTable(
                relation, self._number, complete=self._is_complete(relation), copied_at=self._copied_at
            )
            self._numbers.add(table.prefix)
        return table

    def trust(self, complete: CompleteTables | None, *, until: int = -1) -> None:
        """The stream has every change of these tables from here on; None: unknown.

        With EVERY this holds up to the commit LSN `until`, even if the server describes tables again before.
        """
        if complete == EVERY:
            self._settled_until = max(until, self._settled_until)
        if complete is None and self._asked and not self._noted:
            self._noted = True
            logger.info(_RESTS_ON)
        complete = NONE if complete is None and not self._asked else complete
        if complete == self._complete and not self._unsure:
            return
        before, self._complete = {oid: bool(table.keys) for oid, table in self._tables.items()}, complete
        self._unsure.clear()
        for oid, remembered in before.items():
            if remembered != self._is_complete(self._tables[oid].relation):
                self.forget(oid, "other changes are published from there on")

    def why_not(self, relation: Relation, index: int | None = None) -> str:
        """Why a row of this table is not known, or only the value of this column."""
        table = self.table(relation)
        name = f"the rows of {relation.qualified}"
        if not self._is_complete(relation):
            return f"{name} are not remembered: the publications leave out some of its changes"
        if relation.partition is not None:
            return f"{name} are not remembered: only its partitions have a key"
        if not table.keys:
            keys = [relation.columns[index] for index in relation.key_indexes]
            types = [column.type_name for column in keys if column.type_oid in _RENAMED | _ROUNDED]
            return f"{name} are not remembered: its key has " + (f"type {types[0]}" if types else "no columns")
        if index in table.hidden:
            return f"values of type {relation.columns[index].type_name} are not remembered"
        reasons = [f"{name} were forgotten {self._why[relation.oid]}"] if relation.oid in self._why else []
        if table.prefix in self._short:
            reasons.append("it did not fit in --old-values-limit, or was never seen")
        return "; ".join(reasons) or "it was never seen"

    def begin_session(self) -> None:
        """The recorder has asked which tables are complete: the server's first descriptions then raise no doubt."""
        self._described.clear()

    def restart(self) -> None:
        """The stream continues in another session, perhaps of a server whose log differs beyond this position."""
        self._settled_until = -1

    def forget(self, oid: int, why: str, at: int | None = None) -> None:
        """The rows of a table may have changed unseen, at an LSN, by default that of the last transaction."""
        table = self._tables.pop(oid, None)
        if table is not None:
            self._tell_why(oid, why, at)
            self.forgotten += 1
            self._numbers.discard(table.prefix)
            self._has_stale = True

    def _tell_why(self, oid: int, why: str, at: int | None = None) -> None:
        self._why[oid] = f"at {lsn_text(max(self.last_lsn, 0) if at is None else at)}: {why}"

    def forget_all(self, why: str) -> None:
        """The rows of any table may have changed unseen."""
        for oid in self._tables:
            self._tell_why(oid, why)
        self.forgotten += 1
        self._tables.clear()
        self._numbers.clear()
        self.rows.clear()
        self._prepared.clear()
        if self._waiting is not None:
            self._waiting.clear()
        self.size = 0

    def make_room(self) -> None:
        """Drop rows until the limit is met: those of forgotten tables, then the least recently used, then those that
        wait for an outcome."""
        if self.size > self.limit and self._has_stale:
            self._has_stale = False
            for rows in (self.rows, *self._prepared.values()):
                for key in [key for key in rows if key[:_PREFIX] not in self._numbers]:
                    self._count(key, rows.pop(key), -1)
        if self.size > self.limit:
            enough = self.limit - self.limit // _BATCH
            while self.rows and self.size > enough:
                key, row = self.rows.popitem(last=False)
                self._count(key, row, -1)
                self._add_short((key,))
                self.dropped += 1
            if self.size > enough:
                for rows in self._prepared.values():
                    self.dropped += len(rows)
                    self._add_short(rows)
                    self._drop_waiting(rows)

    def _add_short(self, keys: Iterable[bytes]) -> None:
        """Rows of these keys are dropped."""
        self._short.update(key[:_PREFIX] for key in keys)

    def _describe(self, event: Described) -> None:
        again = event.oid in self._described
        self._described.add(event.oid)
        if self._is_kept(event):
            return
        self.forget(event.oid, "the server described the table again", event.commits_at)
        settled = event.commits_at is not None and event.commits_at <= self._settled_until
        if again and not (event.repeated or settled):
            self._unsure.add(event.oid)
            self.doubts += 1

    def _is_kept(self, event: Described) -> bool:
        """Whether a description keeps the rows; table() forgets another version of the table."""
        table = self._tables.get(event.oid)
        if self._is_same is None:
            return table is not None and table.copied_at == event.lsn
        return self._is_same(event.oid, event.commits_at, seen=table is not None and bool(table.keys))

    def _is_complete(self, relation: Relation) -> bool:
        """Whether the stream has every change of a table."""
        schema, name = relation.schema, relation.name
        if not self._selects(schema, name):
            return False
        if self._complete is None:
            return True
        if self._complete.has(schema, name):
            return self._asked or relation.oid not in self._unsure
        if self._asked and (schema, name) not in self._refused:
            self._refused.add((schema, name))
            logger.info(f"nothing is taken from {relation.qualified}: the publications leave out some of its changes")
        return False

    # -- transactions ------------------------------------------------------------------------------------------

    def _started(self, event: Started) -> None:
        transaction = event.transaction
        if not transaction.settled:
            return
        self._waiting, self._copied_at = None, -1
        if transaction.begun:
            self._advance(transaction.lsn, repeats=transaction.snapshot)
        else:
            self.forget_all("a transaction lacks its beginning")
        if transaction.snapshot:
            if transaction.table is None:
                self.forget_all("a snapshot of an unknown table begins")
            else:
                self.forget(transaction.table.oid, "a snapshot begins")
                self._copied_at = transaction.lsn or -1
        if transaction.state == "prepared":
            self._waiting = self._prepared[transaction.xid] = {}

    def _ended(self, event: Ended) -> None:
        transaction = event.transaction
        if transaction.settled:
            if not (event.complete and transaction.begun):
                self.forget_all("a transaction is not complete")
            self._waiting, self._copied_at = None, -1

    def _outcome(self, outcome: Outcome) -> None:
        rows = self._prepared.pop(outcome.xid, None)
        if outcome.op != "commit_prepared":
            self._drop_waiting(rows or {})
            return
        self._advance(outcome.lsn)
        if rows is None:
            self.forget_all(f"what prepared transaction {outcome.gid} changed was not seen")
            return
        for key, row in rows.items():
            self._drop(self.rows, key)
            self.rows[key] = row

    def _advance(self, lsn: int | None, *, repeats: bool = False) -> None:
        """A transaction is at this LSN; `repeats`: others may be at the same."""
        if lsn is None or lsn < self.last_lsn or (lsn == self.last_lsn and not repeats):
            self.forget_all("the next transaction does not come later in the log")
        self.last_lsn = -1 if lsn is None else lsn

    # -- rows --------------------------------------------------------------------------------------------------

    def _change(self, change: RowChange) -> None:
        transaction = change.transaction
        if change.aborted or not (transaction.settled and transaction.begun):
            return
        table = self.table(change.relation)
        if not table.keys:
            return
        if not (table.fits(change.old) and table.fits(change.new)) or not self._applied(table, change):
            self.forget(change.relation.oid, "a change does not say of which row it is")

    def _applied(self, table: SeenTable, change: RowChange) -> bool:
        """Remember the new row of a change and forget the old one, after copying the values that were not sent.

        Returns False if the old row cannot be identified.
        """
        old, new = change.old, change.new
        sent = new if old is None else old
        assert sent is not None
        key = table.key(sent)
        if key is None:
            return False
        found = self._pop(key)
        row = None if found is None or change.op in ("insert", "snapshot") else unpacked(found)
        if new is not None:
            cells = new if UNCHANGED not in new else _filled(table, new, old, row)
            after = table.key(cells)
            if after is None:
                return False
            self._put(table, after, cells)
        if row is not None and change.old_kind != "O" and any(row[index] is not UNCHANGED for index in table.others):
            change.old, change.old_kind = row, SEEN
        return True

    def _pop(self, key: bytes) -> bytes | None:
        """Forget a row; returns it if it is known."""
        waiting = None if self._waiting is None else self._drop(self._waiting, key)
        return self._drop(self.rows, key) or waiting

    def _put(self, table: SeenTable, key: bytes, cells: TupleData) -> None:
        """Remember a row as the most recently used."""
        if table.hidden:
            cells = tuple([UNCHANGED if index in table.hidden else cell for index, cell in enumerate(cells)])
        self._pop(key)
        row = packed(cells)
        (self.rows if self._waiting is None else self._waiting)[key] = row
        self._count(key, row, 1)
        self.make_room()

    def _drop(self, rows: dict[bytes, bytes], key: bytes) -> bytes | None:
        row = rows.pop(key, None)
        if row is not None:
            self._count(key, row, -1)
        return row

    def _drop_waiting(self, rows: dict[bytes, bytes]) -> None:
        for key, row in rows.items():
            self._count(key, row, -1)
        rows.clear()

    def _count(self, key: bytes, row: bytes, sign: int) -> None:
        """A row came (1), or went (-1)."""
        self.size += sign * (SEEN_ROW_SIZE + len(key) + len(row))


def _filled(table: SeenTable, new: TupleData, old: TupleData | None, seen: TupleData | None) -> TupleData:
    """A new row with the values that an update did not touch, as far as they are known."""
    cells = list(new)
    for index, cell in enumerate(cells):
        if cell is UNCHANGED:
            if old is not None and index in table.keys:
                cells[index] = old[index]
            elif seen is not None:
                cells[index] = seen[index]
    return tuple(cells)
