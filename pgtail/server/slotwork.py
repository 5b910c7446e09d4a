"""Floor 5, what `pgtail slot` does to slots: made, dropped, moved on and copied, each only as told; asks nobody.

Functions: src/backend/replication/slotfuncs.c.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable
from typing import Literal

from pgtail.errors import OptionError, ServerError
from pgtail.server import facts, slots
from pgtail.server.connection import Connection, Connector
from pgtail.server.facts import ServerFacts, Slot
from pgtail.server.interrupt import Interrupt
from pgtail.server.options import Wanted, check_two_phase
from pgtail.server.plan import check_decoding
from pgtail.server.session import Session
from pgtail.wire.scalars import lsn_text, parse_lsn

_COPY_SINCE = 12
_FAILOVER_SINCE = 17


class Creation:
    """A slot that is created on a session of its own. A context; with `temporary` the slot ends with it."""

    def __init__(
        self,
        connector: Connector,
        name: str,
        *,
        temporary: bool = False,
        two_phase: bool = False,
        failover: bool = False,
    ) -> None:
        self._connector = connector
        self._name = name
        self._temporary = temporary
        self._two_phase = two_phase
        self._failover = failover

    def prepare(self) -> ServerFacts:
        """Look at the server, and whether it can be done. Raises OptionError and ServerError."""
        slots.check_name(self._name)
        if self._temporary and self._failover:
            raise OptionError("--failover: a temporary slot ends with its session, no standby can take it over")
        with self._connector.ordinary() as connection:
            server = facts.server_facts(connection)
            check_decoding(server)
            if self._two_phase:
                check_two_phase(Wanted(two_phase=True), server.major)
            if self._failover and server.major < _FAILOVER_SINCE:
                raise OptionError(f"--failover needs PostgreSQL {_FAILOVER_SINCE} or later; this is {server.major}")
            _check_new(connection, self._name)
        return server

    def create(self, interrupt: Interrupt, server: ServerFacts, tell: Callable[[str], None]) -> tuple[Session, int]:
        """The session that made it, and the slot's first position. Raises ServerError and KeyboardInterrupt."""
        with interrupt.raising():
            connection = self._connector.replication()
        session = Session(connection, interrupt)
        try:
            point = slots.create(
                session,
                self._connector,
                self._name,
                server,
                temporary=self._temporary,
                two_phase=self._two_phase,
                failover=self._failover,
                tell=tell,
            )
        except BaseException:
            session.close()
            raise
        return session, point


def exists(connector: Connector, name: str) -> bool:
    """Whether there is a slot of this name. Raises ServerError."""
    with connector.without_asking().ordinary() as connection:
        return facts.slot(connection, name) is not None


def hold(session: Session, interrupt: Interrupt) -> None:
    """Keep a session, and with it its temporary slots, until a request to stop. Raises Unreachable if it breaks."""
    poll = select.poll()
    poll.register(session.fileno(), select.POLLIN)
    poll.register(interrupt.fileno(), select.POLLIN)
    while not interrupt.count:
        for fd, _ in poll.poll():
            if fd == interrupt.fileno():
                interrupt.clear()
            else:
                with contextlib.suppress(KeyboardInterrupt):
                    session.query("IDENTIFY_SYSTEM")  # takes what came, or says why the connection ended


def drop(connection: Connection, slot: Slot) -> None:
    """Drop a slot. Raises ServerError."""
    connection.execute("SELECT pg_drop_replication_slot(%s)", (slot.name,))


def droppable(connection: Connection, name: str) -> Slot:
    """The slot of this name, which nobody reads. Raises ServerError."""
    slot = slots.existing(connection, name)
    slots.check_free(
        connection,
        slot,
        cure=f"Stop it first (SELECT pg_terminate_backend({slot.active_pid}); it may come back at once): what it has"
        " not read would be lost to it.",
    )
    return slot


def target(connection: Connection, slot: Slot, place: int | Literal["now"]) -> int:
    """Where a slot is to be moved on to. Raises OptionError and ServerError where it cannot be."""
    server = facts.server_facts(connection)
    if slot.database not in (None, server.database):
        raise ServerError(
            f"slot {slot.name} belongs to database {slot.database}, this is {server.database}.",
            cure=f"Connect to that one: -d {slot.database}",
        )
    if server.major < 11:
        raise ServerError("PostgreSQL moves slots on from version 11 on.")
    to = server.position if place == "now" else place
    stands = slot.restart_lsn if slot.physical else slot.confirmed_flush_lsn
    if stands is None:
        raise ServerError(f"slot {slot.name} has no position yet: there is nothing to move on.")
    if to < stands:
        raise OptionError(
            f"{lsn_text(to)} lies before {lsn_text(stands)}, where slot {slot.name} stands: it cannot go back"
        )
    if to > server.position:
        raise OptionError(f"{lsn_text(to)} lies beyond the server's position, {lsn_text(server.position)}")
    return to


def advance(connection: Connection, slot: Slot, to: int) -> int:
    """Move a slot on; returns where it stands then, which may be a little before `to`. Raises ServerError."""
    query = "SELECT end_lsn::text FROM pg_replication_slot_advance(%s, %s::pg_lsn)"
    [(end,)] = connection.execute(query, (slot.name, lsn_text(to))).fetchall()
    return parse_lsn(end)


def copy(connection: Connection, source: str, name: str) -> tuple[Slot, Slot]:
    """Copy a slot to a permanent one, while it is in use or not; returns both. Raises OptionError and ServerError."""
    slots.check_name(name)
    server = facts.server_facts(connection)
    check_copy(server)
    slot = slots.existing(connection, source)
    if not slot.physical:
        slots.check_decodable(slot, server)
    _check_new(connection, name)
    kind = "physical" if slot.physical else "logical"
    connection.execute(f"SELECT pg_copy_{kind}_replication_slot(%s, %s, false)".encode(), (source, name))
    return slot, slots.existing(connection, name)


def check_copy(server: ServerFacts) -> None:
    """Whether the server copies slots. Raises ServerError."""
    if server.major < _COPY_SINCE:
        raise ServerError(f"PostgreSQL copies slots from version {_COPY_SINCE} on; this is {server.major}.")


def _check_new(connection: Connection, name: str) -> None:
    if facts.slot(connection, name) is not None:
        raise ServerError(f"slot {name} exists already.", cure="Choose another name, or drop it: pgtail slot drop.")
