"""The fold as a task runs it: Arrow batches of events, in groups and in order -> batches of rows.

A group is some keys of one table, or all of it. Imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from pgtail.spark.folding.fold import Change, Fold, Happening, Moment, Row, Values
from pgtail.spark.folding.versions import Version

_TEXTS: Final = pa.list_(pa.string())
_VALUES: Final = pa.map_(pa.string(), pa.string())

ROW: Final = "row"
"""The `op` of an event that is no change but a row of the state so far; it comes first in its group."""

EVENT: Final = (
    "relid",
    "group",
    "op",
    "position",
    "seq",
    "time",
    "old",
    "new",
    "unchanged",
    "undecoded",
)
"""The columns of an event. `time` is in microseconds since 1970; a row of the state has its values in `new`."""

RESULT: Final = pa.schema(
    [
        ("relid", pa.int64()),
        ("identifier", _TEXTS),
        ("values", _VALUES),
        ("unknown", _TEXTS),
        ("undecoded", _TEXTS),
        ("position", pa.int64()),
        ("seq", pa.int64()),
        ("time", pa.int64()),
        ("until_position", pa.int64()),
        ("until_seq", pa.int64()),
        ("until_time", pa.int64()),
    ]
)
"""The columns of a row; `identifier` is NULL for one that is no more."""

_MOST_ROWS: Final = 20_000


class TableStream(NamedTuple):
    """What a task has to know of a table: its version so far, and what happens to it as a whole."""

    version: Version | None
    happenings: Sequence[Happening]


def fold_batches(
    batches: Iterable[pa.RecordBatch], tables: Mapping[int, TableStream], *, history: bool
) -> Iterator[pa.RecordBatch]:
    """Fold each group; its events must come together, in order."""
    current: tuple[int, int] | None = None
    fold = Fold([])
    out: list[tuple[Any, ...]] = []
    for batch in batches:
        for relid, group, *event in _events(batch):
            if (relid, group) != current:
                if current is not None:
                    out += _finish(current[0], fold)
                current = relid, group
                fold = Fold(tables[relid].happenings, tables[relid].version, history=history)
            _apply(fold, *event)
            if fold.closed:
                out += _closed(relid, fold)
            if len(out) > _MOST_ROWS:
                yield _batch(out)
                out = []
    if current is not None:
        out += _finish(current[0], fold)
    # Rows of one group may be many more than of one batch.
    for start in range(0, len(out), _MOST_ROWS):
        yield _batch(out[start : start + _MOST_ROWS])


def _events(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*[batch.column(name).to_pylist() for name in EVENT], strict=True)


def _apply(
    fold: Fold,
    op: str,
    position: int,
    seq: int,
    time: int | None,
    old: list[tuple[str, str | None]] | None,
    new: list[tuple[str, str | None]] | None,
    unchanged: list[str] | None,
    undecoded: list[str] | None,
) -> None:
    moment = Moment(position, seq, time)
    values: Values = dict(new or ())
    if op == ROW:
        fold.seed(Row(values, moment, frozenset(undecoded or ())))
    else:
        fold.take([Change(op, moment, dict(old or ()), values, unchanged or (), undecoded or ())])


def _finish(relid: int, fold: Fold) -> list[tuple[Any, ...]]:
    """The rows of a group at its end."""
    fold.advance()
    found = _closed(relid, fold)
    for row in fold.rows():
        found.append(_row(relid, fold.identifier(row), row, fold.unknown(row)))
    return found


def _closed(relid: int, fold: Fold) -> list[tuple[Any, ...]]:
    found = [_row(relid, None, row, row.unknown) for row in fold.closed]
    fold.closed.clear()
    return found


def _row(relid: int, identifier: list[str | None] | None, row: Row, unknown: list[str]) -> tuple[Any, ...]:
    until = row.until or (None, None, None)
    return relid, identifier, list(row.values.items()), unknown, sorted(row.undecoded), *row.since, *until


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, RESULT, strict=True)], schema=RESULT
    )
