"""How many rows of each table a pipeline has processed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pgtail.changes.events import Event, RowChange, TableTruncate
from pgtail.service.progress import MOST_TABLES, TableRows

_OPS: Final = {op: place for place, op in enumerate(("insert", "update", "delete", "snapshot", "truncate"))}
"""The place of each operation in the counts; the operations that the scanner counts come first."""
_OTHERS: Final = ("", "")
_Counts = dict[tuple[str, str], list[int]]


class TableRowCounter:
    """Counts the rows by table and operation, whether a filter lets them pass or not."""

    def __init__(self) -> None:
        self._counts: _Counts = {}

    def take_event(self, event: Event) -> None:
        """Count a change that the scanner has not processed."""
        if isinstance(event, RowChange | TableTruncate):
            _counts_of(self._counts, (event.relation.schema, event.relation.name))[_OPS[event.op]] += 1

    def rows(self, scanned: Mapping[tuple[str, str], list[int]]) -> list[TableRows]:
        """The counts of this object and of the scanner. Any thread may ask."""
        totals = {name: [*counts] for name, counts in list(self._counts.items())}
        for name, counts in scanned.items():
            sums = _counts_of(totals, name)
            for place, count in enumerate(counts):
                sums[place] += count
        return [
            TableRows(*name, inserts, updates, deletes, truncates, snapshots)
            for name, (inserts, updates, deletes, snapshots, truncates) in totals.items()
        ]


def _counts_of(sums: _Counts, name: tuple[str, str]) -> list[int]:
    known = name in sums or len(sums) < MOST_TABLES
    return sums.setdefault(name if known else _OTHERS, [0] * len(_OPS))
