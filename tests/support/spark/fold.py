"""The changes of a table, in order -> its rows, and the rows that were; plain Python, one change after another.

This is what `state` and `history` mean: what Spark makes of the same changes is compared with it.

A row's `values` holds PostgreSQL's text of every column that is known; a column that is not in it is unknown: the
value is from before the capture, or ALTER TABLE made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from pgtail.arrow.typed.versions import Version, kept

Values: TypeAlias = dict[str, str | None]
Key: TypeAlias = tuple[object, ...]


class Moment(NamedTuple):
    """A place in the stream: of its commit the LSN as a number and the time (microseconds), and the change's `seq`."""

    position: int
    seq: int
    time: int | None = None


class Change(NamedTuple):
    """A row of `changes` that is an insert, update or delete."""

    op: str
    moment: Moment
    old: Values
    new: Values
    unchanged: Sequence[str] = ()
    undecoded: Sequence[str] = ()


class Truncate(NamedTuple):
    """The table was emptied."""

    moment: Moment


class Described(NamedTuple):
    """From this change on the table is this version of it."""

    moment: Moment
    version: Version


class Snapshot(NamedTuple):
    """From here on the table has these rows and no others."""

    moment: Moment
    rows: Sequence[Change]


Happening: TypeAlias = Truncate | Described | Snapshot
"""What concerns all rows of a table."""


class Former(NamedTuple):
    """What a row had in columns that the table has no more: values that are known, and columns of which none is."""

    values: Values
    undecoded: frozenset[str]
    unknown: frozenset[str]

    def then(self, row: Row, before: Version, now: Version) -> Former:
        """The same once the table is another version."""
        had, has = ({column.name for column in one.columns} for one in (before, now))
        values = {name: value for name, value in self.values.items() if name not in had} | row.values
        return Former(
            {name: value for name, value in values.items() if name not in has},
            (self.undecoded - had | row.undecoded) - has,
            (self.unknown - had | (had - row.values.keys())) - has,
        )


@dataclass(slots=True)
class Row:
    """A row as it is since a change; with `until` a row as it was."""

    values: Values
    since: Moment
    undecoded: frozenset[str] = frozenset()
    until: Moment | None = None
    unknown: list[str] = field(default_factory=list, compare=False)
    """Of a row as it was: the columns of that time of which nothing is known."""
    from_snapshot: bool = False
    """Whether it began with a snapshot."""
    former: Former = field(default_factory=lambda: Former({}, frozenset(), frozenset()), compare=False)


class Fold:
    """The rows of one table. `happenings` are in order, and so must the changes come."""

    def __init__(self, happenings: Sequence[Happening], *, history: bool = False) -> None:
        self._happenings = happenings
        self._next = 0
        self._version: Version | None = None
        self._history = history
        self._rows: dict[Key, list[Row]] = {}
        self.closed: list[Row] = []
        """The rows that were, where `history` is wanted, in the order of their ends."""

    @property
    def version(self) -> Version | None:
        """The table's version in force."""
        return self._version

    @property
    def versions(self) -> list[Version]:
        """Every version that the table was."""
        return [one.version for one in self._happenings if isinstance(one, Described)]

    def rows(self) -> Iterator[Row]:
        """The rows as they are now."""
        for rows in self._rows.values():
            yield from rows

    def unknown(self, row: Row) -> list[str]:
        """The columns of the table of which nothing is known in this row."""
        return [] if self._version is None else [c.name for c in self._version.columns if c.name not in row.values]

    def take(self, changes: Iterable[Change]) -> Fold:
        """Apply changes, in order."""
        for change in changes:
            self.advance(change.moment)
            self._change(change)
        return self

    def advance(self, moment: Moment | None = None) -> None:
        """Let everything happen that concerns the table before or with the change of this moment; all, without one."""
        while self._next < len(self._happenings):
            happening = self._happenings[self._next]
            if moment is not None and happening.moment[:2] > moment[:2]:
                return
            self._next += 1
            if isinstance(happening, Truncate):
                self._truncate(happening.moment)
            elif isinstance(happening, Snapshot):
                self._snapshot(happening)
            else:
                self._describe(happening.version)

    # -- changes -----------------------------------------------------------------------------------------------

    def _change(self, change: Change) -> None:
        if change.op == "insert":
            self._put(change, None)
        else:
            found = self._take_out(change)
            if found is not None:
                self._close(found, change.moment)
            if change.op == "update":
                self._put(change, found)

    def _put(self, change: Change, found: Row | None) -> None:
        """The new row, with what was not sent of it because it had not changed: from the old row as far as known."""
        values = {name: change.old[name] for name in change.unchanged if name in change.old}
        undecoded = frozenset(change.undecoded)
        if found is not None:
            carried = [name for name in change.unchanged if name in found.values and name not in values]
            values.update((name, found.values[name]) for name in carried)
            undecoded |= found.undecoded.intersection(carried)
        values.update(change.new)
        row = Row(values, change.moment, undecoded.intersection(values))
        if self._version is not None and self._version.key:
            # A key is there once: what still stands under it is from before a change that the capture does not have.
            for stale in self._rows.pop(self._key(row.values), ()):
                self._close(stale, change.moment)
        self._add(row)

    def _take_out(self, change: Change) -> Row | None:
        """The row that an update or delete is about; None where it is from before the capture."""
        version = self._version
        if version is None or not (version.key or version.full):
            return None
        # A TOASTed key that did not change stands in the old tuple alone.
        wanted = change.old if version.full else {**change.new, **change.old}
        key = self._key(wanted)
        rows = self._rows.get(key)
        if rows is not None:
            row = rows.pop()
            if not rows:
                del self._rows[key]
            return row
        return self._partly_known(wanted) if version.full else None

    def _partly_known(self, wanted: Values) -> Row | None:
        """Under identity full, the last row that is equal as far as it is known."""
        found = [
            row
            for row in self.rows()
            if len(row.values) < len(wanted) and all(wanted.get(name, "") == row.values[name] for name in row.values)
        ]
        if not found:
            return None
        row = max(found, key=lambda row: row.since[:2])
        key = self._key(row.values)
        self._rows[key].remove(row)
        if not self._rows[key]:
            del self._rows[key]
        return row

    # -- the table ---------------------------------------------------------------------------------------------

    def _truncate(self, moment: Moment) -> None:
        for row in self.rows():
            self._close(row, moment)
        self._rows = {}

    def _snapshot(self, snapshot: Snapshot) -> None:
        """In a history, rows that are equal to one of the snapshot go on; all others end."""
        left = sorted(self.rows(), key=lambda row: row.since[:2]) if self._history else []
        self._rows = {}
        for change in snapshot.rows:
            undecoded = frozenset(change.undecoded)
            equal = (row for row in left if row.values == change.new and row.undecoded == undecoded)
            row = next(equal, None)
            if row is None:
                row = Row(dict(change.new), change.moment, undecoded, from_snapshot=True)
            else:
                left = [one for one in left if one is not row]
            self._add(row)
        for row in left:
            self._close(row, snapshot.moment)

    def _describe(self, version: Version) -> None:
        """Make rows of the new version of all rows; what that leaves unknown is gone from their values."""
        before, self._version = self._version, version
        if before is None or before == version:
            return
        columns = kept(before, version)
        rows = list(self.rows())
        self._rows = {}
        for row in rows:
            row.former = row.former.then(row, before, version) if self._history else row.former
            row.undecoded = frozenset(columns[name] for name in row.undecoded if name in columns)
            row.values = {columns[name]: value for name, value in row.values.items() if name in columns}
            if all(name in row.values for name in version.key):
                self._add(row)

    # -- rows --------------------------------------------------------------------------------------------------

    def _key(self, values: Values) -> Key:
        version = self._version
        if version is not None and version.key:
            return tuple([values.get(name) for name in version.key])
        return tuple(sorted(values.items())) if version is not None and version.full else ()

    def _add(self, row: Row) -> None:
        self._rows.setdefault(self._key(row.values), []).append(row)

    def _close(self, row: Row, moment: Moment) -> None:
        """The row is no more. One that only its own transaction has seen never was."""
        if self._history and row.since.position < moment.position:
            row.until = moment
            row.unknown = self.unknown(row)
            self.closed.append(row)
