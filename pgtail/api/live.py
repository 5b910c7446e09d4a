"""The events of a slot: one thread reads the socket, the thread that iterates decodes what was read."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Final

from pgtail.api.arguments import in_keywords, keywords, name_arguments
from pgtail.api.collect import Collected
from pgtail.changes.events import Ended, Event, LogicalMessage
from pgtail.changes.filters import Filter
from pgtail.changes.redaction import Redaction
from pgtail.commands.input.selection import report_filter, report_unmasked
from pgtail.commands.options.server import StreamOptions
from pgtail.commands.output.build import report_dropped
from pgtail.commands.stream.following import Following, limits_of, report_plan
from pgtail.errors import InputError, PgtailError
from pgtail.files.spool import SpoolLimit
from pgtail.files.stopping import Wakeup
from pgtail.postgres.connection import Connector, parameters
from pgtail.reading.notes import no_quotes
from pgtail.replication.plan import Publisher
from pgtail.replication.queue import FrameQueue
from pgtail.replication.stepped_consumer import SteppedConsumer
from pgtail.service.progress import SlotProgress

_PATIENCE: Final = 10.0
"""Seconds for the thread to end, which may be connecting; it is left to itself after that."""
_SPOOL_CURE: Final = "allow more with spill_limit, or leave them to the server with streaming='off'"


class LiveEvents(Iterator[Event]):
    """The events of one run, once start() has returned. All but abandon() is for one thread at a time.

    The iteration raises what ended the stream, and TimeoutError after `deadline`, of time.monotonic(), from where it
    may go on.
    """

    def __init__(self, options: StreamOptions, filter_: Filter, redaction: Redaction | None) -> None:
        """Raises OptionError."""
        self.deadline: float | None = None
        name, fork = options.request.slot, options.request.fork
        self.slot: str = f"slot {name}" if name else f"a copy of slot {fork}" if fork else "a temporary slot"
        """The slot, for people."""
        self.warnings: list[str] = []
        """What may be the reason if nothing comes, once it has started."""
        self._options, self._filter, self._redaction = options, filter_, redaction
        self._following = Following(options, filter_, asked=options.format.takes_seen)
        given = options.connection
        self._connector = Connector(
            parameters(given.dsn, host=given.host, port=given.port, user=given.username, dbname=given.dbname)
        )
        self._spool = SpoolLimit(options.end.spill_limit, _SPOOL_CURE)
        self._output = Collected(self._spool, contexts=options.filter.context is not None)
        self._taken = self._output.take()
        self._gap = False
        """Whether the last transaction is incomplete."""
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._wakeup: Wakeup | None = None
        self._consumer: SteppedConsumer | None = None
        self._around = contextlib.ExitStack()

    def start(self) -> None:
        """Connect: every later commit will be seen. Raises OptionError and ServerError. Close it in any case."""
        following, options = self._following, self._options
        self._wakeup = wakeup = self._around.enter_context(Wakeup())
        plan = following.prepare(self._connector, wakeup)
        report_plan(plan)
        self.warnings = [*map(in_keywords, plan.warnings)]
        publisher = Publisher(plan, self._connector, wakeup, SlotProgress())
        assembler = self._around.enter_context(contextlib.closing(following.assembler(self._spool)))
        self._feed = following.feed(publisher, assembler, self._output, self._redaction)
        self._around.callback(self._report)
        self._around.callback(self._output.finish)
        limits = limits_of(options.end, plan)
        self._tail = following.tail(self._feed, limits, self._make_consumer, lambda _: self._started.set())
        self._thread = threading.Thread(target=self._run, name="pgtail", daemon=True)
        self._around.callback(self._thread.join, _PATIENCE)
        self._around.callback(self.abandon)
        self._thread.start()
        self._started.wait()
        self._raise_error()

    def _make_consumer(self, queue: FrameQueue, position: int) -> SteppedConsumer:
        self._consumer = SteppedConsumer(self._feed, queue, self._output, position=position)
        return self._consumer

    def _run(self) -> None:
        try:
            with no_quotes(self._redaction):
                self._tail.run()
        except KeyboardInterrupt:  # abandon() asked for it
            pass
        except BaseException as error:  # noqa: BLE001 -- raised in the thread that iterates
            self._error = error
        finally:
            self._started.set()

    def __next__(self) -> Event:
        try:
            return self._next()
        except BaseException as error:
            if isinstance(error, PgtailError):
                name_arguments(error)
            elif not isinstance(error, Exception):  # a part of what was read may be lost
                self.consumer.error = PgtailError("the stream was interrupted: follow it again to continue")
            raise

    def _next(self) -> Event:
        if self._gap:
            self._gap = False
            raise InputError("the rest of the transaction was not read: the connection was lost, and the slot with it")
        while (event := next(self._taken, None)) is None:
            left = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
            with no_quotes(self._redaction):
                goes_on = self.consumer.step(left)
            self._taken = self._output.take()
            if not goes_on:
                if not self.consumer.reached:
                    self._thread.join()
                    self._raise_error()
                raise StopIteration
        if isinstance(event, Ended):
            self._gap = not event.complete
            self.consumer.take(event.transaction.end_lsn)
        elif isinstance(event, LogicalMessage) and event.transaction is None:
            self.consumer.take(event.lsn)
        return event

    @property
    def consumer(self) -> SteppedConsumer:
        """What processes the stream, and acknowledges."""
        if self._consumer is None:
            raise RuntimeError("the stream is not connected: enter it, with pgtail.follow(...) as stream")
        return self._consumer

    def abandon(self) -> None:
        """Let the iteration end soon, and the session. Any thread may call it."""
        if self._wakeup is not None:
            self._wakeup.stop()  # before the consumer ends: after that it would break off the end of the session
        if self._consumer is not None:
            self._consumer.end()

    @keywords()
    def close(self) -> None:
        """End the session in good order. Raises ServerError if an acknowledgement may not have reached the server."""
        self._around.close()
        if self._consumer is not None and self._consumer.has_acknowledged:
            self._raise_error()

    def _report(self) -> None:
        """Note what the filters and the masks did not meet."""
        report_filter(self._filter)
        report_unmasked(self._redaction, whole=False)
        report_dropped(self._feed.pipeline.seen_rows, self._options.format)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error
