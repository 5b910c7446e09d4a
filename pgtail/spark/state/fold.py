"""Changes of one version of a table applied to its rows: Arrow tables in, Arrow tables out; no Spark.

Each key has a number, each row and change a place; a loop over these numbers finds the row that a change ends, without
looking at values. A column that was not sent because it had not changed is taken from the row before, and so on back
to the change that sent it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgtail.spark.typed.arrays import lists_in, maps_in, one_chunk, replaced
from pgtail.spark.typed.arrow_types import TEXTS
from pgtail.spark.typed.casts import RESCUED, TableColumn, sparse
from pgtail.spark.typed.columns import ROW
from pgtail.spark.typed.texts import texts_of
from pgtail.spark.typed.versions import Version

Mode: TypeAlias = Literal["key", "bag", "append"]
"""How rows are found: by their key, by all of their values (identity full), or never (no identity)."""

Numbers: TypeAlias = npt.NDArray[np.int64]
HALF: Final = "_half"
"""The column of an event that says what of it is meant: all of it, that the old row goes, or that the new one comes."""
WHOLE, GONE, COME = 0, 1, 2

_OPS: Final = ("insert", "update", "delete", "truncate")
_INSERT, _UPDATE, _DELETE, _TRUNCATE = range(4)
_SAME: Final = (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_temporal)
"""Types whose values are equal if their texts are."""
_NOWHERE: Final = -1


class Folded(NamedTuple):
    """The rows that are there in the end, and (for a history) former ones, as ROW's columns describe them.

    Of a row that was, `_until_position` and `_until_time` say which change ended it.
    """

    rows: pa.Table
    closed: pa.Table


def mode_of(version: Version) -> Mode:
    """How the rows of a version are found."""
    return "key" if version.key else "bag" if version.full else "append"


def fold(
    rows: pa.Table, events: pa.Table, version: Version, columns: Sequence[TableColumn], *, history: bool
) -> Folded:
    """Apply changes to rows. `columns` are the version's, with their stored names; the tables have these.

    Rows have pgtail's columns of a state, events those of a table of changes and HALF. Events need not be in order.
    """
    rows = rows.sort_by([("_position", "ascending"), ("_seq", "ascending")])
    events = events.sort_by([("_position", "ascending"), ("_seq", "ascending"), (HALF, "ascending")])
    return _Fold(_Rows(rows), Events(events, version, columns), version, columns).run(history=history)


class _Rows:
    """The rows so far."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()
        self.rescued = maps_in(self.table, "_rescued")
        self.undecoded = lists_in(self.table, "_undecoded")
        self.unknown = lists_in(self.table, "_unknown")

    def __len__(self) -> int:
        return len(self.table)

    def column(self, name: str) -> pa.Array:
        return one_chunk(self.table[name])


class Events(_Rows):
    """Changes of one version: what was sent of the new row, completed from the old one as far as that is known."""

    def __init__(self, table: pa.Table, version: Version, columns: Sequence[TableColumn]) -> None:
        table = table.append_column("_unknown", pa.nulls(len(table), TEXTS))
        super().__init__(table)
        self.old_rescued = maps_in(self.table, "_old_rescued") if columns else {}
        self._old = self.column("_old") if columns else pa.nulls(len(table), pa.struct([]))
        self.has_old = pc.is_valid(self._old).to_numpy(zero_copy_only=False)
        self.unsent: dict[str, npt.NDArray[np.bool_]] = {}
        """Where a column, by its stored name, was sent neither in the new row nor in the old one."""
        self._filled: dict[str, pa.Array] = {}
        unchanged = lists_in(self.table, "_unchanged")
        by_name = {column.name: column for column in columns}
        for name in {name for names in unchanged.values() for name in names}:
            if name in by_name:
                self._fill(by_name[name], [place for place, names in unchanged.items() if name in names], version)

    def _fill(self, column: TableColumn, places: list[int], version: Version) -> None:
        there = np.zeros(len(self), bool)
        there[places] = True
        from_old = there & self.has_old & (version.full or column.name in version.key)
        self.unsent[column.stored] = there & ~from_old
        self._filled[column.stored] = pc.if_else(
            pa.array(from_old), self.old(column.stored), super().column(column.stored)
        )
        for place in np.flatnonzero(from_old).tolist():
            if column.name in self.old_rescued.get(place, {}):
                self.rescued.setdefault(place, {})[column.name] = self.old_rescued[place][column.name]

    def column(self, name: str) -> pa.Array:
        """The new row's column."""
        filled = getattr(self, "_filled", {})
        return filled[name] if name in filled else super().column(name)

    def old(self, name: str) -> pa.Array:
        """What was sent of the old row's column."""
        return pc.struct_field(self._old, name)


def key_parts(
    rows: _Rows, events: Events, version: Version, columns: Sequence[TableColumn]
) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
    """For each column that identifies a row: its values in the rows, and before and after each event."""
    wanted = version.key or ([column.name for column in columns] if version.full else [])
    by_name = {column.name: column for column in columns}
    for column in (by_name[name] for name in wanted):
        name = column.stored
        parts = [rows.column(name), events.old(name), events.column(name)]
        lost = [_of(column.name, found) for found in (rows.rescued, events.old_rescued, events.rescued)]
        if any(lost) or not any(same(column.kind) for same in _SAME):
            parts = [
                replaced(texts_of(part, column.delimiter), {place: pa.array([text]) for place, text in texts.items()})
                for part, texts in zip(parts, lost, strict=True)
            ]
        before = pc.coalesce(parts[1], parts[2]) if version.key else parts[1]
        yield parts[0], before, parts[2]


def _of(name: str, found: Mapping[int, Mapping[str, str]]) -> dict[int, str]:
    return {place: texts[name] for place, texts in found.items() if name in texts}


def _numbered(parts: Iterator[tuple[pa.Array, pa.Array, pa.Array]], sizes: tuple[int, int]) -> list[Numbers]:
    """A number for each key: of the rows, before and after each event; equal if all parts are."""
    rows, events = sizes
    number = np.zeros(rows + 2 * events, np.int64)
    for part in parts:
        codes = pc.dictionary_encode(pa.concat_arrays(list(part)), null_encoding="encode")
        number = number * len(codes.dictionary) + codes.indices.to_numpy()
        number = pc.dictionary_encode(pa.array(number)).indices.to_numpy().astype(np.int64)
    return [number[:rows], number[rows : rows + events], number[rows + events :]]


@dataclass(slots=True)
class _Fold:
    """Rows and events have places: rows first, then events, in their order."""

    rows: _Rows
    events: Events
    version: Version
    columns: Sequence[TableColumn]

    def run(self, *, history: bool) -> Folded:
        before, until = self._match()
        first = len(self.rows)
        come = np.ones(len(until), bool)
        come[first:] = np.isin(self._ops(), (_INSERT, _UPDATE)) & (self._halves() != GONE)
        source = {column.stored: self._sources(column.stored, before) for column in self.columns}
        rows = self._taken(np.flatnonzero(come & (until == _NOWHERE)), source)
        position = np.concatenate([one.column("_position").to_numpy() for one in (self.rows, self.events)])
        ended = np.flatnonzero(come & (until != _NOWHERE)) if history else np.array([], np.int64)
        # A row that only its own transaction has seen never was.
        ended = ended[position[ended] < position[until[ended]]]
        closed = self._taken(ended, source)
        end = pa.array(until[ended] - first)
        closed = closed.append_column("_until_position", self.events.column("_position").take(end))
        return Folded(rows, closed.append_column("_until_time", self.events.column("_commit_ts").take(end)))

    def _ops(self) -> Numbers:
        found: Numbers = pc.index_in(self.events.column("_op"), pa.array(_OPS)).to_numpy()
        return found

    def _halves(self) -> Numbers:
        found: Numbers = self.events.column(HALF).to_numpy()
        return found

    # -- which row a change is about -----------------------------------------------------------------------------

    def _match(self) -> tuple[Numbers, Numbers]:
        """For each place the row that it goes on from, and the event that ends it; -1 for none."""
        first, total = len(self.rows), len(self.rows) + len(self.events)
        keyed, found = bool(self.version.key), mode_of(self.version) != "append"
        parts = key_parts(self.rows, self.events, self.version, self.columns)
        keys, old, new = _numbered(parts, (first, len(self.events)))
        before, until = np.full(total, _NOWHERE), np.full(total, _NOWHERE)
        alive: dict[int, list[int]] = {}
        for place, key in enumerate(keys.tolist()):
            alive.setdefault(key, []).append(place)
        steps = zip(self._ops().tolist(), self._halves().tolist(), old.tolist(), new.tolist(), strict=True)
        for place, (op, half, was, now) in enumerate(steps, first):
            if op == _TRUNCATE:
                for ends in alive.values():
                    until[ends] = place
                alive.clear()
                continue
            row = _NOWHERE
            if op != _INSERT and half != COME and found:
                row = self._gone(alive, was, place)
                if row != _NOWHERE:
                    until[row] = place
            if op != _DELETE and half != GONE:
                before[place] = row
                if keyed:
                    # A key is there once: a row that still has it is from before a change that was not recorded.
                    for stale in alive.pop(now, ()):
                        until[stale] = place
                alive.setdefault(now, []).append(place)
        return before, until

    def _gone(self, alive: dict[int, list[int]], key: int, event: int) -> int:
        """Take out the row that an update or delete is about; -1 if it is from before the capture."""
        places = alive.get(key)
        if places is None:
            return self._partly_known(alive, event) if self.version.full and self.rows.unknown else _NOWHERE
        row = places.pop()
        if not places:
            del alive[key]
        return row

    def _partly_known(self, alive: dict[int, list[int]], event: int) -> int:
        """Under identity full, a row that is equal as far as it is known."""
        number = event - len(self.rows)
        for key, places in alive.items():
            for row in places:
                unknown = self.rows.unknown.get(row) if row < len(self.rows) else None
                if unknown and all(self._equal(c, row, number) for c in self.columns if c.name not in unknown):
                    places.remove(row)
                    if not places:
                        del alive[key]
                    return row
        return _NOWHERE

    def _equal(self, column: TableColumn, row: int, event: int) -> bool:
        lost = [self.rows.rescued.get(row, {}), self.events.old_rescued.get(event, {})]
        texts = [one.get(column.name) for one in lost]
        return bool(
            texts[0] == texts[1] and self.rows.column(column.stored)[row].equals(self.events.old(column.stored)[event])
        )

    # -- the rows' values ----------------------------------------------------------------------------------------

    def _sources(self, stored: str, before: Numbers) -> Numbers | None:
        """For each place the one whose value of a column it has, -1 if that is unknown; None if each has its own."""
        unsent = self.events.unsent.get(stored)
        if unsent is None:
            return None
        wants = np.concatenate([np.zeros(len(self.rows), bool), unsent])
        source = np.where(wants, before, np.arange(len(wants)))
        while True:
            open_ = np.flatnonzero(source >= 0)
            open_ = open_[wants[source[open_]]]
            if not len(open_):
                return source
            source[open_] = source[source[open_]]

    def _taken(self, places: Numbers, sources: Mapping[str, Numbers | None]) -> pa.Table:
        """The rows at these places."""
        found: dict[str, pa.Array] = {}
        rescued: dict[int, list[tuple[str, str]]] = {}
        undecoded: dict[int, list[str]] = {}
        unknown: dict[int, list[str]] = {}
        sides = (self.rows, self.events)
        for column in self.columns:
            source = sources[column.stored]
            own = places if source is None else source[places]
            both = pa.concat_arrays([side.column(column.stored) for side in sides])
            found[column.stored] = both.take(pa.array(own, mask=own < 0))
            for number, text in self._among(own, [_of(column.name, side.rescued) for side in sides]):
                rescued.setdefault(number, []).append((column.name, text))
            for notes, kept in ((undecoded, [s.undecoded for s in sides]), (unknown, [s.unknown for s in sides])):
                named = [{place: True for place, names in one.items() if column.name in names} for one in kept]
                for number, _ in self._among(own, named):
                    notes.setdefault(number, []).append(column.name)
            for number in np.flatnonzero(own < 0).tolist():
                unknown.setdefault(number, []).append(column.name)
        for field in ROW[:3]:
            both = pa.concat_arrays([side.column(field.name).cast(field.type) for side in sides])
            found[field.name] = both.take(pa.array(places))
        count = len(places)
        found["_unknown"] = sparse(unknown, count, TEXTS)
        found["_rescued"] = sparse(rescued, count, RESCUED)
        found["_undecoded"] = sparse(undecoded, count, TEXTS)
        found["_relation"] = pa.repeat(pa.scalar(self.version.relation), count)
        return pa.table(found)

    def _among(self, own: Numbers, found: Sequence[Mapping[int, Any]]) -> Iterator[tuple[int, Any]]:
        """Of what is noted of a few places of the rows and of the events, what concerns these places."""
        noted = {**found[0], **{place + len(self.rows): value for place, value in found[1].items()}}
        if noted:
            for number in np.flatnonzero(np.isin(own, list(noted))).tolist():
                yield number, noted[int(own[number])]
