"""Floor 5, the main loop of one session: read, whatever the output does; answer the server; watch the clock."""

from __future__ import annotations

import enum
import select
import time
from dataclasses import dataclass
from typing import Final, Protocol

from pgtail.errors import OutputError
from pgtail.server import trace
from pgtail.server.feedback import Feedback
from pgtail.server.framing import each
from pgtail.server.interrupt import Interrupt
from pgtail.server.lag import LagProbe
from pgtail.server.session import Session
from pgtail.server.spool import Spool
from pgtail.server.taker import Taker
from pgtail.server.words import size_text
from pgtail.wire.scalars import lsn_text

_TICK: Final = 1.0
"""Seconds between two looks at what changes by itself: idleness, the status line."""


class Voice(Protocol):
    """What is told to a person; none of it may ever wait."""

    wants_status: bool
    wants_trace: bool

    def tell(self, text: str, /) -> None: ...
    def detail(self, text: str, /) -> None: ...
    def trace(self, text: str, /) -> None: ...
    def status(self, text: str, /) -> None: ...


class Ending(enum.Enum):
    """Why a session ends without an error."""

    STOP = "as asked"
    CLOSED = "nobody reads the output any more"
    FULL = "no more may wait for the output"


@dataclass(frozen=True, slots=True)
class Limits:
    """When to end, and how much may wait. Times in seconds, sizes in bytes; None is without end."""

    seconds: float | None = None
    idle: float | None = None
    spill: int = 1 << 30
    output: int | None = None
    """The descriptor of a pipe or terminal whose closing ends everything."""


class Pump:
    """Runs sessions, one at a time, until one of them ends."""

    def __init__(
        self, spool: Spool, worker: Taker, interrupt: Interrupt, voice: Voice, lag: LagProbe, limits: Limits
    ) -> None:
        self._spool = spool
        self._worker = worker
        self._interrupt = interrupt
        self._voice = voice
        self._lag = lag
        self._limits = limits
        self._deadline = None if limits.seconds is None else time.monotonic() + limits.seconds
        self._asked = self._shown = 0.0

    @property
    def over(self) -> bool:
        """Whether everything is to end: a signal, the time is up, or the worker has what it wanted."""
        return bool(
            self._interrupt.count
            or self._worker.ended
            or (self._deadline is not None and time.monotonic() >= self._deadline)
        )

    def wait(self, seconds: float | None, done: Spool | None = None) -> bool:
        """Wait so long, or until the spool `done` is idle; False where everything is to end."""
        until = None if seconds is None else time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._interrupt.fileno(), select.POLLIN)
        while not self.over:
            left = _TICK if until is None else until - time.monotonic()
            if left <= 0 or (done is not None and done.idle):
                return True
            poll.poll(min(left, _TICK) * 1000)
            self._interrupt.clear()
        return False

    def run(self, session: Session, feedback: Feedback, caught_up: int) -> Ending:
        """Pump one session; `caught_up` is the position from which on silence is idleness.

        Raises ServerError, Unreachable where the connection broke.
        """
        output = self._limits.output
        others = [(self._interrupt.fileno(), select.POLLIN)] + ([] if output is None else [(output, 0)])
        self._asked = time.monotonic()
        patience = 0.0
        while True:
            frames, ready = session.next(others, patience, self._worker.at_once())
            if frames:
                if not self._take(frames, feedback):
                    return Ending.FULL
                session.check()
            if output in ready:
                return Ending.CLOSED
            if ready:
                self._interrupt.clear()
            now = time.monotonic()
            if self.over or self._is_idle(feedback, now, caught_up):
                return Ending.STOP
            self._tell_server(session, feedback, now)
            self._show_status(feedback, now)
            patience = self._patience(session, feedback, now)

    def _take(self, frames: bytes, feedback: Feedback) -> bool:
        """Take what has come; False where no more may wait."""
        if self._voice.wants_trace:
            for frame in each(frames):
                self._voice.trace(trace.received(frame))
        rest = self._worker.direct(frames)
        feedback.take(frames, time.monotonic())
        return not rest or self._put(rest)

    def _put(self, frames: bytes) -> bool:
        try:
            return self._spool.put(frames)
        except OutputError as error:
            self._voice.tell(str(error))
            return False

    def _tell_server(self, session: Session, feedback: Feedback, now: float) -> None:
        """Send a status if one is due."""
        feedback.delivered = self._worker.delivered
        ask = self._limits.idle is not None and now - max(self._asked, feedback.last_frame) > _TICK
        if session.wants_to_write or not (ask or feedback.next() <= now):
            return
        status = feedback.status(reply=ask)
        if not session.send(status):
            return
        feedback.sent(status, now)
        if ask:
            self._asked = now
        if self._voice.wants_trace:
            self._voice.trace(trace.sent(status))

    def _patience(self, session: Session, feedback: Feedback, now: float) -> float:
        """How long the socket may be waited for."""
        times = [] if session.wants_to_write else [feedback.next()]
        if self._deadline is not None:
            times.append(self._deadline)
        if self._limits.idle is not None or self._voice.wants_status or not times:
            times.append(now + _TICK)
        return max(0.0, min(times) - now)

    def _is_idle(self, feedback: Feedback, now: float, caught_up: int) -> bool:
        idle = self._limits.idle
        return (
            idle is not None
            and now - feedback.last_data >= idle
            and feedback.received >= caught_up
            and self._spool.idle
        )

    def _show_status(self, feedback: Feedback, now: float) -> None:
        """The line that a person sees while nothing comes."""
        if not self._voice.wants_status or now - self._shown < _TICK:
            return
        if now - feedback.last_data < _TICK and not self._worker.status_always:
            return
        self._shown = now
        self._lag.look()
        words = [lsn_text(feedback.received or self._worker.delivered)]
        if self._lag.position is not None:
            words.append(f"lag {size_text(max(0, self._lag.position - feedback.received))}")
        words += self._worker.words()
        if self._spool.waiting:
            words.append(f"{size_text(self._spool.waiting)} wait for the output")
        self._voice.status(" · ".join(words))
