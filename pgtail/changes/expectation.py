"""The filter of `pgtail expect`: counts the changes that pass it and records the others."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, Final

from pgtail.changes.events import Change, LogicalMessage, Outcome
from pgtail.changes.filters import Filter

KEPT: Final = 5
"""How many of the changes that did not pass are kept."""


class Expectation(Filter):
    """Met after `count` changes passed; `conditions` are those of Filter.

    `instead` counts the other changes by (operation, table).
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
    def needs_events(self) -> bool:
        return True

    @property
    def met(self) -> bool:
        """Whether enough changes passed."""
        return self.came >= self.count

    @property
    def last_instead(self) -> list[Change]:
        """The last changes that did not pass: of the requested tables, or else of any table."""
        return [*(self._near or self._far)]

    def passes(self, change: Change) -> bool:
        passed = super().passes(change)
        if not _settled(change):
            return passed  # shown if it passes, but not counted: it is not committed
        if passed:
            self.came += 1
        elif isinstance(change, LogicalMessage):
            self.instead[change.op, ""] += 1
            self._far.append(change)
        else:
            self.instead[change.op, change.relation.qualified] += 1
            (self._near if self.table_passes(change.relation) else self._far).append(change)
        return passed

    def outcome_passes(self, outcome: Outcome, shown: bool | None = None) -> bool:
        passed = super().outcome_passes(outcome, shown)
        if not passed:
            self.instead[outcome.op, ""] += 1
        elif self._passes_by_itself(outcome, None):  # else it is shown beside a change that counted
            self.came += 1
        return passed


def _settled(change: Change) -> bool:
    """Whether a change was committed or prepared."""
    return not change.aborted and (change.transaction is None or change.transaction.settled)
