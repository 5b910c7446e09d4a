"""Applies changes of one version of a table to its rows: Arrow tables in, Arrow tables out.

Each key has a number, each row and change a place; a loop over these numbers finds the row that a change ends, without
looking at values. A column that was not sent because it had not changed is taken from the row before, and so on back
to the change that sent it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgtail.arrow.schemas import SNAPSHOT
from pgtail.arrow.typed.arrays import Flags, flags, lists_of, maps_of, one_chunk, texts_by_name
from pgtail.arrow.typed.arrow_types import TEXTS
from pgtail.arrow.typed.casts import TableColumn, texts_of
from pgtail.arrow.typed.columns import FORMER, META, ROW, columns_of, schema_of
from pgtail.arrow.typed.versions import Version
from pgtail.terminal.escape import sql_identifier

Numbers: TypeAlias = npt.NDArray[np.int64]
SIDE: Final = "\0side"
"""The column that says which rows of a change are applied, both or one; no name in PostgreSQL has a NUL."""
BOTH_ROWS, OLD_ROW, NEW_ROW = 0, 1, 2

SNAPSHOT_STARTS: Final = "snapshot starts"
"""The operation of a row that is no change: from here on the table has the rows of the snapshot that follow."""
FROM_SNAPSHOT: Final = pa.field("_from_snapshot", pa.bool_())
"""Whether a row began with a snapshot."""

_OPS: Final = ("insert", "update", "delete", "truncate", SNAPSHOT, SNAPSHOT_STARTS)
INSERT, UPDATE, DELETE, TRUNCATE, COPIED, STARTS = range(6)
_SAME: Final = (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_temporal)
"""Types whose values are equal if their texts are."""
_NOWHERE: Final = -1
_MOMENT: Final = ("_position", "_seq", "_commit_ts", FROM_SNAPSHOT.name)
"""pgtail's columns of a row that say how it began."""


class UnknownRow(Exception):
    """The row of the update or delete at `position` is not known: the server sent too little of it."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def why_unknown(version: Version) -> tuple[str, str]:
    """Why the row of a change is not known, and the name in SQL of the table to alter; names are escaped."""
    if version.partition is not None:
        return f"the replica identity of its partition {version.partition} does not say it", version.partition
    if version.full:
        return "a partition of it has another replica identity than FULL", "partition"
    return "it has no replica identity", ".".join(map(sql_identifier, (version.schema, version.table)))


class Folded(NamedTuple):
    """The rows at the end, and (for a history) closed ones, as ROW's columns describe them.

    Of a closed row, `_valid_to_position` and `_valid_to` say which change ended it.
    """

    rows: pa.Table
    closed: pa.Table


def schema_of_rows(version: Version, former: Sequence[TableColumn] = ()) -> pa.Schema:
    """The columns of rows to fold; those of a history also have the former_columns()."""
    own = [*(field for field in ROW if field.name != "_relation"), FROM_SNAPSHOT]
    return schema_of([*columns_of([version]), *former], own)


def snapshot_start(version: Version, position: int, time: int) -> pa.Table:
    """The row of changes with which a snapshot starts at this position and time (microseconds since 1970)."""
    row = {"_op": SNAPSHOT_STARTS, "_position": position, "_seq": 0, "_commit_ts": time}
    return pa.Table.from_pylist([row], schema_of(columns_of([version]), META, old=True))


def fold(rows: pa.Table, changes: pa.Table, version: Version, *, history: bool) -> Folded:
    """Apply changes to rows. Both have the columns of columns_of(version).

    Rows have pgtail's columns of a state and FROM_SNAPSHOT, changes those of a table of changes and SIDE. Neither need
    be in order. Rows of a snapshot are inserts; after SNAPSHOT_STARTS, which must be the first change, a row of the
    snapshot that is equal to an existing row leaves it as it is, and all other rows end. Raises UnknownRow.
    """
    order = [("_position", "ascending"), ("_seq", "ascending")]
    rows = rows.sort_by(order).combine_chunks()
    changes = changes.sort_by([*order, (SIDE, "ascending")]).combine_chunks()
    return _Fold(rows, Events(changes, version), version).fold(history=history)


class Cells(NamedTuple):
    """The values of some rows by their columns' PostgreSQL names, and the texts of those that are rescued."""

    values: dict[str, pa.Array]
    rescued: dict[str, pa.Array]

    @classmethod
    def of(cls, rows: pa.Table, version: Version) -> Cells:
        """The cells of rows of a version, which have pgtail's column `_rescued`."""
        columns = columns_of([version])
        names = [column.name for column in columns]
        texts = texts_by_name(one_chunk(rows["_rescued"]), names)
        arrays = [one_chunk(rows[column.stored]) for column in columns]
        return cls(dict(zip(names, arrays, strict=True)), dict(zip(names, texts, strict=True)))

    def texts(self, column: TableColumn) -> pa.Array:
        """PostgreSQL's texts of the values of a column."""
        return pc.coalesce(self.rescued[column.name], texts_of(self.values[column.name], column.delimiter))

    def replace(self, name: str, rows: pa.Array, other: Cells) -> None:
        """Take the cells of a column from another one in these rows."""
        for mine, others in zip(self, other, strict=True):
            mine[name] = pc.if_else(rows, others[name], mine[name])


class Events:
    """Changes of one version, in order; values not sent of a new row are taken from the old one, if it has them."""

    def __init__(self, changes: pa.Table, version: Version) -> None:
        self.changes = changes
        self.op: Numbers = pc.index_in(one_chunk(changes["_op"]), pa.array(_OPS)).to_numpy()
        self.new = Cells.of(changes, version)
        self.before = Cells({}, {})
        """The values that identify the row of a change."""
        self.unsent: dict[str, Flags] = {}
        """Where a column was sent neither in the new row nor in the old one."""
        self.identifies: Flags = np.full(len(changes), version.identified)
        """Whether a change identifies its row."""
        if not version.columns:
            return
        old_rows, unchanged = one_chunk(changes["_old"]), one_chunk(changes["_unchanged"])
        fields = dict(zip([field.name for field in old_rows.type], old_rows.flatten(), strict=True))
        old = Cells.of(pa.table(fields | {"_rescued": changes["_old_rescued"]}), version)
        has_old = old_rows.is_valid()
        if version.full:  # else a partition of the table has another identity
            self.identifies = has_old.to_numpy(zero_copy_only=False)
        for column in version.columns:
            unsent = flags(unchanged, column.name)
            if unsent.any() and (version.full or column.name in version.key):
                self.new.replace(column.name, pc.and_(unsent, has_old), old)
                unsent &= ~has_old.to_numpy(zero_copy_only=False)
            if unsent.any():
                self.unsent[column.name] = unsent
        for name in version.identifying:
            for before, new, sent in zip(self.before, self.new, old, strict=True):
                before[name] = sent[name] if version.full else pc.if_else(has_old, sent[name], new[name])


def identities(
    sides: Sequence[Cells], version: Version, names: Sequence[str] | None = None
) -> Iterator[list[pa.Array]]:
    """For each identifying column, or each of `names`, its values in each of the sides; they are equal if the rows'
    are."""
    by_name = {column.name: column for column in columns_of([version])}
    for name in version.identifying if names is None else names:
        column = by_name[name]
        parts = [side.values[name] for side in sides]
        rescued = any(side.rescued[name].null_count < len(side.rescued[name]) for side in sides)
        if rescued or not any(same(column.kind) for same in _SAME):
            parts = [side.texts(column) for side in sides]
        yield parts


def numbered(parts: Iterator[Sequence[pa.Array]], sizes: Sequence[int]) -> list[Numbers]:
    """A number for each key, of sides of these sizes; equal if all parts are."""
    number = np.zeros(sum(sizes), np.int64)
    for part in parts:
        codes = pc.dictionary_encode(pa.concat_arrays(part), null_encoding="encode")
        number = number * len(codes.dictionary) + codes.indices.to_numpy()
        number = pc.dictionary_encode(pa.array(number)).indices.to_numpy().astype(np.int64)
    return np.split(number, np.cumsum(sizes)[:-1])


class _Fold:
    """Rows and events have places: rows first, then events, in their order."""

    def __init__(self, rows: pa.Table, events: Events, version: Version) -> None:
        self.rows = Cells.of(rows, version)
        self.events = events
        self.version = version
        self.first, self.total = len(rows), len(rows) + len(events.changes)
        self.former = {name.removeprefix(FORMER): name for name in rows.column_names if name.startswith(FORMER)}
        """The columns that another version has, which only rows have, not changes."""
        own = [*_MOMENT, "_undecoded", "_unknown", *self.former.values()]
        changes = events.changes.append_column("_unknown", pa.nulls(len(events.changes), TEXTS))
        changes = changes.append_column(FROM_SNAPSHOT, pa.array(events.op == COPIED))
        for name in self.former.values():
            if name not in changes.column_names:  # those of a version without columns have them
                changes = changes.append_column(name, pa.nulls(len(changes), rows.schema.field(name).type))
        self.own = pa.concat_tables([rows.select(own), changes.select(own)])
        """pgtail's columns of all places."""
        rescued = texts_by_name(one_chunk(rows["_rescued"]), list(self.former))
        self.former_rescued = dict(zip(self.former, rescued, strict=True))
        self.side: Numbers = one_chunk(changes[SIDE]).to_numpy()
        self.repeated: list[int] = []
        """The rows of a snapshot that existed before it, and continue."""

    def fold(self, *, history: bool) -> Folded:
        before, until = self._match()
        is_row = np.ones(self.total, bool)
        is_row[self.first :] = np.isin(self.events.op, (INSERT, UPDATE, COPIED)) & (self.side != OLD_ROW)
        is_row[self.repeated] = False
        source = {name: self._sources(unsent, before) for name, unsent in self.events.unsent.items()}
        rows = self._rows_at(np.flatnonzero(is_row & (until == _NOWHERE)), source)
        position = one_chunk(self.own["_position"]).to_numpy()
        ended = np.flatnonzero(is_row & (until != _NOWHERE)) if history else np.array([], np.int64)
        # A row that only its own transaction saw is in no history.
        ended = ended[position[ended] < position[until[ended]]]
        closed = self._rows_at(ended, source)
        for name, own in (("_valid_to_position", "_position"), ("_valid_to", "_commit_ts")):
            closed = closed.append_column(name, self.own[own].take(pa.array(until[ended])))
        return Folded(rows, closed)

    # -- which row a change is about -----------------------------------------------------------------------------

    def _match(self) -> tuple[Numbers, Numbers]:
        """For each place the row that it continues, and the event that ends it; -1 for none."""
        of_partition, identifies = self.version.partition is not None, self.events.identifies.tolist()
        sides = (self.rows, self.events.before, self.events.new)
        changes = self.total - self.first
        parts = identities(sides, self.version)
        keys, old, new = numbered(parts, (self.first, changes, changes))
        before, until = np.full(self.total, _NOWHERE), np.full(self.total, _NOWHERE)
        alive: dict[int, list[int]] = {}
        for place, key in enumerate(keys.tolist()):
            alive.setdefault(key, []).append(place)
        unknown = self._unknown(keys) if self.version.full else {}
        values, going = self._values(), dict[int, list[int]]()
        steps = zip(self.events.op.tolist(), self.side.tolist(), old.tolist(), new.tolist(), strict=True)
        for place, (op, side, old_key, new_key) in enumerate(steps, self.first):
            if op in (TRUNCATE, STARTS):
                for ends in alive.values():
                    until[ends] = place
                alive.clear()
                going = self._known_by_value(values) if op == STARTS else going
                continue
            if op == COPIED and going and (equal := going.get(values[place])):
                row = equal.pop()
                until[row] = _NOWHERE
                alive.setdefault(new_key, []).append(row)
                self.repeated.append(place)
                continue
            row = _NOWHERE
            if op not in (INSERT, COPIED) and side != NEW_ROW:
                if not identifies[place - self.first] or (of_partition and len(alive.get(old_key, ())) > 1):
                    raise UnknownRow(self.own["_position"][place].as_py())
                row = alive[old_key].pop() if alive.get(old_key) else self._partly_known(alive, unknown, place)
                if row != _NOWHERE:
                    until[row] = place
            if op != DELETE and side != OLD_ROW:
                before[place] = row
                if self.version.key and not of_partition:
                    # A key is there once: a row that still has it is from before a change that was not recorded.
                    for stale in alive.pop(new_key, ()):
                        until[stale] = place
                alive.setdefault(new_key, []).append(place)
        return before, until

    def _values(self) -> list[int]:
        """A number for each place, equal if all values of the rows are; none without rows before a snapshot."""
        if not self.first or STARTS not in self.events.op:
            return []
        sides = (self.rows, self.events.new)
        names = [column.name for column in self.version.columns]
        lists = one_chunk(self.own["_undecoded"])
        undecoded = pc.binary_join(pc.fill_null(lists, []), "\0")
        parts = [*identities(sides, self.version, names), [undecoded[: self.first], undecoded[self.first :]]]
        numbers: list[int] = np.concatenate(numbered(iter(parts), (self.first, self.total - self.first))).tolist()
        return numbers

    def _known_by_value(self, values: Sequence[int]) -> dict[int, list[int]]:
        """The initial rows without unknown values, the latest first, by the numbers of their values."""
        lists = one_chunk(self.own["_unknown"])
        unknown = [flags(lists, column.name)[: self.first] for column in self.version.columns]
        known = ~np.logical_or.reduce([np.zeros(self.first, bool), *unknown])
        known_rows: dict[int, list[int]] = {}
        for row in reversed(range(self.first)):
            if known[row]:
                known_rows.setdefault(values[row], []).append(row)
        return known_rows

    def _unknown(self, keys: Numbers) -> dict[int, tuple[int, list[str]]]:
        """The rows with unknown values: their keys' numbers and the columns that are not known."""
        names = self.own["_unknown"][: self.first]
        if names.null_count == len(names):
            return {}
        own = {column.name for column in self.version.columns}
        return {
            row: (key, some)
            for row, (key, named) in enumerate(zip(keys.tolist(), names.to_pylist(), strict=True))
            if (some := [name for name in named or () if name in own])
        }

    def _partly_known(self, alive: dict[int, list[int]], unknown: dict[int, tuple[int, list[str]]], place: int) -> int:
        """Under identity full, take out a row whose known values are equal; -1 if there is none.

        Of several it is the last: ALTER TABLE makes the same columns of all rows unknown, so that later rows have more
        known values. The known values of the others then hold, whichever row it was.
        """
        for row, (key, names) in reversed(unknown.items()):
            if row in alive.get(key, ()) and self._equal(row, place - self.first, names):
                alive[key].remove(row)
                return row
        return _NOWHERE

    def _equal(self, row: int, event: int, unknown: Sequence[str]) -> bool:
        return all(
            mine[column.name][row].equals(others[column.name][event])
            for mine, others in zip(self.rows, self.events.before, strict=True)
            for column in self.version.columns
            if column.name not in unknown
        )

    # -- the rows' values ----------------------------------------------------------------------------------------

    def _sources(self, unsent: Flags, before: Numbers) -> Numbers:
        """For each place the place that has its value of a column, -1 if that is unknown."""
        wants = np.concatenate([np.zeros(self.first, bool), unsent])
        source = np.where(wants, before, np.arange(self.total))
        while True:
            open_ = np.flatnonzero(source >= 0)
            open_ = open_[wants[source[open_]]]
            if not len(open_):
                return source
            source[open_] = source[source[open_]]

    def _rows_at(self, places: Numbers, sources: Mapping[str, Numbers]) -> pa.Table:
        columns = {name: self.own[name].take(pa.array(places)) for name in _MOMENT}
        lists = {name: one_chunk(self.own[name]) for name in ("_undecoded", "_unknown")}
        rescued: dict[str, pa.Array] = {}
        undecoded: dict[str, Flags] = {}
        unknown: dict[str, Flags] = {}
        for column in columns_of([self.version]):
            name = column.name
            own = sources[name][places] if name in sources else places
            index = pa.array(own, mask=own < 0)
            values, texts = (
                pa.concat_arrays([rows[name], new[name]]) for rows, new in zip(self.rows, self.events.new, strict=True)
            )
            columns[column.stored] = values.take(index)
            if texts.null_count < len(texts):
                rescued[name] = texts.take(index)
            undecoded[name] = flags(lists["_undecoded"], name)[own] & (own >= 0)
            unknown[name] = flags(lists["_unknown"], name)[own] | (own < 0)
        for name, stored in self.former.items():
            columns[stored] = self.own[stored].take(pa.array(places))
            texts = self.former_rescued[name]
            if texts.null_count < len(texts):
                texts = pa.concat_arrays([texts, pa.nulls(self.total - self.first, texts.type)])
                rescued[name] = texts.take(pa.array(places))
            undecoded[name] = flags(lists["_undecoded"], name)[places]
            unknown[name] = flags(lists["_unknown"], name)[places]
        columns["_unknown"] = lists_of(unknown, len(places))
        columns["_rescued"] = maps_of(rescued, len(places))
        columns["_undecoded"] = lists_of(undecoded, len(places))
        return pa.table(columns)
