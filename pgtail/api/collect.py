"""The output of the library: it collects what the pipeline sends, until the program takes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from pgtail.changes.events import Event, RowChange
from pgtail.files.spool import SpoolLimit
from pgtail.outputs.base import Output
from pgtail.outputs.planned import PreparedBuffer


class Collected(Output):
    """Keeps events in order. A prepared transaction comes when it is committed, and none that is rolled back."""

    needs_outcomes = True
    buffers_prepared = True

    def __init__(self, spool: SpoolLimit | None = None) -> None:
        self._events: deque[Event | Iterator[Event]] = deque()
        self._prepared = PreparedBuffer(self._events.append, spool, events=self._events.append)

    @property
    def settled(self) -> bool:
        return not self._prepared.waits

    def event(self, event: Event) -> None:
        if event.__class__ is RowChange and event.transaction.state is None:
            self._events.append(event)
        else:
            self._prepared.event(event)

    def finish(self) -> None:
        self._prepared.finish()

    def take(self) -> Iterator[Event]:
        """Yield the events so far. Use them before the pipeline goes on."""
        events = self._events
        while events:
            event = events.popleft()
            if event.__class__ is not RowChange and isinstance(event, Iterator):
                yield from event
            else:
                yield event
