"""Copies published tables into the queue of frames, before the stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from msgspec import Struct

from pgtail.changes.filters import selected
from pgtail.pgoutput.frames import LENGTHS, head
from pgtail.postgres.snapshot_plan import Part, PublishedTable
from pgtail.postgres.table_copy import CopyForm, CopyStopped
from pgtail.replication.consumer import Consumer
from pgtail.replication.plan import Publisher
from pgtail.replication.queue import FrameQueue
from pgtail.replication.snapshot import ConsistentPoint, Copying, Exported, Progress, published_tables
from pgtail.replication.snapshot_report import SnapshotReport

_PAUSE: Final = 0.02
"""Seconds between two looks at a queue that is full."""


class StreamSnapshot(Struct, frozen=True):
    """Selects the tables to copy: those that match one of `tables` (all without any) and none of `exclude`."""

    publisher: Publisher
    tables: Sequence[str]
    exclude: Sequence[str]

    def copy(
        self, source: Exported, queue: FrameQueue, consumer: Consumer, check: Callable[[], None]
    ) -> ConsistentPoint:
        """Put the tables into the queue, one after another, until the consumer has ended; returns where they belong.

        Calls `check` several times a second. Raises ServerError, OutputError, KeyboardInterrupt, and what `check` does.
        """
        plan, interrupt = self.publisher.plan, self.publisher.interrupt
        with ExitStack() as stack:
            with interrupt.raising():
                session = stack.enter_context(source.session())
                point = ConsistentPoint(source.lsn, session.clock())
                tables = [
                    table
                    for table in published_tables(session, plan)
                    if selected(table.schema, table.name, self.tables, self.exclude)
                ]
            report = SnapshotReport(self.publisher, plan.slot_name)
            report.begin(tables, point.lsn)
            target = _Target(queue, consumer, point, plan.encoding or "utf-8")
            form = CopyForm(bool(plan.options.binary), point.header, LENGTHS)
            copying = Copying(source.session, target, form, interrupt, attempts=1)

            def progress(now: Progress) -> None:
                check()
                report.progress(now)

            copying.run(tables, [session], progress)
            if not consumer.ended:
                report.end(copying.progress)
        return point

    @staticmethod
    def end(point: ConsistentPoint, queue: FrameQueue) -> None:
        """There are no more tables: the output need not wait for another message to know it."""
        queue.put(_with_length(point.end))


class _Target:
    """Puts frames into the queue, and waits while it is full."""

    def __init__(self, queue: FrameQueue, consumer: Consumer, point: ConsistentPoint, encoding: str) -> None:
        self._queue = queue
        self._consumer = consumer
        self._point = point
        self._encoding = encoding
        self._stopped = threading.Event()

    def part(self, table: PublishedTable, part: Part) -> _Target:
        if part is table.parts[0]:
            for frame in (self._point.begin, *self._point.descriptions(table, self._encoding)):
                self._put(_with_length(frame))
        return self

    def complete(self, table: PublishedTable) -> None:
        self._put(_with_length(self._point.commit))

    def stop(self) -> None:
        self._stopped.set()

    def add(self, frames: bytes, rows: int) -> None:
        self._put(frames)

    def finish(self) -> None:
        """Rows in the queue stay."""

    def abandon(self) -> None:
        """Rows in the queue stay: they cannot be removed."""

    def _put(self, frames: bytes) -> None:
        """Raises CopyStopped if the consumer has ended, and after stop()."""
        full = not self._queue.put(frames)
        while full and not (self._queue.paused or self._consumer.ended or self._stopped.wait(_PAUSE)):
            pass
        if self._consumer.ended or self._stopped.is_set():
            raise CopyStopped


def _with_length(frame: bytes) -> bytes:
    """A frame as the queue has it."""
    return head(len(frame), LENGTHS) + frame
