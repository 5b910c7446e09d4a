"""The slot that a run reads, on its server: creates, copies and drops it, opens its sessions, asks for its position."""

from __future__ import annotations

import time
from typing import Final

from pgtail.errors import COMMAND, ServerError
from pgtail.humanize import size_text
from pgtail.log import event, log_detail, log_outcome, log_trace, log_trouble, logger
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres import catalog, publications, slot_copy, slots
from pgtail.postgres.catalog import Slot
from pgtail.postgres.connection import Connection
from pgtail.postgres.errors import server_error
from pgtail.postgres.walsender import Session
from pgtail.replication.plan import Publisher, check_resume, check_synchronous
from pgtail.terminal.escape import escape

_ATTEMPT: Final = 10
"""Seconds for an attempt to connect again, where the user does not say how long."""


class FollowedSlot:
    """The slot of the publisher's plan.

    `name` changes with each session of a temporary slot; `server` is the server's identity before the session.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._plan = plan = publisher.plan
        self._connector = publisher.connector
        self._interrupt = publisher.interrupt
        self.name = plan.slot_name
        self.server = plan.server

    # -- sessions ----------------------------------------------------------------------------------------------

    def connect(self) -> Session:
        """A session that does not read the slot yet. Raises ServerError."""
        session = Session.open(self._connector, self._interrupt, self._plan.encoding)
        session.on_notice(self._notice)
        return session

    def create(self, session: Session, *, export: bool = False) -> slots.NewSlot:
        """Create the slot, or copy another one into it. Raises ServerError."""
        plan = self._plan
        if plan.fork is not None:
            return slots.NewSlot(slot_copy.copy(session, plan.fork.name, self.name), None)
        creation = slots.Creation(
            self._connector, self.name, temporary=plan.temporary, two_phase=plan.two_phase, export=export
        )
        created = creation.create_in(session, self.server)
        if not plan.temporary:
            log_outcome(
                f"slot {self.name} was created. {slots.retains(self.name)}",
                extra=event("slot_created", slot=self.name),
            )
        return created

    def start(self, session: Session, lsn: int) -> None:
        """Start the stream; with 0, from the slot's own position on. Raises ServerError."""
        command = self._plan.options.start_replication(self.name, lsn)
        log_trace(command)
        session.start(command)

    def limit_attempts(self) -> None:
        """Let each later attempt to connect end after a while."""
        self._connector = self._connector.attempt(_ATTEMPT)

    def check_again(self, resume: int) -> int:
        """Check, before another session, that the slot can be read from `resume` on; returns the slot's position.

        A temporary slot must be created again: it gets another name. Raises ServerError.
        """
        plan = self._plan
        with self._interrupt.raising(), self._connector.ordinary() as connection:
            self.server = catalog.server_facts(connection)
            if plan.ack != "none":
                check_synchronous(connection, self.server)
            slot = None if plan.temporary else catalog.slot(connection, self.name)
        if plan.temporary:
            self.name = slots.temporary_name()  # the old one may exist until the server notices that we are gone
            return resume
        check_resume(self.name, slot, self.server, resume)
        return 0 if slot is None else slot.confirmed

    def drop(self) -> None:
        """Drop the slot, or say why not: after a copy of its tables that is not complete, it is of no use."""
        try:
            with self._connector.without_asking().ordinary() as connection:
                slot = catalog.slot(connection, self.name)
                if slot is not None:
                    slots.drop(connection, slot)
                    log_outcome(f"slot {self.name} was dropped again: the copy of the tables is not complete")
        except ServerError as error:  # the error that ended the copy is raised
            logger.warning(
                f"slot {self.name} was not dropped again ({error.reason.removesuffix('.')}), and retains WAL:"
                f"{COMMAND}pgtail slot drop {self.name}"
            )

    def _notice(self, severity: str, sqlstate: str, text: str) -> ServerError | None:
        """Handle a notice of the server. A returned error ends the stream.

        Since PostgreSQL 18, a publication that does not exist at the slot's position only causes a warning, and
        nothing of it is sent.
        """
        missing = "skipped loading publication" in text or (severity, sqlstate) == ("WARNING", "55000")
        if missing and not self._plan.allow_missing_publication:
            return server_error(sqlstate, text)
        notice = f"the server says: {escape(severity)}: {escape(text)}"
        log_outcome(notice, extra=event("notice", severity=severity))
        return None

    # -- the position --------------------------------------------------------------------------------------------

    def report_confirmed(self, written: int) -> None:
        """Report the slot's position after a session whose last acknowledgement was not confirmed."""
        try:
            with self._connector.without_asking().ordinary(connect_timeout=3) as connection:
                slot = _when_free(connection, self.name)
        except ServerError:
            self.report_unconfirmed()
            return
        confirmed = 0 if slot is None else slot.confirmed
        if confirmed < written:
            log_trouble(
                f"the slot's position is {lsn_text(confirmed)}, but everything up to {lsn_text(written)} was written:"
                " what is between will be sent again",
                extra=event("not_acknowledged", confirmed=lsn_text(confirmed), written=lsn_text(written)),
            )

    def report_unconfirmed(self) -> None:
        log_trouble("the server did not confirm the last acknowledgement", extra=event("not_acknowledged"))

    # -- descriptions --------------------------------------------------------------------------------------------

    def selection(self) -> tuple[str, str | None]:
        """The command and option that select the slot, and the slot's name unless it is temporary."""
        plan = self._plan
        if plan.fork is not None:
            return f"pgtail stream --fork {plan.fork.name}", plan.fork.name
        return f"pgtail stream --slot {self.name}", None if plan.temporary else self.name

    def report_start(self, start: int) -> None:
        plan, server = self._plan, self.server
        kind = "temporary slot" if plan.temporary else "new slot" if plan.slot is None else "slot"
        tables = publications.in_words(plan.publications)
        log_detail(f"{kind} {self.name}, publication {tables}, from {lsn_text(start)} on")
        log_detail(f"acknowledging: {plan.ack}; {self._kept()}")
        where = f"{server.address}, database {server.database}; {server.encryption}"
        logger.debug(f"PostgreSQL {server.version_text} at {escape(where)}")
        logger.debug(f"starting at {lsn_text(start)}, {size_text(max(0, server.position - start))} behind the server")
        restart_lsn = None if plan.source is None else plan.source.restart_lsn
        if restart_lsn is not None and restart_lsn < start:
            size = size_text(start - restart_lsn)
            logger.debug(f"the server reads {size} of WAL before the first row, from {lsn_text(restart_lsn)} on")
        logger.debug(f"options: {plan.options.words()}")
        if plan.slot is not None:
            logger.debug("while pgtail runs, no other client can read the slot")

    def _kept(self) -> str:
        """The state of the slot after the session."""
        plan = self._plan
        if plan.fork is not None:
            return f"a copy of {slot_copy.described(plan.fork)}, which itself is untouched"
        if plan.temporary:
            return "the slot ends with pgtail"
        moves = {"none": "does not move", "commit": "follows what is written", "exit": "moves when pgtail ends"}
        return f"the slot {moves[plan.ack]}"


def _when_free(connection: Connection, name: str) -> Slot | None:
    """The slot after our walsender has released it, at most a second later."""
    deadline = time.monotonic() + 1
    while True:
        slot = catalog.slot(connection, name)
        if slot is None or slot.active_pid is None or time.monotonic() > deadline:
            return slot
        time.sleep(0.02)
