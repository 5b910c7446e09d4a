"""Mask values before they reach an output."""

from __future__ import annotations

from collections.abc import Callable

from pgtail.changes.events import Event, Transaction
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.changes.relations import Relation
from pgtail.native import Scanner, Written
from pgtail.outputs.base import Mask, Output
from pgtail.outputs.written import Once, WrittenTables


class RedactedOutput:
    """Passes each event to `output`, masked by `redaction`, and gives the scanner plans of masked tables."""

    def __init__(self, output: Output, redaction: Redaction) -> None:
        self._output = output
        self.needs_outcomes = output.needs_outcomes
        self._redaction = redaction

    @property
    def written(self) -> WrittenTables:
        return self._output.written

    @property
    def once(self) -> Once:
        return self._output.once

    @property
    def settled(self) -> bool:
        return self._output.settled

    @property
    def may_resume(self) -> bool:
        return self._output.may_resume

    def resume(self, transaction: Transaction | None) -> None:
        self._output.resume(transaction)

    @property
    def left_out(self) -> int:
        return self._output.left_out

    @left_out.setter
    def left_out(self, count: int) -> None:
        self._output.left_out = count

    def event(self, event: Event) -> None:
        self._output.event(self._redaction.event(event))

    def finish(self) -> None:
        self._output.finish()

    def new_file(self) -> None:
        self._output.new_file()

    def scanner(
        self, find: Callable[[int], Relation | None], filter_: Filter | None, mask: Mask | None = None
    ) -> Scanner | None:
        return self._output.scanner(find, filter_, self._redaction.shown)

    def takes(self, transaction: Transaction) -> bool:
        return self._output.takes(transaction)

    def before_run(self) -> Written | None:
        return self._output.before_run()

    def after_run(self, written: Written | None, transaction: Transaction | None) -> None:
        self._output.after_run(written, transaction)
