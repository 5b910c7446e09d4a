"""The output of the library: it collects what the pipeline sends, until the program takes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from msgspec.structs import replace

from pgtail.changes.events import Event, LogicalMessage, RowChange, TableTruncate, Transaction
from pgtail.files.spool import SpoolLimit
from pgtail.outputs.base import Output
from pgtail.outputs.planned import PreparedBuffer


class Collected(Output):
    """Keeps events in order. A prepared transaction comes when it is committed, and none that is rolled back.

    With `contexts` each change keeps the context that it came with: the pipeline may give its transaction another one.
    """

    needs_outcomes = True
    buffers_prepared = True

    def __init__(self, spool: SpoolLimit | None = None, *, contexts: bool = False) -> None:
        self._events: deque[Event | Iterator[Event]] = deque()
        self._prepared = PreparedBuffer(self._events.append, spool, events=self._events.append)
        self._contexts = contexts
        self._stamped: tuple[Transaction, Transaction] | None = None
        """The last transaction of a change, and the copy of it that has the same context for ever."""

    @property
    def settled(self) -> bool:
        return not self._prepared.waits

    def event(self, event: Event) -> None:
        if self._contexts:
            event = self._with_context(event)
        if event.__class__ is RowChange and event.transaction.state is None:
            self._events.append(event)
        else:
            self._prepared.event(event)

    def finish(self) -> None:
        self._prepared.finish()

    def _with_context(self, event: Event) -> Event:
        if not isinstance(event, RowChange | TableTruncate | LogicalMessage):
            return event
        transaction, stamped = event.transaction, self._stamped
        if transaction is None or transaction.state is not None:  # a prepared one is copied when it is committed
            return event
        if stamped is None or stamped[0] is not transaction or stamped[1].context is not transaction.context:
            stamped = self._stamped = transaction, replace(transaction)
        return replace(event, transaction=stamped[1])

    def take(self) -> Iterator[Event]:
        """Yield the events so far. Use them before the pipeline goes on."""
        events = self._events
        while events:
            event = events.popleft()
            if event.__class__ is not RowChange and isinstance(event, Iterator):
                yield from map(self._with_context, event) if self._contexts else event
            else:
                yield event
