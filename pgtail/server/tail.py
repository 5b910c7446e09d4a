"""Floor 5, the tail of a slot: sessions one after another, what is checked between them, and a good end.

The main thread runs this and the pump; the worker thread decodes and writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from pgtail.errors import ServerError
from pgtail.server import facts, forks, slots, trace
from pgtail.server.connection import Connection, Connector
from pgtail.server.cures import Unreachable, server_error
from pgtail.server.facts import Slot
from pgtail.server.feedback import Feedback
from pgtail.server.identity import Identity, check_same
from pgtail.server.interrupt import Interrupt
from pgtail.server.lag import LagProbe
from pgtail.server.plan import Plan, check_synchronous, same_slot, tables_in_words
from pgtail.server.pump import Ending, Limits, Pump, Voice
from pgtail.server.session import Session
from pgtail.server.spool import Spool
from pgtail.server.taker import Taker
from pgtail.server.words import size_text
from pgtail.wire.scalars import lsn_text

DRAIN: Final = 2.0
"""Seconds that the end of a session may take where something was acknowledged."""
_OUTPUT_PAUSE: Final = 1.0
"""Seconds that the output gets to finish what it is at, once everything ends."""
_BACKOFF: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

MakeTaker = Callable[[Spool, int, Identity], Taker]
"""Makes the thread that takes from the spool; with the position at which all starts, and the server's identity."""


class Tail:
    """One run over as many sessions as it takes. `reconnect` None: only where nothing is lost by it.

    `known` is the identity that the server must have, where an earlier run is gone on with, and up to where that read.
    `ready` is told from which position on everything will be seen, as soon as that is so.
    """

    def __init__(
        self,
        plan: Plan,
        connector: Connector,
        interrupt: Interrupt,
        voice: Voice,
        limits: Limits,
        make_taker: MakeTaker,
        *,
        reconnect: bool | None = None,
        known: tuple[Identity, int] | None = None,
        ready: Callable[[int], None] | None = None,
    ) -> None:
        self._plan = plan
        self._connector = connector
        self._interrupt = interrupt
        self._voice = voice
        self._limits = limits
        self._make_taker = make_taker
        self._ready = ready
        self._reconnect = not plan.temporary if reconnect is None else reconnect
        self._spool = Spool(limits.spill)
        self._lag = LagProbe(connector)
        self._server = plan.server
        self._known = known
        self._slot = plan.slot_name
        self.resume: int | None = None

    def run(self) -> Ending:
        """Tail until something ends it; `resume` is then the position to resume from, None if nothing began.

        Raises ServerError, what the worker raised, and KeyboardInterrupt where it was stopped before it began.
        """
        session: Session | None = self._begin()
        ending = Ending.STOP
        self._worker.start()
        try:
            session, ending = self._sessions(session)
        except ServerError:
            session = None
            raise
        finally:
            self._worker.stop(_OUTPUT_PAUSE)
            self.resume = self._worker.delivered
            if session is not None:
                self._part(session, good=ending is Ending.STOP and self._worker.error is None)
        if self._worker.error is not None:
            raise self._worker.error
        return ending

    # -- sessions ----------------------------------------------------------------------------------------------

    def _begin(self) -> Session:
        """The first session, up to the start of its stream."""
        plan = self._plan
        session = self._connect()
        try:
            if self._known is None:
                self._identity = Identity.of(session)
            else:
                before, read = self._known
                self._identity = check_same(before, session, read, standby=plan.server.in_recovery)
            position = self._create(session) if plan.slot is None else plan.slot.confirmed_flush_lsn or 0
            start = max(plan.start, position)
            if 0 < plan.start < start:
                self._voice.tell(f"--from is older than the slot: starting at {lsn_text(start)}")
            self._worker = self._make_taker(self._spool, start, self._identity)
            self._pump = Pump(self._spool, self._worker, self._interrupt, self._voice, self._lag, self._limits)
            self._first_words(start)
            self._start(session, plan.start, told=position)
            if self._ready is not None:
                self._ready(start)
        except BaseException:
            session.close()
            raise
        return session

    def _sessions(self, session: Session | None) -> tuple[Session | None, Ending]:
        """Pump one session after another; returns the last one if it is still open, and why it ended."""
        current = session
        while current is not None:
            why: Unreachable | None = None
            try:
                ending = self._pump.run(current, self._feedback, self._server.position)
                if ending is not Ending.FULL:
                    return current, ending
                self._tell_full()
            except Unreachable as error:
                why = error
            except ServerError:
                current.close()
                self._pump.wait(None, self._spool)
                raise
            current.close()
            current = self._resume(why)
        return None, Ending.STOP

    def _resume(self, why: Unreachable | None) -> Session | None:
        """Go on after a lost connection, or after a full spool; None where everything is to end."""
        if why is not None and self._reconnect:
            self._voice.tell(f"{why.reason}; connecting again")
        if not self._pump.wait(None, self._spool):
            return None
        if not self._reconnect:
            raise self._lost(why)
        attempt = 0
        while self._pump.wait(0 if why is None else _BACKOFF[min(attempt, len(_BACKOFF) - 1)]):
            try:
                return self._reopen()
            except Unreachable as error:
                if why is None or error.reason != why.reason:
                    self._voice.tell(f"{error.reason}; trying again")
                why = error
            except KeyboardInterrupt:
                break
            attempt += 1
        return None

    def _reopen(self) -> Session:
        """Connect again and go on where the output stands. Raises ServerError where that would not be right."""
        self._worker.settle()
        plan, resume, standby = self._plan, self._worker.delivered, self._server.in_recovery
        with self._interrupt.raising(), self._connector.ordinary() as connection:
            self._server = facts.server_facts(connection)
            if plan.ack != "none":
                check_synchronous(connection, self._server)
            slot = facts.slot(connection, self._slot)
        if plan.temporary:
            self._slot = slots.temporary_name()  # the old one may live as long as the server does not miss us
        else:
            same_slot(self._slot, slot, self._server, resume)
        session = self._connect()
        try:
            self._identity = check_same(self._identity, session, resume, standby=standby)
            made = self._create(session) if plan.temporary else resume
            position = max(made, resume)  # a copy of a slot may begin before what was read
            self._worker.restart(gap=position > resume, position=position)
            self._start(session, position, told=made if plan.fork is not None else _confirmed(slot, position))
        except BaseException:
            session.close()
            raise
        if position > resume:
            self._voice.tell(
                f"GAP: what was committed between {lsn_text(resume)} and {lsn_text(position)} was not seen"
            )
        else:
            self._voice.tell(f"connected again, going on at {lsn_text(position)}")
        return session

    def _connect(self) -> Session:
        with self._interrupt.raising():
            connection = self._connector.replication(passthrough=self._plan.encoding is not None)
        session = Session(connection, self._interrupt, encoding=self._plan.encoding or "utf-8")
        session.on_notice(self._notice)
        return session

    def _create(self, session: Session) -> int:
        plan = self._plan
        if plan.fork is not None:
            return forks.copy(session, plan.fork.name, self._slot)
        position = slots.create(
            session,
            self._connector,
            self._slot,
            self._server,
            temporary=plan.temporary,
            two_phase=plan.two_phase,
            tell=self._voice.tell,
        )
        if not plan.temporary:
            self._voice.tell(
                f"slot {self._slot} was created: it stays, and holds WAL, until pgtail slot drop {self._slot}"
            )
        return position

    def _start(self, session: Session, lsn: int, *, told: int) -> None:
        command = self._plan.options.start_replication(self._slot, lsn)
        self._voice.trace(command)
        session.start(command)
        self._feedback = Feedback(
            acknowledge=self._plan.ack == "commit",
            told=told,
            sender_timeout=self._server.sender_timeout,
            now=time.monotonic(),
        )

    def _notice(self, severity: str, sqlstate: str, text: str) -> ServerError | None:
        """What the server says besides the stream, and whether that ends it.

        From 18 on a publication that does not exist at the slot's position is a warning, and silence.
        """
        missing = "skipped loading publication" in text or (severity, sqlstate) == ("WARNING", "55000")
        if missing and not self._plan.allow_missing_publication:
            return server_error(sqlstate, text)
        self._voice.tell(f"the server says: {severity}: {text}")
        return None

    # -- the end -----------------------------------------------------------------------------------------------

    def _part(self, session: Session, *, good: bool) -> None:
        """Close the last session; where something is acknowledged that outlives it, in good order."""
        self._feedback.delivered = self._worker.delivered
        clean = True
        if self._plan.ack != "none" and not self._plan.temporary:
            clean = self._acknowledge(session, last=good)
        session.close()
        if not clean:
            self._tell_what_the_slot_holds()

    def _acknowledge(self, session: Session, *, last: bool) -> bool:
        """The last status, then CopyDone: a status before a mere close gets lost in mid-backlog (measured)."""
        status = self._feedback.status(last=last)
        try:
            if not session.send(status):
                return False
        except ServerError:
            return False
        self._voice.trace(trace.sent(status))
        return session.finish(DRAIN)

    def _tell_what_the_slot_holds(self) -> None:
        delivered = self._worker.delivered
        try:
            with self._connector.without_asking().ordinary(patience=3) as connection:
                slot = _when_free(connection, self._slot)
        except ServerError:
            self._voice.tell("the server did not confirm the last acknowledgement")
            return
        confirmed = _confirmed(slot, 0)
        if confirmed < delivered:
            self._voice.tell(
                f"the slot holds {lsn_text(confirmed)}, written was up to {lsn_text(delivered)}: what lies between will"
                " be sent again"
            )

    def _lost(self, why: Unreachable | None) -> ServerError:
        resume = lsn_text(self._worker.delivered)
        reason = "the output did not keep up" if why is None else why.reason
        if self._plan.temporary:
            return ServerError(
                f"{reason}. The temporary slot is gone with its session: what was committed after {resume} was not"
                " seen.",
                cure="A slot of its own (--slot NAME --create-slot) outlives that; --reconnect goes on behind the gap.",
            )
        return ServerError(f"{reason}. Everything up to {resume} was written.", cure="Start again to go on from there.")

    # -- words -------------------------------------------------------------------------------------------------

    def _tell_full(self) -> None:
        self._voice.tell(
            f"the output does not keep up, {size_text(self._spool.waiting)} wait for it: the replication connection is"
            f" closed until they are written, everything up to {lsn_text(self._worker.delivered)} is"
        )

    def _first_words(self, start: int) -> None:
        plan, server, say = self._plan, self._server, self._voice.detail
        kind = "temporary slot" if plan.temporary else "new slot" if plan.slot is None else "slot"
        say(f"PostgreSQL {server.version_text} at {server.address}, database {server.database}")
        say(f"{kind} {self._slot}, acknowledging: {plan.ack}")
        if plan.fork is not None:
            say(f"it is a copy of {forks.described(plan.fork)} and ends with pgtail; the original is not touched")
        say(f"starting at {lsn_text(start)}, {size_text(max(0, server.position - start))} behind the server")
        read = plan.slot or plan.fork
        if read is not None and read.restart_lsn is not None:
            size = max(0, start - read.restart_lsn)
            say(f"{size_text(size)} of WAL are read before the first row, from {lsn_text(read.restart_lsn)} on")
        say(f"publication {tables_in_words(plan.publications)}")
        say(f"options: {plan.options.words()}")
        if plan.slot is not None:
            say("the slot is in use meanwhile: nobody else can read it")


def _when_free(connection: Connection, name: str) -> Slot | None:
    """The slot once our walsender has left it, or as it is after a second."""
    deadline = time.monotonic() + 1
    while True:
        slot = facts.slot(connection, name)
        if slot is None or slot.active_pid is None or time.monotonic() > deadline:
            return slot
        time.sleep(0.02)


def _confirmed(slot: Slot | None, otherwise: int) -> int:
    return otherwise if slot is None else slot.confirmed_flush_lsn or 0
