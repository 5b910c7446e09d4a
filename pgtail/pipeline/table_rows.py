"""How many rows of each table a pipeline has processed."""

from __future__ import annotations

from typing import Final

from pgtail.changes.events import Event, RowChange, TableTruncate
from pgtail.native.batch import Slice
from pgtail.service.progress import MOST_TABLES, TableRows

_OPS: Final = {op: place for place, op in enumerate(("insert", "update", "delete", "snapshot", "truncate"))}
"""The place of each operation in the counts; those of rows come first."""
_OTHERS: Final = ("", "")
_Counts = dict[tuple[str, str], list[int]]


class TableRowCounter:
    """Counts the rows by table and operation, whether a filter lets them pass or not."""

    def __init__(self) -> None:
        self._counts: _Counts = {}

    def take_event(self, event: Event) -> None:
        """Count a change that was decoded."""
        if isinstance(event, RowChange | TableTruncate):
            _counts_of(self._counts, (event.relation.schema, event.relation.name))[_OPS[event.op]] += 1

    def take_slice(self, slice_: Slice) -> None:
        """Count rows that were not decoded."""
        for relation, counts in slice_.counts():
            sums = _counts_of(self._counts, (relation.schema, relation.name))
            for place, count in enumerate(counts):
                sums[place] += count

    def rows(self) -> list[TableRows]:
        """The counts. Any thread may ask."""
        return [
            TableRows(*name, inserts, updates, deletes, truncates, snapshots)
            for name, (inserts, updates, deletes, snapshots, truncates) in list(self._counts.items())
        ]


def _counts_of(sums: _Counts, name: tuple[str, str]) -> list[int]:
    known = name in sums or len(sums) < MOST_TABLES
    return sums.setdefault(name if known else _OTHERS, [0] * len(_OPS))
