"""Sends rows to an output as events, without messages, or only counts them, in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from pgtail.changes.events import Ended, Event, RowChange, Started
from pgtail.changes.filters import Filter
from pgtail.changes.relations import Relation
from pgtail.outputs.base import Mask
from pgtail.outputs.executor import CELLS, Row
from pgtail.outputs.scanner import Kind, RowScanner
from pgtail.pgoutput.cursor import Buffer

_LARGE_MASKED: Final = 64 * 1024
"""Bytes; values of larger rows are masked when they are decoded, as they may be cut before."""


class EventOutput(Protocol):
    """What the scanner needs of an output."""

    left: int
    """How many more changes of the transaction are shown."""

    def event(self, event: Event, /) -> None: ...
    def skipped(self, count: int, /) -> None: ...


class EventScanner(RowScanner):
    """Sends Started, rows and Ended to `output.event`.

    While `full` is set, as no rows of the transaction are left to be shown, rows are counted: `output.skipped` gets
    their number.
    """

    def __init__(
        self, find: Callable[[int], Relation | None], filter_: Filter | None, output: EventOutput, mask: Mask | None
    ) -> None:
        super().__init__(find, filter_, mask)
        self._output = output
        self._skipped = 0
        self.full = False

    def scan(self, buf: Buffer, pos: int, end: int, framing: int, in_stream: bool = False) -> int:
        self._reset()
        if in_stream:
            return pos
        try:
            return self._read(buf, pos, end, framing, end)[0]
        finally:
            self._flush()

    def _start(self) -> None:
        if not self.started:
            self.started = True
            self._output.event(Started(self._transaction))
            self.full = self._output.left <= 0

    def _emit(self, kind: Kind, row: Row, special: tuple[int, ...], size: int) -> bool:
        if self._mask is not None and size > _LARGE_MASKED:
            return False
        self._start()
        if self.full:
            self._skipped += 1
            return True
        first = tuple(row[CELLS : CELLS + kind.columns])
        old = first if kind.old_kind else None
        new = None if kind.op == "delete" else tuple(row[len(row) - kind.columns :]) if kind.old_kind else first
        change = RowChange(kind.op, self._transaction, row[1], row[2], kind.masked, kind.old_kind, old, new)
        self._output.event(change)
        self.full = self._output.left <= 0
        return True

    def _end(self) -> None:
        self._flush()
        self._output.event(Ended(self._transaction))

    def _flush(self) -> None:
        if self._skipped:
            self._output.skipped(self._skipped)
            self._skipped = 0
