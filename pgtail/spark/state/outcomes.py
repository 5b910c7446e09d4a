"""Resolves prepared transactions to committed and pending ones, and finds the end for --until."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from pgtail.arrow.segments.ranges import Place, Range, within
from pgtail.errors import InputError
from pgtail.pgoutput.scalars import lsn_text, parse_lsn
from pgtail.spark.lake.batches import Notes
from pgtail.spark.lake.delta import LakeTable
from pgtail.spark.lake.parquet import rows_in
from pgtail.spark.state.increment import Increment

_COLUMNS: Final = ["op", "gid", "xid", "position", "ordinal", "commit_lsn", "commit_ts", "state"]
_COMMITTED, _ROLLED_BACK = "commit_prepared", "rollback_prepared"

Row = Mapping[str, Any]


class Outcomes(Struct):
    """The outcomes of prepared transactions."""

    committed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """LSN of the PREPARE -> position and time (microseconds since 1970) of the commit."""
    pending: list[tuple[str, int, int]] = field(default_factory=list)
    """Transactions without an outcome so far: gid, xid and position."""


def outcomes(changes: LakeTable, increment: Increment, notes: Notes, until: int | None) -> Outcomes:
    """The outcomes of prepared transactions in a part of the stream, and of those that were pending before it.

    A prepared transaction's changes take the place of its outcome in the stream. Until then it has locks on its rows,
    so that no change in between can be to one of them.
    """
    resolved = Outcomes()
    waiting = {(gid, xid): position for gid, xid, position in notes.pending}
    ends = []
    for row in _rows(changes, increment.ranges, _COLUMNS, having="gid"):
        if row["state"] == "prepared":
            waiting[row["gid"], row["xid"]] = row["position"]
        elif row["op"] in (_COMMITTED, _ROLLED_BACK):
            ends.append(row)
    late = {}
    if any(row["op"] == _COMMITTED and (row["gid"], row["xid"]) not in waiting for row in ends):
        rows = _rows(changes, increment.late, _COLUMNS, having="gid")
        late = {(row["gid"], row["xid"]): row["position"] for row in rows if row["state"] == "prepared"}
    for row in ends:
        name = row["gid"], row["xid"]
        committed = parse_lsn(row["commit_lsn"]) if row["op"] == _COMMITTED else None
        if committed is None or until is None or committed <= until:
            prepared = waiting.pop(name, None)
            prepared = late.pop(name, None) if prepared is None else prepared
            if committed is not None and prepared is not None:
                resolved.committed[prepared] = committed, _micros(row["commit_ts"])
    resolved.pending = sorted((gid, xid, position) for (gid, xid), position in waiting.items())
    return resolved


def last_before(
    time: datetime.datetime,
    changes: LakeTable,
    transactions: LakeTable,
    ranges: Sequence[Range],
    snapshots: Iterable[tuple[int, int]],
) -> int | None:
    """The last position before the first commit in these ranges, or snapshot, after `time`; None without such a commit.

    `snapshots` are positions and times (microseconds since 1970).
    """
    positions = [
        row["position"]
        for row in _rows(transactions, ranges, ["position", "commit_ts", "state"])
        if row["state"] is None and row["commit_ts"] is not None and row["commit_ts"] > time
    ]
    positions += [
        parse_lsn(row["commit_lsn"])
        for row in _rows(changes, ranges, _COLUMNS, having="gid")
        if row["op"] == _COMMITTED and row["commit_ts"] > time
    ]
    positions += [position for position, taken in snapshots if taken > _micros(time)]
    return min(positions) - 1 if positions else None


def cut(increment: Increment, until: int, notes: Notes) -> None:
    """End an increment at a position. Raises InputError if the state is beyond it already."""
    end = Place(until + 1, 0)
    if notes.reach > end:
        raise InputError(f"the state goes beyond {lsn_text(until)} already: make one as of then in another directory")
    increment.ranges = [Range(one.first, min(one.end, end)) for one in increment.ranges if one.first < end]


def _rows(
    table: LakeTable, ranges: Sequence[Range], columns: Sequence[str], having: str | None = None
) -> Iterator[Row]:
    """Rows in these ranges; `having` is a column that must not be NULL. A row of `transactions` has no ordinal."""
    wanted = [one.transactions for one in ranges]
    parts = tuple(ranges)
    files = table.files_from("position", min((one.start for one in wanted), default=0))
    for file in files:
        if not file.may_have("position", wanted) or (having and file.bounds(having).nulls == file.rows):
            continue
        rows = rows_in(table.place / file.path, columns)
        if having is not None:
            rows = rows.filter(rows[having].is_valid())
        for row in rows.to_pylist():
            if within(parts, row["position"], row.get("ordinal", 1)):
                yield row


def _micros(time: datetime.datetime) -> int:
    return (time - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
