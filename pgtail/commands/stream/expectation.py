"""What is expected of a stream: changes that pass a filter, and a description of what came instead."""

from __future__ import annotations

import io
from collections import Counter, deque
from typing import Any, Final

from msgspec.structs import replace

from pgtail.changes.events import Change, LogicalMessage, Outcome
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.outputs import OutputOptions
from pgtail.outputs.ndjson import Json

KEPT: Final = 5
"""How many of the changes that did not pass are kept."""

_LINE_LIMIT: Final = 1000
"""Characters of a line that shows an unexpected change."""


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
            self._far.append(self._kept(change))
        else:
            self.instead[change.op, change.relation.qualified] += 1
            (self._near if self.table_passes(change.relation) else self._far).append(self._kept(change))
        return passed

    def outcome_passes(self, outcome: Outcome, shown: bool | None = None) -> bool:
        passed = super().outcome_passes(outcome, shown)
        if not passed:
            self.instead[outcome.op, ""] += 1
        elif self._passes_by_itself(outcome, None):  # else it is shown beside a change that counted
            self.came += 1
        return passed

    def _kept(self, change: Change) -> Change:
        """The change with the context that it has now, if conditions test it: its transaction may get another one."""
        if not self.tests_context or change.transaction is None:
            return change
        return replace(change, transaction=replace(change.transaction))


def _settled(change: Change) -> bool:
    """Whether a change was committed or prepared."""
    return not change.aborted and (change.transaction is None or change.transaction.settled)


def what_came_instead(expectation: Expectation) -> str:
    """The number of other changes by kind, and the last of them as lines of JSON."""
    if not expectation.instead:
        return "nothing else came either"
    kinds = [f"{count} {op} {table}".strip() for (op, table), count in expectation.instead.most_common(10)]
    more = len(expectation.instead) - len(kinds)
    words = ", ".join(kinds) + (f", and {more} other kinds" if more else "")
    options = OutputOptions(context="" if expectation.tests_context else None)  # of any prefix
    lines = [_line(change, expectation.redaction, options) for change in expectation.last_instead]
    return "\n".join([f"instead came {words}{'; the last ones:' if lines else ''}", *lines])


def _line(change: Change, redaction: Redaction | None, options: OutputOptions) -> str:
    """A change as JSON, cut if it is very long."""
    line = io.BytesIO()
    Json(line, options).event(change if redaction is None else redaction.event(change))
    text = line.getvalue().decode("utf-8", "backslashreplace").rstrip("\n")
    return text if len(text) <= _LINE_LIMIT else text[:_LINE_LIMIT] + "..."
