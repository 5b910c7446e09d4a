"""Floor 5, the thread that takes frames from the spool, decodes them and writes: a blocked output blocks nothing else.

Knows the pipeline and the sink by what they do only; what it has delivered is read by the main thread.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from pgtail.errors import DecodeError, InputError, OptionError
from pgtail.server.spool import Spool
from pgtail.wire.decoder import LENGTHS, AnyFrame, Decoder
from pgtail.wire.scalars import lsn_text
from pgtail.wire.stream import StreamCommit
from pgtail.wire.transaction import Begin, Commit, Message
from pgtail.wire.two_phase import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared, StreamPrepare
from pgtail.wire.walsender import Keepalive

BATCH: Final = 256 * 1024
"""Bytes of frames after which what was made of them is written."""
SYNC_PAUSE: Final = 1.0
"""Seconds between two fsyncs while more is coming."""

_LENGTH: Final = struct.Struct(">I")

_BEGINS: Final[dict[type, Callable[[Any], int]]] = {
    Begin: lambda message: message.final_lsn,
    BeginPrepare: lambda message: message.prepare_lsn,
    StreamCommit: lambda message: message.commit_lsn,
    StreamPrepare: lambda message: message.prepare_lsn,
    CommitPrepared: lambda message: message.commit_lsn,
    RollbackPrepared: lambda message: message.rollback_end_lsn,
    Message: lambda message: 0 if message.transactional else message.lsn,
}
"""Where in the log lies what these messages begin or tell."""
_MILESTONES: Final = frozenset({*_BEGINS, Commit, Prepare, Keepalive})


class Stopped(Exception):
    """Raised by a sink whose writing is to be given up."""


class Consumer(Protocol):
    """What takes decoded messages: the pipeline."""

    shown: int
    end_lsn: int | None

    @property
    def inside(self) -> bool: ...
    def shorten(self, decoder: Decoder) -> None: ...
    def feed(self, message: AnyFrame, lsn: int | None, offset: int | None = None) -> None: ...
    def restart(self, *, gap: bool) -> None: ...
    def break_off(self) -> None: ...


class Sink(Protocol):
    """Where the output's bytes go."""

    stopped: bool

    def flush(self) -> None: ...
    def sync(self) -> None: ...


class Worker(threading.Thread):
    """Feeds the consumer until the spool is closed, `until` or `limit` is reached, or something is raised.

    Read by the main thread: `delivered` (everything up to this position was written and flushed, where `durable` to
    the disk), `position` (the same for what was decoded), `reached` (until or limit), `error`. `wake` is called when
    one of them changes.
    """

    def __init__(
        self,
        spool: Spool,
        consumer: Consumer,
        sink: Sink,
        decoder: Callable[[], Decoder],
        wake: Callable[[], None],
        *,
        position: int,
        durable: bool,
        until: int | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(name="output", daemon=True)
        self._spool = spool
        self._consumer = consumer
        self._sink = sink
        self._new_decoder = decoder
        self._decoder = decoder()
        consumer.shorten(self._decoder)
        self._wake = wake
        self._durable = durable
        self._until = until
        self._limit = limit
        self._inside = False
        self._synced = 0.0
        self.position = self.delivered = position
        self.reached: str | None = None
        self.error: BaseException | None = None
        self.ended = False
        self._ending = threading.Lock()
        self._closing = False

    def run(self) -> None:
        try:
            try:
                while self.reached is None and (frames := self._spool.take(BATCH)):
                    self._batch(frames)
            except Stopped:
                pass
            except (InputError, OptionError) as error:
                self.error = error  # what came before it is still written
            self._end()
        except Exception as error:  # noqa: BLE001 -- the main thread raises it
            self.error = self.error or error
        finally:
            self._spool.close()
            self.ended = True
            self._wake()

    @property
    def shown(self) -> int:
        """How many transactions were shown."""
        return self._consumer.shown

    def stop(self, seconds: float) -> bool:
        """Give up what has not been written; returns whether the thread has ended within so many seconds."""
        with self._ending:
            self._sink.stopped = not self._closing
        self._spool.close()
        self.join(seconds)
        return not self.is_alive()

    def restart(self, *, gap: bool, position: int) -> None:
        """The stream begins again at a position, behind a `gap` or not. Only to be called while the spool is idle."""
        self._decoder = self._new_decoder()
        self._inside = False
        self._consumer.restart(gap=gap)
        self._consumer.shorten(self._decoder)
        self.position = self.delivered = position

    def _batch(self, frames: bytes) -> None:
        """Decode and render frames, each behind its length: ordinary rows in runs, everything else one by one."""
        pos, end = 0, len(frames)
        while self.reached is None and (pos := self._after_rows(frames, pos)) < end:
            start = pos + _LENGTH.size
            pos = start + _LENGTH.unpack_from(frames, pos)[0]
            try:
                message, lsn, _ = self._decoder.frame(frames, start, pos)
            except DecodeError as error:
                raise error.located(f"the stream after {lsn_text(self.position)}", error.offset - start) from None
            if type(message) not in _MILESTONES:
                self._consumer.feed(message, lsn)
            else:
                self._milestone(message, lsn)
            if self._sink.stopped:
                raise Stopped
        self._deliver(now=self.reached is not None or self._spool.paused)

    def _after_rows(self, frames: bytes, pos: int) -> int:
        """Where the first frame starts that the short way does not take."""
        after = self._decoder.take_rows(frames, pos, len(frames), LENGTHS)
        if after > pos:
            self._inside = self._consumer.inside
            self.position = max(self.position, self._consumer.end_lsn or 0)
            if self._sink.stopped:
                raise Stopped
        return after

    def _milestone(self, message: AnyFrame, lsn: int | None) -> None:
        """A message that a position or the end of the work may hang on."""
        begins = _BEGINS.get(type(message))
        if begins is not None and self._until is not None and begins(message) > self._until:
            self.reached = "until"
            return
        self._consumer.feed(message, lsn)
        if isinstance(message, Begin | BeginPrepare):
            self._inside = True
            return
        if isinstance(message, Commit | Prepare):
            self._inside = False
        self._advance(message)
        if self._limit is not None and self._consumer.shown >= self._limit:
            self.reached = "limit"
        elif self._until is not None and self.position >= self._until:
            self.reached = "until"

    def _advance(self, message: AnyFrame) -> None:
        """Everything that was committed before this position has been here."""
        if self._inside:
            return
        position = self._consumer.end_lsn or 0
        if isinstance(message, Keepalive):
            position = message.end_lsn
        elif isinstance(message, Message) and not message.transactional:
            position = message.lsn
        self.position = max(self.position, position)

    def _deliver(self, *, now: bool) -> None:
        """Write; and report what was written, of files what reached the disk."""
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
        """Close well formed what is open, whoever ended it."""
        with self._ending:
            self._closing = True
            self._sink.stopped = False
        self._consumer.break_off()
        self._deliver(now=True)
