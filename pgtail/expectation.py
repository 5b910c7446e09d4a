"""Floor 3, a filter that is waited for: counts what passes it, and remembers what came instead; knows no clock."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, Final

from pgtail.filters import Filter
from pgtail.transaction import Change, LogicalMessage, Outcome

KEPT: Final = 5
"""How many of the changes that came instead are kept whole."""


class Expectation(Filter):
    """Met once `count` changes passed. The conditions are a Filter's.

    `instead` counts all others by (operation, table).
    """

    def __init__(self, count: int, **conditions: Any) -> None:
        super().__init__(**conditions)
        self.count = count
        self.came = 0
        self.instead: Counter[tuple[str, str]] = Counter()
        self._near: deque[Change] = deque(maxlen=KEPT)
        self._far: deque[Change] = deque(maxlen=KEPT)

    @property
    def active(self) -> bool:
        return True

    @property
    def by_table_and_op(self) -> bool:
        return False  # each change is to be seen here

    @property
    def met(self) -> bool:
        """Whether enough came."""
        return self.came >= self.count

    @property
    def last_instead(self) -> list[Change]:
        """The last changes that did not pass: those of the tables that were asked for, else of any."""
        return [*(self._near or self._far)]

    def passes(self, change: Change) -> bool:
        passed = super().passes(change)
        if not _settled(change):
            return passed  # it may be shown, but it is no change yet, or never was one
        if passed:
            self.came += 1
        elif isinstance(change, LogicalMessage):
            self.instead[change.op, ""] += 1
            self._far.append(change)
        else:
            self.instead[change.op, change.relation.qualified] += 1
            (self._near if self.table_passes(change.relation) else self._far).append(change)
        return passed

    def outcome_passes(self, outcome: Outcome) -> bool:
        passed = super().outcome_passes(outcome)
        if passed:
            self.came += 1
        else:
            self.instead[outcome.op, ""] += 1
        return passed


def _settled(change: Change) -> bool:
    """Whether a change was committed or prepared."""
    return not change.aborted and (change.transaction is None or change.transaction.settled)
