"""The thread that decodes frames, feeds the pipeline and writes the output."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from pgtail.changes.commit_range import PLACES, CommitRange
from pgtail.errors import DecodeError
from pgtail.humanize import counted
from pgtail.pgoutput.cursor import Buffer
from pgtail.pgoutput.decoder import AnyFrame, Decoder
from pgtail.pgoutput.frames import LENGTH, LENGTHS
from pgtail.pgoutput.scalars import lsn_text
from pgtail.pgoutput.transaction import Begin, Commit, Message
from pgtail.pgoutput.two_phase import BeginPrepare, Prepare
from pgtail.pgoutput.walsender import Keepalive
from pgtail.replication.consumer import ConsumerThread, Stopped
from pgtail.replication.queue import FrameQueue

_LARGE: Final = 10_000
"""Changes of a transaction from which on the status line counts them as they arrive."""
SYNC_PAUSE: Final = 1.0
"""Seconds between two fsyncs while more data arrives."""


_MILESTONES: Final = frozenset({*PLACES, Commit, Prepare, Keepalive})


class MessagePipeline(Protocol):
    """The part of the pipeline that this thread uses."""

    shown: int
    end_lsn: int | None

    rows: int
    left_out: int

    @property
    def inside(self) -> bool: ...
    @property
    def unfinished(self) -> tuple[int | None, int] | None: ...
    @property
    def commits_at(self) -> int | None: ...
    def scan(self, buf: Buffer, pos: int, end: int, framing: int, in_stream: bool | None) -> int: ...
    def feed(self, message: AnyFrame, lsn: int | None, offset: int | None = None) -> None: ...
    def restart(self, *, gap: bool) -> None: ...
    def break_off(self) -> None: ...


class Sink(Protocol):
    """Where the output's bytes go."""

    stopped: bool

    def write(self, data: bytes, /) -> None: ...
    def flush(self) -> None: ...
    def sync(self) -> None: ...


class RenderThread(ConsumerThread):
    """Feeds the pipeline, up to the position `until`, past the end of `commits`, or until `enough()`.

    Delivered is what was flushed; if `durable`, what was synced to disk.
    """

    def __init__(
        self,
        queue: FrameQueue,
        pipeline: MessagePipeline,
        sink: Sink,
        decoder: Callable[[], Decoder],
        wake: Callable[[], None],
        *,
        position: int,
        durable: bool,
        until: int | None = None,
        commits: CommitRange | None = None,
        enough: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(queue, wake, position=position, until=until)
        self._pipeline = pipeline
        self._sink = sink
        self._new_decoder = decoder
        self._decoder = decoder()
        self._durable = durable
        self._commits = commits or CommitRange()
        self._enough = enough
        self._inside = False
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

    def stop(self, seconds: float) -> bool:
        """Like ConsumerThread.stop(), but also abandons a write in progress."""
        with self._ending:
            self._sink.stopped = not self._closing
        return super().stop(seconds)

    def restart(self, *, gap: bool, position: int) -> None:
        self._decoder = self._new_decoder()
        self._inside = False
        self._pipeline.restart(gap=gap)
        self.position = self.delivered = position

    def _tick(self) -> None:
        self._deliver(now=True)

    def _batch(self, frames: bytes) -> None:
        self._render(frames)
        self._deliver(now=self.reached is not None or self._queue.paused)

    def _render(self, frames: bytes) -> None:
        """Process frames: runs of rows undecoded, everything else one by one."""
        pos, end = 0, len(frames)
        while self.reached is None and (pos := self._scan(frames, pos)) < end:
            start = pos + LENGTH.size
            pos = start + LENGTH.unpack_from(frames, pos)[0]
            try:
                message, lsn, _ = self._decoder.frame(frames, start, pos)
            except DecodeError as error:
                raise error.located(f"the stream after {lsn_text(self.position)}", error.offset - start) from None
            if type(message) not in _MILESTONES:
                self._pipeline.feed(message, lsn)
            else:
                self._milestone(message, lsn)
            if self._sink.stopped:
                raise Stopped

    def _scan(self, frames: bytes, pos: int) -> int:
        """Process frames undecoded; returns where the first one starts that must be decoded."""
        after = self._pipeline.scan(frames, pos, len(frames), LENGTHS, self._decoder.in_stream)
        if after > pos:
            self._inside = self._pipeline.inside
            self.position = max(self.position, self._pipeline.end_lsn or 0)
            if self._sink.stopped:
                raise Stopped
        return after

    def _milestone(self, message: AnyFrame, lsn: int | None) -> None:
        """Process a message that may change the position or end the stream."""
        place = PLACES.get(type(message))
        if place is not None:
            begins_at, moment = place(message)
            if self._commits.is_past(begins_at, moment) or (self.until is not None and begins_at > self.until):
                self.reached = "until"
                return
        self._pipeline.feed(message, lsn)
        if isinstance(message, Begin | BeginPrepare):
            self._inside = True
            return
        if isinstance(message, Commit | Prepare):
            self._inside = False
        self._advance(message)
        if self._enough is not None and self._enough():
            self.reached = "enough"
        elif self.until is not None and self.position >= self.until:
            self.reached = "until"

    def _advance(self, message: AnyFrame) -> None:
        """Move `position` on; not inside a transaction."""
        if self._inside:
            return
        position = self._pipeline.end_lsn or 0
        if isinstance(message, Keepalive):
            position = message.end_lsn
        elif isinstance(message, Message) and not message.transactional:
            position = message.lsn
        self.position = max(self.position, position)

    def _deliver(self, *, now: bool) -> None:
        """Flush the output and update `delivered`; sync files at most every SYNC_PAUSE, unless `now`."""
        position = self.position
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
