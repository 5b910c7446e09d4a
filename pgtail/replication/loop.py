"""The main loop of a session: reads the socket, sends statuses, shows progress; never waits for the output."""

from __future__ import annotations

import enum
import select
import time

from msgspec import Struct

from pgtail.errors import DecodeError, OutputError
from pgtail.log import TRACE, event, log_outcome, log_trace, log_trouble, logger
from pgtail.pgoutput.cursor import Cursor
from pgtail.pgoutput.frames import each
from pgtail.pgoutput.kinds import MESSAGES
from pgtail.pgoutput.scalars import lsn_text, time_text
from pgtail.pgoutput.walsender import Keepalive, StandbyStatusUpdate, XLogData
from pgtail.postgres.walsender import Session
from pgtail.replication.consumer import Consumer
from pgtail.replication.end_position import TICK, EndPosition
from pgtail.replication.feedback import Feedback
from pgtail.replication.identity import Identity
from pgtail.replication.plan import Publisher
from pgtail.replication.probe import Probe, TimelineProbe
from pgtail.replication.queue import FrameQueue


def received_text(frame: bytes) -> str:
    """A received frame: w and k with their fields, w with the kind of its message."""
    cursor = Cursor(frame, 1)
    try:
        if frame[:1] == b"w":
            data = XLogData.read(cursor)
            kind = MESSAGES.get(frame[cursor.pos]) if cursor.pos < len(frame) else None
            name = "?" if kind is None else kind.__name__
            size = len(frame) - cursor.pos
            return (
                f"w  start {lsn_text(data.start_lsn)}  end {lsn_text(data.end_lsn)}  clock {time_text(data.clock)}"
                f"  {name}, {size} bytes"
            )
        if frame[:1] == b"k":
            keepalive = Keepalive.read(cursor)
            return (
                f"k  end {lsn_text(keepalive.end_lsn)}  clock {time_text(keepalive.clock)}"
                f"  reply {keepalive.reply_requested}"
            )
    except DecodeError:
        pass
    return f"{frame[:1].decode('latin1')}  {len(frame)} bytes"


def sent_text(status: StandbyStatusUpdate) -> str:
    """A status update that was sent."""
    return (
        f"r  write {lsn_text(status.write_lsn)}  flush {lsn_text(status.flush_lsn)}  apply {lsn_text(status.apply_lsn)}"
        f"  clock {time_text(status.clock)}  reply {status.reply_requested}"
    )


class Ending(enum.Enum):
    """The reason why a session ends without an error."""

    STOP = "as requested"
    CLOSED = "the reader of the output is gone"
    FULL = "the queue is full"


class Limits(Struct, frozen=True):
    """When to end, and how much the queue may hold. Times in seconds, sizes in bytes; None means no limit."""

    seconds: float | None = None
    until: int | None = None
    """The position at which to end, if the server had it before the start."""
    until_passes: float | None = None
    """After this time the server's position becomes the one at which to end."""
    idle: float | None = None
    spill: int = 1 << 30
    output: int | None = None
    """The descriptor of a pipe or terminal; when its reader is gone, everything ends."""


class SessionLoop:
    """Runs sessions, one after another."""

    def __init__(
        self,
        publisher: Publisher,
        queue: FrameQueue,
        consumer: Consumer,
        timelines: TimelineProbe,
        end: EndPosition,
        limits: Limits,
    ) -> None:
        self._interrupt = publisher.interrupt
        self._show_line = publisher.show_status
        self._progress = publisher.progress
        self._lag = Probe(publisher.connector)
        self._queue = queue
        self._consumer = consumer
        self._timelines = timelines
        self._end = end
        self._limits = limits
        self._deadline = None if limits.seconds is None else time.monotonic() + limits.seconds
        self._asked = self._shown = 0.0

    @property
    def should_end(self) -> bool:
        """Whether everything should end: after a signal, a time limit, or when the consumer has ended."""
        return bool(
            self._interrupt.count
            or self._consumer.ended
            or (self._deadline is not None and time.monotonic() >= self._deadline)
        )

    def wait(self, seconds: float | None, done: FrameQueue | None = None) -> bool:
        """Wait this long, or until the queue `done` is idle. Returns False if everything should end."""
        until = None if seconds is None else time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._interrupt.fileno(), select.POLLIN)
        while not self.should_end:
            left = TICK if until is None else until - time.monotonic()
            if left <= 0 or (done is not None and done.idle):
                return True
            poll.poll(min(left, TICK) * 1000)
            self._interrupt.clear()
            self._progress.beat = time.monotonic()
        return False

    def run(self, session: Session, feedback: Feedback, caught_up: int) -> Ending:
        """Run one session. From the position `caught_up` on, silence counts as idle time.

        Raises ServerError, and Unreachable if the connection broke.
        """
        output, progress = self._limits.output, self._progress
        others = [(self._interrupt.fileno(), select.POLLIN)] + ([] if output is None else [(output, 0)])
        self._asked = time.monotonic()
        self._end.begin()
        poll_timeout = 0.0
        while True:
            frames, ready = session.next(others, poll_timeout)
            if frames:
                if not self._take_frames(frames, feedback):
                    return Ending.FULL
                session.check()
            if output in ready:
                return Ending.CLOSED
            if ready:
                self._interrupt.clear()
            now = time.monotonic()
            if self.should_end or self._is_idle(feedback, now, caught_up):
                return Ending.STOP
            self._send_status(session, feedback, now)
            self.server_changed(self._timelines.poll(self._consumer.position))
            self._end_at(self._end.poll(feedback, now))
            progress.beat, progress.heard, progress.flushed = now, feedback.last_frame, feedback.flushed
            progress.received = max(progress.received, feedback.received)
            self._show_status(feedback, now)
            poll_timeout = self._poll_timeout(session, feedback, now)

    def _end_at(self, position: int | None) -> None:
        if position is not None:
            self._consumer.end_at(position)

    def server_changed(self, identity: Identity | None) -> None:
        """Report and record a change of the server's timeline; None is no change."""
        if identity is not None:
            log_outcome(
                f"the server is on timeline {identity.timeline} now: it was promoted, or its primary was",
                extra=event("promoted", timeline=identity.timeline),
            )
            self._progress.timeline = identity.timeline
            self._consumer.server_changed(identity)

    def _take_frames(self, frames: bytes, feedback: Feedback) -> bool:
        """Queue the frames. Returns False if the queue is full."""
        if logger.isEnabledFor(TRACE):
            for frame in each(frames):
                log_trace(received_text(frame))
        end_lsn = feedback.take_frames(frames, time.monotonic(), self._end.since)
        self._progress.received_bytes += len(frames)
        if end_lsn is not None:
            self._end_at(self._end.reached(end_lsn))
        try:
            return self._queue.put(frames)
        except OutputError as error:
            log_trouble(str(error), extra=event("queue_failed"))
            return False

    def _send_status(self, session: Session, feedback: Feedback, now: float) -> None:
        feedback.delivered = self._consumer.acknowledged
        silent = now - max(self._asked, feedback.last_frame) > TICK
        ask = silent and (self._limits.idle is not None or self._end.asks or self._progress.watched)
        if session.wants_to_write or not (ask or feedback.next() <= now):
            return
        status = feedback.status(reply=ask)
        if not session.send(status):
            return
        feedback.sent(status, now)
        if ask:
            self._asked = now
        if logger.isEnabledFor(TRACE):
            log_trace(sent_text(status))

    def _poll_timeout(self, session: Session, feedback: Feedback, now: float) -> float:
        """Seconds to wait for the socket."""
        times = [] if session.wants_to_write else [feedback.next()]
        if self._deadline is not None:
            times.append(self._deadline)
        due = self._timelines.is_due(self._consumer.position)
        if (end_due := self._end.due(now)) is not None:
            times.append(end_due)
        if due or self._limits.idle is not None or self._wants_status or not times:
            times.append(now + TICK)
        return max(0.0, min(times) - now)

    def _is_idle(self, feedback: Feedback, now: float, caught_up: int) -> bool:
        idle = self._limits.idle
        return (
            idle is not None
            and now - feedback.last_data >= idle
            and feedback.received >= caught_up
            and self._queue.idle
        )

    @property
    def _wants_status(self) -> bool:
        return self._show_line is not None or self._progress.watched

    def _show_status(self, feedback: Feedback, now: float) -> None:
        """Update the status line, at most once per TICK; while data arrives only if the output wants that."""
        if not self._wants_status or now - self._shown < TICK:
            return
        shows = now - feedback.last_data >= TICK or self._consumer.status_always
        if not (shows or self._progress.watched):
            return
        self._shown = now
        self._lag.poll()
        if self._lag.answer is not None:
            self._progress.server_at(self._lag.answer, self._lag.asked)
        if shows and self._show_line is not None:
            self._show_line(self._progress.status(now))
