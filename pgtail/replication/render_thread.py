"""The thread that decodes frames, feeds the pipeline and writes the output."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Final, Protocol

from pgtail.pgoutput.decoder import AnyFrame
from pgtail.replication.consumer import ConsumerThread, Stopped
from pgtail.replication.pipeline_consumer import Feed, PipelineConsumer
from pgtail.replication.queue import FrameQueue

SYNC_PAUSE: Final = 1.0
"""Seconds between two fsyncs while more data arrives."""


class Sink(Protocol):
    """The destination of the output's bytes."""

    stopped: bool

    def reopen(self) -> bool:
        """If requested, continue in the file that now has the name. Returns whether it did."""

    def write(self, data: bytes, /) -> None: ...
    def flush(self) -> None:
        """Does nothing once `stopped`."""

    def sync(self) -> None: ...


class Rendering(Feed, frozen=True, kw_only=True):
    """The output of a publisher's stream, and its sink."""

    sink: Sink
    durable: bool
    """Whether output counts as delivered only when synced to disk, not when flushed."""


class RenderThread(PipelineConsumer, ConsumerThread):
    """Feeds the pipeline until it is to stop, and writes its output."""

    idle_timeout = 1.0

    def __init__(self, rendering: Rendering, queue: FrameQueue, *, position: int) -> None:
        super().__init__(rendering, queue, position=position)
        self._sink = rendering.sink
        self._durable = rendering.durable
        self._synced = 0.0
        self._ending = threading.Lock()
        self._closing = False

    def stop(self, seconds: float) -> bool:
        """Like ConsumerThread.stop(), but also abandons a write in progress."""
        with self._ending:
            self._sink.stopped = not self._closing
        return super().stop(seconds)

    def _tick(self) -> None:
        self._deliver(now=True)

    def _batch(self, frames: bytes) -> None:
        self._check_completeness()
        for _ in self._process(frames):
            if self._sink.stopped:
                raise Stopped
        self._check_completeness()  # later doubts are queried at once
        self._deliver(now=self.reached or self._queue.paused)

    def _feed(self, message: AnyFrame, lsn: int | None) -> Iterable[None]:
        self._pipeline.feed(message, lsn)
        return ()

    def _deliver(self, *, now: bool) -> None:
        """Flush the output and update `delivered`; sync files at most every SYNC_PAUSE, unless `now`."""
        position = self.position
        self._sink.flush()
        if self._sink.stopped:
            raise Stopped
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
