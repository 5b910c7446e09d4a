"""Following a slot: opens sessions one after another, checks the server between them, and ends in good order.

The main thread runs this and the session loop; the consumer thread decodes and writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from pgtail.errors import ServerError
from pgtail.humanize import size_text
from pgtail.log import event, log_outcome, log_trace, log_trouble
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres import catalog
from pgtail.postgres.errors import CredentialsRefused, Internal, Unreachable
from pgtail.postgres.walsender import Session
from pgtail.replication import decoding_errors
from pgtail.replication.consumer import Consumer
from pgtail.replication.end_position import TICK, EndPosition
from pgtail.replication.feedback import Feedback
from pgtail.replication.followed_slot import FollowedSlot
from pgtail.replication.identity import Identity, check_same, identify
from pgtail.replication.loop import Ending, Limits, SessionLoop, sent_text
from pgtail.replication.plan import Publisher
from pgtail.replication.probe import Probe, TimelineProbe
from pgtail.replication.queue import FrameQueue
from pgtail.replication.snapshot import Exported
from pgtail.replication.stream_snapshot import StreamSnapshot
from pgtail.service.progress import SILENCE

_DRAIN: Final = 2.0
"""Maximum seconds for ending a session in which something was acknowledged."""
_DRAIN_SILENT: Final = 0.5
"""The same for a server that did not answer when it was asked before."""
_OUTPUT_PAUSE: Final = 1.0
"""Seconds for the output to finish its current write at the end."""
_ANSWER_PAUSE: Final = 1.0
"""Seconds to wait at the end for a standby to answer which timeline it is on."""
_BACKOFF: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

MakeConsumer = Callable[[FrameQueue, int, Identity], Consumer]
"""Makes the consumer for this queue, start position and server."""


class Tail:
    """One run over as many sessions as necessary. `reconnect` None: reconnect only if nothing is lost by it.

    `known` continues an earlier run: the server that it read, and the position it reached. `snapshot` copies tables
    where the slot to create begins, before the stream. `ready` is called with the start position, once every later
    commit is sure to be received: when the slot is read, or before the tables are copied.
    """

    def __init__(
        self,
        publisher: Publisher,
        limits: Limits,
        make_consumer: MakeConsumer,
        *,
        reconnect: bool | None = None,
        known: tuple[Identity, int] | None = None,
        snapshot: StreamSnapshot | None = None,
        ready: Callable[[int], None] | None = None,
    ) -> None:
        self._publisher = publisher
        self._plan = plan = publisher.plan
        self._slot = slot = FollowedSlot(publisher)
        self._snapshot = snapshot
        connector = publisher.connector
        self._interrupt = interrupt = publisher.interrupt
        self._progress = publisher.progress
        self._limits = limits
        self._make_consumer = make_consumer
        self._ready = ready
        self._reconnect = not plan.temporary if reconnect is None else reconnect
        self._queue = self._progress.queue = FrameQueue(limits.spill)
        waiting = Probe(connector, lambda connection: catalog.waiting_for_wal(connection, slot.name), pause=TICK)
        self._end = EndPosition(limits.until, limits.until_passes, Probe(connector), waiting)
        self._timelines = TimelineProbe(connector, interrupt.wake)
        self._known = known
        self._repeated = decoding_errors.RepeatedFailure()
        self.resume: int | None = None
        self.copied = True
        """Whether the copy of the tables was complete, if there was one."""

    def run(self) -> Ending:
        """Follow the slot to the end. `resume` is then the position to resume from, None if nothing was started.

        Raises ServerError, what the consumer raised, and KeyboardInterrupt if it was stopped before the start.
        """
        session: Session | None = self._begin()
        ending = Ending.STOP
        try:
            session, ending = self._sessions(session)
        except ServerError:
            session = None
            raise
        finally:
            self._progress.stopping = True
            self._consumer.stop(_OUTPUT_PAUSE)
            if self._consumer.tracks_server and self._consumer.ended and self._consumer.error is None:
                self._loop.server_changed(self._timelines.ask(_ANSWER_PAUSE))
            self.resume = self._consumer.acknowledged
            if session is not None:
                self._close_session(session, good=ending is Ending.STOP and self._consumer.error is None)
        if self._consumer.error is not None:
            raise self._consumer.error
        return ending

    def end_now(self) -> None:
        """End once everything was received that is committed now. Any thread may call it."""
        self._end.now()
        self._interrupt.wake()

    # -- sessions ----------------------------------------------------------------------------------------------

    def _begin(self) -> Session | None:
        """Open the first session, copy tables if wanted, and start the stream and the consumer.

        Returns None if the tables are all that is wanted, or if everything should end.
        """
        plan, copied = self._plan, None
        session = self._slot.connect()
        try:
            self._timelines.identity = identity = identify(session.query, self._known)
            if plan.slot is None:
                created = self._slot.create(session, export=self._snapshot is not None)
                position = created.consistent_point
                if created.snapshot is not None:
                    copied = Exported(self._publisher, session, created, identity)
            else:
                position = plan.slot.confirmed
            start = max(plan.start, position)
            if 0 < plan.start < start:
                log_outcome(f"--startpos is before the slot's position: starting at {lsn_text(start)}")
            self._consumer = self._progress.output = self._make_consumer(self._queue, start, identity)
            self._timelines.wanted = self._reconnect or self._consumer.tracks_server
            self._loop = SessionLoop(
                self._publisher, self._queue, self._consumer, self._timelines, self._end, self._limits
            )
            self._slot.report_start(start)
            if copied is not None:
                if self._ready is not None:
                    self._ready(start)
                with self._progress.copying_tables():
                    self._copy(copied)
                return self._follow_copy(session, copied)
            self._start(session, plan.start, flushed=position)
            if self._ready is not None:
                self._ready(start)
        except BaseException:
            session.close()
            raise
        self._consumer.start()
        return session

    def _copy(self, source: Exported) -> None:
        """Copy tables at the slot's consistent point; without them the slot is of no use, and is dropped.

        Raises ServerError, OutputError, KeyboardInterrupt.
        """
        assert self._snapshot is not None
        self._consumer.start()
        try:
            point = self._snapshot.copy(source, self._queue, self._consumer, lambda: self._check_exporting(source))
            if self._consumer.error is not None:
                raise self._consumer.error
        except BaseException:
            self.copied = False
            self._consumer.stop(_OUTPUT_PAUSE)
            if not self._plan.temporary:
                self._slot.drop()
            raise
        if self._plan.until is not None and self._loop.wait(None, self._queue):  # every table ends at the same LSN
            self._consumer.end_at(max(self._plan.until, source.lsn))
        self._snapshot.end(point, self._queue)

    def _needs_stream(self, source: Exported) -> bool:
        """Whether the stream is wanted after the tables."""
        return self._plan.until is None or self._plan.until > source.lsn

    def _check_exporting(self, source: Exported) -> None:
        """Raise ServerError if the exporting session was lost, and with it what is to follow the tables.

        A permanent slot stays, and the copy has its snapshot.
        """
        if not self._needs_stream(source) or self._reconnect:
            return
        error = source.lost()
        if error is not None:
            cure = "A copy without what follows (--until now), or with a permanent slot (--slot NAME --create-slot),"
            cure += " does not need this session."
            raise ServerError(
                f"{error.reason}: this was the session of the new slot, without which nothing can follow the tables.",
                cure=cure if error.cure is None else f"{error.cure} {cure}",
            )

    def _follow_copy(self, session: Session, source: Exported) -> Session | None:
        """Start the stream after the tables, on another session if this one was lost."""
        if not self._needs_stream(source):
            self._loop.wait(None)  # until the consumer has ended
            session.close()
            return None
        lost = source.lost()
        if lost is None:
            try:
                self._start(session, self._plan.start, flushed=source.lsn)
            except Unreachable as error:
                lost = error
            else:
                return session
        session.close()
        self._loop.wait(None, self._queue)
        if not self._reconnect:
            self._consumer.stop(_OUTPUT_PAUSE)
            raise self._lost_error(lost)
        self._report_lost(lost)
        return self._resume(None)

    def _sessions(self, session: Session | None) -> tuple[Session | None, Ending]:
        """Run one session after another; returns the last one, if it is still open, and why it ended."""
        current = session
        while current is not None:
            why: Unreachable | None = None
            try:
                ending = self._loop.run(current, self._feedback, self._slot.server.position)
                if ending is not Ending.FULL:
                    return current, ending
                self._report_full()
                self._progress.lost("the output does not keep up")
            except Unreachable as error:
                why = error
            except ServerError as error:
                current.close()
                self._loop.wait(None, self._queue)
                if isinstance(error, Internal):
                    consumer = self._consumer
                    raise decoding_errors.failed(
                        error, consumer.delivered, consumer.commits_at, *self._slot.selection()
                    ) from None
                raise
            current.close()
            current = self._resume(why)
        return None, Ending.STOP

    def _resume(self, why: Unreachable | None) -> Session | None:
        """Reconnect after a lost connection or a full queue; returns None if everything should end."""
        if why is not None and self._reconnect:
            self._report_lost(why)
        if not self._loop.wait(None, self._queue):
            return None
        self._slot.limit_attempts()
        if not self._reconnect:
            raise self._lost_error(why)
        if why is not None:
            self._count_failure(why, caught_up=self._feedback.received >= self._slot.server.position)
        last: ServerError | None = why
        attempt = 0
        while self._loop.wait(0 if last is None else _BACKOFF[min(attempt, len(_BACKOFF) - 1)]):
            try:
                return self._reopen()
            except (Unreachable, CredentialsRefused) as error:  # libpq reads files with passwords again
                if last is None or error.reason != last.reason:
                    first, _, _ = error.reason.partition("\n")  # libpq adds hints to it
                    log_trouble(f"{first.removesuffix('.')}; trying again", extra=event("reconnection_failed"))
                    self._progress.lost(first)
                last = error
            except (KeyboardInterrupt, SystemExit):  # the latter at a password prompt
                break
            attempt += 1
        return None

    def _reopen(self) -> Session:
        """Connect again and continue after what was delivered. Raises ServerError if that is not possible."""
        self._consumer.deliver_complete()
        resume = self._consumer.delivered
        flushed = self._slot.check_again(resume)
        session = self._slot.connect()
        self._progress.reconnections += 1
        try:
            self._timelines.identity = identity = check_same(self._timelines.identity, session.query, resume)
            if self._plan.temporary:
                flushed = self._slot.create(session).consistent_point
            position = max(flushed, resume)  # a copy of a slot may start before what was read
            self._consumer.restart(gap=position > resume, position=position)
            self._consumer.server_changed(identity)
            self._start(session, position, flushed=flushed)
        except BaseException:
            session.close()
            raise
        if position > resume:
            self._progress.gaps += 1
            log_trouble(
                f"GAP: changes committed between {lsn_text(resume)} and {lsn_text(position)} were not read",
                extra=event("gap", start=lsn_text(resume), end=lsn_text(position)),
            )
        else:
            at = lsn_text(position)
            log_outcome(f"connected again, continuing at {at}", extra=event("reconnected", position=at))
        return session

    def _count_failure(self, why: Unreachable, *, caught_up: bool) -> None:
        """Count a broken session. Raises ServerError if several broke at the same position."""
        option, slot = self._slot.selection()
        error = self._repeated.add(why, self._consumer.delivered, caught_up=caught_up, option=option, slot=slot)
        if error is not None:
            raise error

    def _start(self, session: Session, lsn: int, *, flushed: int) -> None:
        try:
            self._slot.start(session, lsn)
        except Unreachable as error:
            self._count_failure(error, caught_up=False)
            raise
        self._feedback = Feedback(
            acknowledge=self._plan.ack == "commit",
            flushed=flushed,
            sender_timeout=self._slot.server.sender_timeout,
            now=time.monotonic(),
        )
        self._progress.followed(time.monotonic())
        self._progress.timeline = self._timelines.identity.timeline

    # -- the end -----------------------------------------------------------------------------------------------

    def _close_session(self, session: Session, *, good: bool) -> None:
        """Close the last session; in good order if it acknowledges positions of a permanent slot."""
        self._feedback.delivered = self._consumer.acknowledged
        clean = True
        if self._plan.ack != "none" and not self._plan.temporary:
            clean = self._acknowledge(session, last=good)
        session.close()
        if not clean and self._is_silent:
            self._slot.report_unconfirmed()
        elif not clean:
            self._slot.report_confirmed(self._consumer.acknowledged)

    @property
    def _is_silent(self) -> bool:
        """Whether the server sends nothing: it would not answer a query either."""
        return time.monotonic() - self._feedback.last_frame > SILENCE

    def _acknowledge(self, session: Session, *, last: bool) -> bool:
        """Send the last status, then CopyDone: a plain close during a backlog loses the status (measured)."""
        status = self._feedback.status(last=last)
        try:
            if not session.send(status):
                return False
        except ServerError:
            return False
        log_trace(sent_text(status))
        return session.finish(_DRAIN_SILENT if self._progress.watched and self._is_silent else _DRAIN)

    # -- messages -------------------------------------------------------------------------------------------------

    def _report_lost(self, why: ServerError) -> None:
        self._progress.lost(why.reason)
        log_trouble(f"{why.reason}; connecting again", extra=event("connection_lost"))

    def _lost_error(self, why: ServerError | None) -> ServerError:
        resume = lsn_text(self._consumer.delivered)
        reason = "the output did not keep up" if why is None else why.reason
        if self._plan.temporary:
            return ServerError(
                f"{reason}. The temporary slot ended with its session: changes committed after {resume} were not read.",
                cure="A permanent slot (pgtail slot create NAME, then --slot NAME) avoids this; --reconnect continues"
                " after the gap.",
            )
        return ServerError(
            f"{reason}. Everything up to {resume} was written.", cure="Run it again to continue from there."
        )

    def _report_full(self) -> None:
        log_trouble(
            f"the output does not keep up: {size_text(self._queue.waiting)} are queued, everything up to"
            f" {lsn_text(self._consumer.delivered)} is written; the replication connection is closed until the queue is"
            " empty",
            extra=event("queue_full"),
        )
