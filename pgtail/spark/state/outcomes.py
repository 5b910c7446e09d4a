"""Prepared transactions: which are committed in a part of the stream, and which wait; and where --until ends."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pgtail.errors import InputError
from pgtail.pgoutput.scalars import lsn_text, parse_lsn
from pgtail.spark.lake.delta import File, Table
from pgtail.spark.lake.parquet import rows_in
from pgtail.spark.state.notes import Notes
from pgtail.spark.state.stretch import Stretch

_COLUMNS: Final = ["op", "gid", "xid", "position", "commit_lsn", "commit_ts", "state"]
_COMMITTED, _ROLLED_BACK = "commit_prepared", "rollback_prepared"


@dataclass(slots=True)
class Outcomes:
    """`moved` says where transactions are committed (position and microseconds since 1970), by where they were
    prepared; `pending` are those that wait: gid, xid and position."""

    moved: dict[int, tuple[int, int]] = field(default_factory=dict)
    pending: list[tuple[str, int, int]] = field(default_factory=list)


def outcomes(changes: Table, stretch: Stretch, notes: Notes, until: int | None) -> Outcomes:
    """What becomes of prepared transactions in a stretch, and of those that waited before it.

    A prepared transaction's changes take the place of its outcome in the stream. Until then it holds the locks of its
    rows, so nothing lies between that its order with them would matter to.
    """
    rows = list(_prepared(changes, stretch.ranges))
    found = Outcomes()
    waiting = {(gid, xid): position for gid, xid, position in notes.pending}
    for row in sorted(rows, key=lambda row: (row["position"], row["op"] in (_COMMITTED, _ROLLED_BACK))):
        name = (row["gid"], row["xid"])
        if row["state"] == "prepared":
            waiting[name] = row["position"]
        elif row["op"] in (_COMMITTED, _ROLLED_BACK) and name in waiting:
            committed = parse_lsn(row["commit_lsn"]) if row["op"] == _COMMITTED else None
            if committed is not None and until is not None and committed > until:
                continue
            prepared = waiting.pop(name)
            if committed is not None:
                found.moved[prepared] = committed, _micros(row["commit_ts"])
    found.pending = sorted((gid, xid, position) for (gid, xid), position in waiting.items())
    return found


def last_before(time: datetime.datetime, changes: Table, transactions: Table, stretch: Stretch) -> int | None:
    """The last position before the first later commit; None where there is none."""
    places = [
        row["position"]
        for row in _rows(transactions, stretch.ranges, ["position", "commit_ts", "state"])
        if row["state"] is None and row["commit_ts"] is not None and row["commit_ts"] > time
    ]
    places += [
        parse_lsn(row["commit_lsn"])
        for row in _prepared(changes, stretch.ranges)
        if row["op"] == _COMMITTED and row["commit_ts"] > time
    ]
    return min(places) - 1 if places else None


def cut(stretch: Stretch, until: int, notes: Notes) -> None:
    """Leave out what lies behind a position. Raises InputError where the state goes beyond it."""
    if notes.behind > until + 1:
        raise InputError(f"the state goes beyond {lsn_text(until)} already: make one as of then in another directory")
    stretch.ranges = [(first, min(behind, until + 1)) for first, behind in stretch.ranges if first <= until]


def _prepared(changes: Table, ranges: Sequence[tuple[int, int]]) -> Iterator[Mapping[str, Any]]:
    """The rows of changes that concern prepared transactions, each transaction's once."""
    seen = set()
    for row in _rows(changes, ranges, _COLUMNS, having="gid"):
        name = (row["gid"], row["xid"], row["position"], row["op"] in (_COMMITTED, _ROLLED_BACK))
        if row["gid"] is not None and name not in seen:
            seen.add(name)
            yield row


def _rows(
    table: Table, ranges: Sequence[tuple[int, int]], columns: Sequence[str], having: str | None = None
) -> Iterator[Mapping[str, Any]]:
    """Rows in ranges of positions, of files that may hold some; `having` is a column that must not be NULL."""
    for file in files_within(table.files(), ranges, "position"):
        if having is not None and file.bounds(having).nulls == file.rows:
            continue
        rows = rows_in(table.place / file.path, columns)
        if having is not None:
            rows = rows.filter(rows[having].is_valid())
        for row in rows.to_pylist():
            if any(first <= row["position"] < behind for first, behind in ranges):
                yield row


def files_within(
    files: Iterable[File], ranges: Sequence[tuple[int, int]], column: str, places: Iterable[int] = ()
) -> list[File]:
    """The files that may have rows in ranges of a column, or at places."""
    wanted = [*ranges, *((place, place + 1) for place in places)]
    found = []
    for file in files:
        bounds = file.bounds(column)
        if any(bounds.least < behind and first <= bounds.most for first, behind in wanted):
            found.append(file)
    return found


def _micros(time: datetime.datetime) -> int:
    return (time - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
