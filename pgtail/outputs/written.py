"""What an output has written: tables, of which a snapshot repeats rows, and what comes once in a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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


class Once:
    """What is written or told once in a stream, of which several processes may write parts.

    Each thing has a name, and a value that does not change.
    """

    def __init__(self) -> None:
        self.done: dict[str, object] = {}
        self.before: Callable[[], Iterable[tuple[str, object]]] | None = None
        """Waits for what was done in the parts before this one; None if all of that is in `done`."""

    def first(self, name: str, value: object = True) -> object:
        """Do a thing: returns None if this is the first time, else the value of that time."""
        if name not in self.done and self.before is not None:
            before, self.before = self.before, None
            self.done.update(before())
        if name in self.done:
            return self.done[name]
        self.done[name] = value
        return None
