"""The thread that decodes frames, feeds the pipeline and writes the output."""

from __future__ import annotations

import threading
import time
from typing import Final, Protocol

from msgspec import Struct

from pgtail.errors import DecodeError
from pgtail.humanize import counted
from pgtail.pgoutput.decoder import AnyFrame, Decoder
from pgtail.pgoutput.frames import LENGTHS, bounds
from pgtail.pgoutput.scalars import lsn_text
from pgtail.pgoutput.transaction import Message
from pgtail.pgoutput.walsender import Keepalive
from pgtail.pipeline.pipeline import Pipeline
from pgtail.replication.consumer import ConsumerThread, Stopped
from pgtail.replication.identity import Identity
from pgtail.replication.probe import CompletenessProbe
from pgtail.replication.publisher import Publisher
from pgtail.replication.queue import FrameQueue
from pgtail.replication.same_tables import SameTables
from pgtail.service.progress import Counts

_LARGE: Final = 10_000
"""Changes of a transaction from which on the status line counts them as they arrive."""
SYNC_PAUSE: Final = 1.0
"""Seconds between two fsyncs while more data arrives."""


class Sink(Protocol):
    """The destination of the output's bytes."""

    stopped: bool

    def reopen(self) -> bool:
        """If requested, continue in the file that now has the name. Returns whether it did."""

    def write(self, data: bytes, /) -> None: ...
    def flush(self) -> None: ...
    def sync(self) -> None: ...


class Rendering(Struct, frozen=True):
    """The output of a publisher's stream, and its sink."""

    publisher: Publisher
    pipeline: Pipeline
    sink: Sink
    durable: bool
    """Whether output counts as delivered only when synced to disk, not when flushed."""
    same_tables: SameTables | None
    """None if no row is remembered over a reconnection."""


class RenderThread(ConsumerThread):
    """Feeds the pipeline until it is to stop."""

    idle_timeout = 1.0

    def __init__(self, rendering: Rendering, queue: FrameQueue, *, position: int) -> None:
        publisher = rendering.publisher
        super().__init__(queue, publisher.interrupt.wake, position=position)
        self._pipeline = rendering.pipeline
        self._sink = rendering.sink
        self._durable = rendering.durable
        self._same_tables = rendering.same_tables
        self._completeness = CompletenessProbe(publisher)
        self._encoding = publisher.plan.encoding or "utf-8"
        self._decoder = Decoder(encoding=self._encoding)
        self._synced = 0.0
        self._ending = threading.Lock()
        self._closing = False

    @property
    def commits_at(self) -> int | None:
        return self._pipeline.commits_at

    @property
    def status_always(self) -> bool:
        """Also while the rows of a large transaction arrive, most of which may be shown only when it commits."""
        open_ = self._pipeline.unfinished
        return open_ is not None and open_[1] >= _LARGE

    def status_words(self) -> list[str]:
        """The changes so far of a transaction that is not complete, the transactions shown and the rows selected.

        If a filter left out rows, also the number of all rows read.
        """
        pipeline = self._pipeline
        rows, left_out = pipeline.rows, pipeline.left_out
        words = [f"{counted(pipeline.shown, 'transaction')}, {counted(rows - left_out, 'row')}"]
        if left_out:
            words = [f"{words[0]} selected", f"{counted(rows, 'row')} read"]
        open_ = pipeline.unfinished
        if open_ is not None and open_[1]:
            words.insert(0, f"transaction {open_[0]}: {counted(open_[1], 'change')} so far")
        return words

    def counts(self) -> Counts:
        pipeline = self._pipeline
        selected = pipeline.rows - pipeline.left_out
        return Counts(pipeline.transactions, pipeline.rows, selected=selected, tables=pipeline.rows_by_table())

    @property
    def last_commit(self) -> int | None:
        return None if self._pipeline.times is None else self._pipeline.times[1]

    def stop(self, seconds: float) -> bool:
        """Like ConsumerThread.stop(), but also abandons a write in progress."""
        with self._ending:
            self._sink.stopped = not self._closing
        return super().stop(seconds)

    def end_at(self, position: int) -> None:
        self._pipeline.stop.until = position

    def restart(self, *, gap: bool, position: int) -> None:
        self._decoder = Decoder(encoding=self._encoding)
        if self._same_tables is not None:
            self._same_tables.restart()
        self._pipeline.restart(gap=gap)
        self.position = self.delivered = position

    def server_changed(self, identity: Identity) -> None:
        if self._same_tables is not None:
            self._same_tables.begin(identity)

    def _tick(self) -> None:
        self._deliver(now=True)

    def _batch(self, frames: bytes) -> None:
        self._check_completeness()
        self._render(frames)
        self._check_completeness()  # later doubts are queried at once
        self._deliver(now=self.reached or self._queue.paused)

    def _check_completeness(self) -> None:
        """Learn which tables have every change in the stream, if old values are taken from them."""
        rows = self._pipeline.seen_rows
        if rows is None:
            return
        answer = self._completeness.poll(rows.doubts)
        if answer is not None and answer.doubts == rows.doubts:
            rows.trust(answer.complete)

    def _render(self, frames: bytes) -> None:
        """Process frames: runs of rows undecoded, all others one by one."""
        pos, end = 0, len(frames)
        while not self.reached and (pos := self._scan(frames, pos)) < end:
            start, pos = bounds(frames, pos)
            try:
                message, lsn, _ = self._decoder.frame(frames, start, pos)
            except DecodeError as error:
                raise error.located(f"the stream after {lsn_text(self.position)}", error.offset - start) from None
            if self._pipeline.stop.is_before(message):
                self.reached = True
                return
            self._pipeline.feed(message, lsn)
            if not self._pipeline.inside:
                self._advance(message)
            if self._sink.stopped:
                raise Stopped

    def _scan(self, frames: bytes, pos: int) -> int:
        """Process frames undecoded; returns where the first one starts that must be decoded."""
        after = self._pipeline.scan(frames, pos, len(frames), LENGTHS, self._decoder.in_stream)
        if after > pos:
            self.position = max(self.position, self._pipeline.end_lsn or 0)
            if self._sink.stopped:
                raise Stopped
        return after

    def _advance(self, message: AnyFrame) -> None:
        """Advance `position` after a message outside a transaction, and stop there if all was shown."""
        position = self._pipeline.end_lsn or 0
        if isinstance(message, Keepalive):
            position = message.end_lsn
        elif isinstance(message, Message) and not message.transactional:
            position = message.lsn
        self.position = max(self.position, position)
        self.reached = self._pipeline.stop.is_after(self._pipeline.shown, self.position)

    def _deliver(self, *, now: bool) -> None:
        """Flush the output and update `delivered`; sync files at most every SYNC_PAUSE, unless `now`."""
        position = self.position
        self._sink.flush()
        if not self._pipeline.inside and self._sink.reopen():
            self._pipeline.new_file()
            self._sink.flush()
        if position <= self.delivered:
            return
        if self._durable:
            if not now and time.monotonic() < self._synced + SYNC_PAUSE:
                return
            self._sink.sync()
            self._synced = time.monotonic()
        self.delivered = position
        self._wake()

    def _end(self) -> None:
        with self._ending:
            self._closing = True
            self._sink.stopped = False
        self._pipeline.break_off()
        self._deliver(now=True)
