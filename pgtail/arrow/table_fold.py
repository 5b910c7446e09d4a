"""Folds the changes of a table, as they come in the stream, to its rows or to its history."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgtail.arrow.fold import BOTH_ROWS, SIDE, UnknownRow, fold, schema_of_rows, snapshot_start, why_unknown
from pgtail.arrow.segments.ranges import Place, Range
from pgtail.arrow.typed.alterations import Alterations, Origins, Step
from pgtail.arrow.typed.arrays import with_schema
from pgtail.arrow.typed.casts import TableColumn
from pgtail.arrow.typed.columns import ROW, VALID_FROM, VALIDITY, columns_of, former_columns, schema_of
from pgtail.arrow.typed.rows import as_stored, described, typed_rows
from pgtail.arrow.typed.versions import Version, kept
from pgtail.errors import COMMAND, InputError
from pgtail.humanize import size_text
from pgtail.pgoutput.scalars import lsn_text, parse_lsn
from pgtail.terminal.escape import escape

MOST_BYTES: Final = 1 << 30
"""Bytes of rows that are folded in memory: as Arrow has them, and ROW_BYTES for each."""
ROW_BYTES: Final = 256
"""What the fold keeps for a row beside its values."""
_LEAST_BYTES: Final = 32 << 20
"""Bytes of changes that are folded at a time, unless the rows are more: each fold reads all rows."""
_MADE_BY: Final = [pa.field("_xid", pa.int64()), pa.field("_valid_to_xid", pa.int64())]
_HISTORY: Final = [*VALIDITY, *_MADE_BY]


class Prepared:
    """Brings the changes of prepared transactions to the place of their commit."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[object, object], list[pa.Table]] = {}
        self.size = 0
        """Bytes of the changes that wait."""

    def committed(self, rows: pa.Table) -> Iterator[pa.Table]:
        """The rows among these of `changes` that are committed, and those of prepared transactions committed here.

        Raises InputError if those that wait take more than MOST_BYTES.
        """
        if rows["gid"].null_count == len(rows):
            yield rows
            return
        columns = rows.select(["gid", "xid", "state", "op"]).to_pylist()
        start = 0
        for (gid, xid, state, outcome), some in groupby(columns, _outcome):
            own = rows.slice(start, len(list(some)))
            start += len(own)
            if state == "prepared":
                self._waiting.setdefault((gid, xid), []).append(own)
                self.size += _bytes_of(own)
                _check_size(own["schema"][0].as_py(), own["table"][0].as_py(), self.size)
            elif outcome is None:
                yield own
            elif waited := self._waiting.pop((gid, xid), None):
                self.size -= sum(map(_bytes_of, waited))
                if outcome == "commit_prepared":
                    yield _at(pa.concat_tables(waited), own)


def _outcome(row: dict[str, object]) -> tuple[object, ...]:
    outcome = row["op"] if row["op"] in ("commit_prepared", "rollback_prepared") else None
    named = row["gid"] is not None
    return row["gid"], row["xid"] if named else None, row["state"], outcome


def _at(rows: pa.Table, outcome: pa.Table) -> pa.Table:
    """Rows of a prepared transaction, at the place of its commit."""
    [end] = outcome.select(["commit_lsn", "commit_ts"]).to_pylist()
    for name, value in (("position", parse_lsn(end["commit_lsn"])), ("commit_ts", end["commit_ts"])):
        number, kind = rows.column_names.index(name), rows.schema.field(name).type
        rows = rows.set_column(number, name, pa.repeat(pa.scalar(value, kind), len(rows)))
    return rows


class TableFold:
    """The rows of one table after the changes so far, which are rows of `changes`, committed and in order.

    Methods raise InputError if the row of a change is not known, or if the rows and those that wait in `prepared` take
    more than MOST_BYTES.
    """

    def __init__(self, prepared: Prepared, *, history: bool) -> None:
        self._prepared, self._history = prepared, history
        self.alterations = Alterations(())
        self.versions: list[Version] = []
        """All versions, the last one last."""
        self._rows: pa.Table = None
        self._changes: list[pa.Table] = []
        self._size = 0
        """Bytes of the changes that are not folded yet."""
        self._closed: list[tuple[Version, pa.Table]] = []
        self._xids: dict[int, int] = {}
        self.lost = 0
        """How many rows are left out, because ALTER TABLE made their keys unknown."""
        self._retyped = -1
        """The last position of rows with values of columns that got another type since."""

    def start(self, version: Version, position: int, time: int) -> None:
        """A snapshot starts at this position and time (microseconds since 1970): its rows follow."""
        self._fold()
        for step in self._steps(version, Range(Place(position, 0), Place(position, 1))):
            self._describe(version, step.origins)
        self._changes.append(snapshot_start(version, position, time))

    def add(self, rows: pa.Table, version: Version, *, snapshot: bool = False) -> None:
        """Changes of one version; of a `snapshot`, its rows, all of which a history takes at once."""
        if snapshot or not self.alterations.unread:
            self._describe(version)
            self._add(rows, snapshot=snapshot)
            return
        places = [*map(Place, rows["position"].to_pylist(), rows["seq"].to_pylist())]
        start = 0
        for step in self._steps(version, Range(places[0], places[-1].next)):
            self._describe(version, step.origins)
            stop = bisect_left(places, step.places.end)
            if start < stop:
                self._add(rows.slice(start, stop - start))
            start = stop

    def _steps(self, version: Version, places: Range) -> list[Step]:
        """The steps of changes of one version."""
        before = self.versions[-1] if self.versions else None
        return [*self.alterations.steps(before, version, places)]

    def _add(self, rows: pa.Table, *, snapshot: bool = False) -> None:
        """Changes of the last version."""
        version = self.versions[-1]
        changes = typed_rows(rows, columns_of([version]))
        if self._history:
            made = rows.group_by(["position", "xid"]).aggregate([]).to_pydict()
            self._xids.update(zip(made["position"], made["xid"], strict=True))
        self._changes.append(changes)
        self._size += _bytes_of(changes)
        kept = _bytes_of(self._rows)
        _check_size(version.schema, version.table, self._size + kept + self._prepared.size)
        if self._size <= max(_LEAST_BYTES, kept // 2) or (snapshot and self._history):
            return
        position = rows["position"][-1].as_py()
        if snapshot:
            self._fold()
        elif self._changes[0]["_position"][0].as_py() < position:  # else all are of one transaction
            self._fold(before=position)

    def drop_from(self, position: int) -> None:
        """Drop the changes from this position on: those of a transaction whose end is not known."""
        self._changes = [changes.filter(pc.less(changes["_position"], position)) for changes in self._changes]

    @property
    def columns(self) -> list[TableColumn]:
        return columns_of(self.versions if self._history else self.versions[-1:])

    def rows(self) -> pa.Table:
        """The rows after all changes, with pgtail's own columns of a state or a history."""
        self._fold()
        columns, parts = self.columns, []
        for version, rows in [*self._closed, (self.versions[-1], self._rows)]:
            stored = as_stored(rows, version, columns) if self._history else rows
            parts.append(stored.append_column("_relation", pa.repeat(pa.scalar(version.relation), len(rows))))
        rows = pa.concat_tables(parts, promote_options="default")
        for name, position in zip(_MADE_BY, ("_position", "_valid_to_position"), strict=True):
            places = rows[position].to_pylist() if position in rows.column_names else [None] * len(rows)
            xids = [None if place is None else self._xids.get(place) for place in places]
            rows = rows.append_column(name, pa.array(xids, name.type))
        names = self.versions[-1].key
        key = [(c.stored, "ascending") for c in columns if c.name in names and not pa.types.is_list(c.kind)]
        rows = rows.sort_by([*key, ("_position", "ascending"), ("_seq", "ascending")])
        if self._history:
            rows = rows.rename_columns([VALID_FROM.get(name, name) for name in rows.column_names])
        return with_schema(rows, schema_of(columns, _HISTORY if self._history else ROW)).combine_chunks()

    @property
    def retyped(self) -> int:
        """How many rows, after rows(), have values from before a column got another type."""
        return pc.sum(pc.less_equal(self._rows["_position"], self._retyped)).as_py() or 0

    def _describe(self, version: Version, origins: Origins | None = None) -> None:
        """The changes that follow are of this version; rows have their values from these origins, if there are any."""
        before = self.versions[-1] if self.versions else None
        if before == version and origins is None:
            return
        if before is not None:
            self._fold()
        self.versions = [*(one for one in self.versions if one != version), version]
        if before is None:
            self._rows = schema_of_rows(version).empty_table()
        else:
            stays = kept(before, version) if origins is None else origins.kept
            old, new = dict(before.columns), dict(version.columns)
            if len(self._rows) and any(old[was] != new[now] for was, now in stays.items()):
                self._retyped = pc.max(self._rows["_position"]).as_py()
            former = former_columns(version, columns_of(self.versions)) if self._history else ()
            rows = described(self._rows, before, version, former, origins)
            self.lost += len(self._rows) - len(rows)
            self._rows = rows

    def _fold(self, before: int | None = None) -> None:
        """Fold the changes; with `before` those before this position."""
        if not self._changes:
            return
        changes, left = pa.concat_tables(self._changes), None
        if before is not None:
            early = pc.less(changes["_position"], before)
            changes, left = changes.filter(early), changes.filter(pc.invert(early))
        version = self.versions[-1]
        changes = changes.append_column(SIDE, pa.array(np.full(len(changes), BOTH_ROWS)))
        try:
            self._rows, closed = fold(self._rows, changes, version, history=self._history)
        except UnknownRow as error:
            raise InputError(_why_unknown(version, error.position)) from None
        if len(closed):
            self._closed.append((version, closed))
        self._changes = [] if left is None else [left]
        self._size = 0 if left is None else _bytes_of(left)
        kept = sum(_bytes_of(rows) for rows in (self._rows, *(rows for _, rows in self._closed)))
        _check_size(version.schema, version.table, kept + self._prepared.size)


def _bytes_of(rows: pa.Table) -> int:
    return int(rows.nbytes) + ROW_BYTES * len(rows)


def _check_size(schema: str, table: str, size: int) -> None:
    """Raise InputError if the rows do not fit."""
    if size > MOST_BYTES:
        raise InputError(
            f"the rows of {escape(f'{schema}.{table}')} take more than {size_text(MOST_BYTES)} in"
            f" memory: fold them on Spark, which takes any number of rows:{COMMAND}pgtail spark state CAPTURE OUT"
        )


def _why_unknown(version: Version, position: int) -> str:
    why, to_alter = why_unknown(version)
    return (
        f"which row of {escape(f'{version.schema}.{version.table}')} was changed at {lsn_text(position)} is not known,"
        f" as {why}; --before {lsn_text(position)} shows the rows before that. To have the old row sent from now on:"
        f"{COMMAND}ALTER TABLE {to_alter} REPLICA IDENTITY FULL;"
    )
