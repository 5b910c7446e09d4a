"""Floor 5, the thread that decodes frames and writes what is made of them.

Knows the pipeline and the sink by what they do only; what it has delivered is read by the main thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from pgtail.errors import DecodeError
from pgtail.server.copydata import AtOnce
from pgtail.server.framing import LENGTH
from pgtail.server.spool import Spool
from pgtail.server.taker import Stopped, Taker
from pgtail.server.words import count_text
from pgtail.wire.decoder import LENGTHS, AnyFrame, Decoder
from pgtail.wire.scalars import lsn_text
from pgtail.wire.stream import StreamCommit
from pgtail.wire.transaction import Begin, Commit, Message
from pgtail.wire.two_phase import BeginPrepare, CommitPrepared, Prepare, RollbackPrepared, StreamPrepare
from pgtail.wire.walsender import Keepalive

DIRECT: Final = 1024
"""Bytes of frames that are worth no other thread."""
_KIND: Final = 25
_LIGHT: Final = frozenset({b"B", b"C", b"O", b"R", b"Y", b"I", b"U", b"D", b"T", b"M"})
"""Messages, behind the head of a w frame, which ask for nothing that was kept."""
SYNC_PAUSE: Final = 1.0
"""Seconds between two fsyncs while more is coming."""


def _is_light(frames: bytes, start: int) -> bool:
    """Whether there is little to do for the frame that starts there, if little came before it in its transaction."""
    return frames.startswith(b"k", start) or frames[start + _KIND : start + _KIND + 1] in _LIGHT


def _after_keepalives(frames: bytes) -> int:
    """Where the first frame starts that is none, or the last one: it tells as much as those before it.

    The server sends one shortly before a commit, which is not to wait for it.
    """
    pos = 0
    while frames.startswith(b"k", pos + LENGTH.size):
        after = pos + LENGTH.size + LENGTH.unpack_from(frames, pos)[0]
        if after >= len(frames):
            break
        pos = after
    return pos


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


class Consumer(Protocol):
    """What takes decoded messages: the pipeline."""

    shown: int
    end_lsn: int | None

    @property
    def inside(self) -> bool: ...
    def shorten(self, decoder: Decoder) -> None: ...
    def ahead(self, write: Callable[[bytes], object]) -> Callable[[int, int, bytes], None] | None:
        """What takes rows of (pipe, most bytes, frames) ahead, where they would go to `write` now."""

    def feed(self, message: AnyFrame, lsn: int | None, offset: int | None = None) -> None: ...
    def restart(self, *, gap: bool) -> None: ...
    def break_off(self) -> None: ...


class Sink(Protocol):
    """Where the output's bytes go."""

    fd: int
    stopped: bool
    waits: bool
    """Whether it waits until bytes are written; else it keeps what is not taken at once until flush()."""

    @property
    def pending(self) -> int: ...
    @property
    def may_not_wait(self) -> bool: ...
    def write(self, data: bytes, /) -> None: ...
    def flush(self) -> None: ...
    def sync(self) -> None: ...


class Worker(Taker):
    """Feeds the consumer, up to `until` or until `enough` says so; what is delivered was flushed, where `durable` to
    the disk."""

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
        enough: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(spool, wake, position=position)
        self._consumer = consumer
        self._sink = sink
        self._new_decoder = decoder
        self._decoder = decoder()
        consumer.shorten(self._decoder)
        self._durable = durable
        self._until = until
        self._enough = enough
        self._inside = False
        self._most = DIRECT if sink.may_not_wait and not durable else 0
        self._left = self._most
        """Bytes that direct() may still take of the transaction under way: a Commit may show all that came before."""
        self._synced = 0.0
        self._ending = threading.Lock()
        self._closing = False

    def words(self) -> list[str]:
        """How many transactions were shown."""
        return [count_text(self._consumer.shown, "transaction")]

    def stop(self, seconds: float) -> bool:
        """As Taker's; what is being written is given up as well."""
        with self._ending:
            self._sink.stopped = not self._closing
        return super().stop(seconds)

    def restart(self, *, gap: bool, position: int) -> None:
        self._decoder = self._new_decoder()
        self._inside = False
        self._left = self._most
        self._consumer.restart(gap=gap)
        self._consumer.shorten(self._decoder)
        self.position = self.delivered = position

    def at_once(self) -> AtOnce | None:
        """As Taker's: what direct() will then do with these frames is half done, rows are taken and written.

        Outside of a transaction direct() takes as many bytes; while the spool is quiet nothing waits in the sink.
        """
        if self._inside or not self._most or not self._spool.quiet or self._sink.pending:
            return None
        ahead = self._consumer.ahead(self._sink.write)
        return None if ahead is None else partial(ahead, self._sink.fd, DIRECT)

    def direct(self, frames: bytes) -> bytes:
        """As Taker's: where the output is a pipe, which is not waited for."""
        if len(frames) > self._left or not self._spool.quiet:
            return frames
        taken, self._sink.waits = 0, False
        try:
            taken = self._render(frames, _after_keepalives(frames), light=True)
            if not self._sink.pending:
                self._deliver(now=True)
        except Exception as error:  # noqa: BLE001 -- run() raises it
            self._raised = error
        finally:
            self._sink.waits = True
        self._left = self._left - taken if self._inside else self._most
        if self._raised is not None or self.reached is not None:
            self._spool.close()
            return b""
        if self._sink.pending:
            self._spool.nudge()
        return frames[taken:]

    def _tick(self) -> None:
        self._deliver(now=True)

    def _batch(self, frames: bytes) -> None:
        self._render(frames)
        self._left = 0 if self._inside else self._most
        self._deliver(now=self.reached is not None or self._spool.paused)

    def _render(self, frames: bytes, pos: int = 0, *, light: bool = False) -> int:
        """Decode and render frames: ordinary rows in runs, everything else one by one; returns how far.

        `light`: up to the first one that may be much.
        """
        end = len(frames)
        while self.reached is None and (pos := self._after_rows(frames, pos)) < end:
            start = pos + LENGTH.size
            if light and not _is_light(frames, start):
                break
            pos = start + LENGTH.unpack_from(frames, pos)[0]
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
        return pos

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
        if self._enough is not None and self._enough():
            self.reached = "enough"
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
        if threading.current_thread() is self:
            self._wake()

    def _end(self) -> None:
        with self._ending:
            self._closing = True
            self._sink.stopped = False
        self._consumer.break_off()
        self._deliver(now=True)
