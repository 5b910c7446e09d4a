"""Which tables a format has written rows of: for its readers a snapshot of one of them repeats rows."""

from __future__ import annotations

from pgtail.changes.events import Transaction
from pgtail.changes.relations import Relation


class WrittenTables:
    """Tables by their names."""

    def __init__(self) -> None:
        self.names: set[tuple[str, str]] = set()
        """Schema and table of each."""

    def add(self, relation: Relation) -> None:
        """Rows of this table are written."""
        if relation.seen:
            self.names.add((relation.schema, relation.name))

    def repeated(self, transaction: Transaction) -> Relation | None:
        """The table of a snapshot, if rows of it were written before."""
        table = transaction.table
        return table if table is not None and (table.schema, table.name) in self.names else None
