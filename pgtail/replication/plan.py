"""Checks a request against the server before anything starts, and turns it into a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from pgtail.changes.commit_range import MARGIN
from pgtail.errors import OptionError, ServerError
from pgtail.files.stopping import Wakeup
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres import catalog, publications, slot_copy, slots
from pgtail.postgres.catalog import Publication, ServerFacts, Slot
from pgtail.postgres.connection import Connection, Connector, application_name
from pgtail.postgres.pgoutput_options import Options, check_two_phase, resolve
from pgtail.replication.request import Ack, Request
from pgtail.service.progress import SlotProgress

_TOKEN = re.compile(r'"((?:[^"]|"")*)"|([^\s,()"]+)|(\()')


class Plan(Struct, frozen=True):
    """What will be done. `slot` is None if a slot named `slot_name` will be created."""

    server: ServerFacts
    slot: Slot | None
    slot_name: str
    temporary: bool
    fork: Slot | None
    """The slot to copy into the temporary slot; None to create the temporary slot from nothing."""
    publications: list[Publication]
    options: Options
    ack: Ack
    start: int
    """The position to request; 0 is the slot's own."""
    until: int | None
    until_passes: float | None
    """Seconds until the server's clock passes `until_time`; `until` is then the server's position at that time."""
    warnings: list[str]
    notes: list[str]
    two_phase: bool
    """Whether the slot to create decodes two-phase commits."""
    encoding: str | None
    allow_missing_publication: bool

    @property
    def source(self) -> Slot | None:
        """The slot whose changes are read, itself or through a copy; None if they begin with a new slot."""
        return self.slot or self.fork

    @property
    def decodes_two_phase(self) -> bool:
        """Whether the slot, existing or to be created, decodes two-phase commits."""
        return self.two_phase or (self.slot is not None and self.slot.two_phase)


class Publisher(Struct, frozen=True):
    """The server whose publications are read, as `plan` says. A request to stop arrives at `interrupt`.

    `show_status` replaces the status line by one with these parts, and does not block; None: there is no such line.
    """

    plan: Plan
    connector: Connector
    interrupt: Wakeup
    progress: SlotProgress
    show_status: Callable[[Sequence[str]], None] | None = None


def prepare(request: Request, connection: Connection) -> Plan:
    """Query the server and make a plan. Raises OptionError and ServerError."""
    server = catalog.server_facts(connection)
    slots.check_server(server)
    fork = None if request.fork is None else slot_copy.find(connection, request.fork, server, request.wanted)
    slot, name = _slot(request, connection, server)
    temporary = request.slot is None
    ack: Ack = request.ack or ("none" if slot is not None else "commit")
    if ack != "none":
        check_synchronous(connection, server)
    chosen = publications.choose(
        connection,
        request.publications,
        server,
        allow_missing=request.allow_missing_publication,
        temporary=temporary,
    )
    notes: list[str] = []
    unsure: list[str] = []
    if fork is not None and request.start is None:
        readable, unsure = slot_copy.check_older(connection, fork, chosen, named=bool(request.publications))
        if len(readable) < len(chosen):
            notes = [slot_copy.left_out(fork, [one for one in chosen if one not in readable])]
            chosen = readable
    all_of_them = not request.publications and len(chosen) > 1
    if all_of_them:
        words = "all publications" if not notes else "publications"
        notes.insert(0, f"reading {words}: {publications.in_words(chosen)}; -P selects")
    warnings = publications.warnings(connection, chosen, request.tables, all_of_them=all_of_them) + unsure
    start, remarks = _start(request, server, slot or fork, acknowledging=slot is not None and ack != "none")
    until, passes = _until(request, connection, server)
    return Plan(
        server=server,
        slot=slot,
        slot_name=name,
        temporary=temporary,
        fork=fork,
        publications=chosen,
        options=resolve(request.wanted, server.major, [publication.name for publication in chosen]),
        ack=ack,
        start=start,
        until=until,
        until_passes=passes,
        warnings=warnings + remarks,
        notes=notes,
        two_phase=request.wanted.two_phase,
        encoding=request.encoding,
        allow_missing_publication=request.allow_missing_publication,
    )


def _until(request: Request, connection: Connection, server: ServerFacts) -> tuple[int | None, float | None]:
    """The position at which to end, and in how many seconds it will be known."""
    if request.until_time is None:
        return server.position if request.until == "now" else request.until, None
    seconds = (request.until_time + MARGIN - catalog.clock(connection)) / 1_000_000
    return (server.position, None) if seconds < 0 else (None, seconds)


def _slot(request: Request, connection: Connection, server: ServerFacts) -> tuple[Slot | None, str]:
    if request.slot is not None and not request.create_slot:
        slot = slots.find_readable(connection, request.slot, server)
        if request.wanted.two_phase and not slot.two_phase:
            raise OptionError(
                f"--two-phase: slot {slot.name} was created without it, and this would change the slot permanently;"
                " name a new slot to create"
            )
        return slot, slot.name
    if request.wanted.two_phase:
        check_two_phase(request.wanted, server.major)
    if request.slot is not None:
        slots.check_name(request.slot)
        if catalog.slot(connection, request.slot) is not None:
            raise ServerError(f"slot {request.slot} exists already.", cure="To read it, omit --create-slot.")
    return None, request.slot or slots.temporary_name()


def _start(request: Request, server: ServerFacts, slot: Slot | None, *, acknowledging: bool) -> tuple[int, list[str]]:
    """The position to request, and warnings about it."""
    if request.start is None or (request.start == "now" and slot is None):
        return 0, []
    start = server.position if request.start == "now" else request.start
    if start > server.position:
        raise OptionError(
            f"--startpos {lsn_text(start)} is beyond the server's position, {lsn_text(server.position)}:"
            " the server would accept it and silently skip everything up to there"
        )
    confirmed = 0 if slot is None else slot.confirmed
    if start < confirmed:
        remark = (
            f"--startpos {lsn_text(start)} is before the slot's confirmed_flush_lsn: starting there, at"
            f" {lsn_text(confirmed)}"
        )
        return 0, [remark]
    if slot is not None and acknowledging and start > confirmed and not request.yes:
        raise OptionError(
            f"--startpos {lsn_text(start)} together with --ack permanently skips what the slot has from"
            f" {lsn_text(confirmed)} on, also for its other readers; --yes confirms this"
        )
    return start, []


def check_synchronous(connection: Connection, server: ServerFacts) -> None:
    """Check that an acknowledging session would not count as a synchronous standby. Raises ServerError.

    Commits on the server would wait for it.
    """
    name = application_name(connection)
    if not server.in_recovery and counts_as_standby(server.synchronous_standby_names, name):
        raise ServerError(
            f"if it acknowledges, pgtail ({name}) counts as a synchronous standby (synchronous_standby_names ="
            f" {server.synchronous_standby_names}): commits on the server would wait for it.",
            cure="Read without acknowledging (pgtail stream --ack none), or use an application_name that does not match"
            " (PGAPPNAME=...).",
        )


def counts_as_standby(names: str, application_name: str) -> bool:
    """Whether synchronous_standby_names matches a session of this name (src/backend/replication/syncrep.c)."""
    tokens = list(_TOKEN.finditer(names))
    opening = next((index for index, token in enumerate(tokens) if token[3]), -1)
    standbys = [token[2] or token[1].replace('""', '"') for token in tokens[opening + 1 :] if not token[3]]
    return any(standby == "*" or standby.lower() == application_name.lower() for standby in standbys)


class ConsumedElsewhere(ServerError):
    """Another client has consumed the slot after a connection was lost."""


def check_resume(name: str, slot: Slot | None, server: ServerFacts, resume: int) -> None:
    """Check that a slot can be read from `resume` on after a lost connection. Raises ServerError."""
    if slot is None:
        raise ServerError(
            f"slot {name} is gone.",
            cure=f"Changes committed after {lsn_text(resume)} were not read. To continue after the gap, create it again"
            f" (pgtail slot create {name}), or use pgtail record --allow-gap",
        )
    slots.check_readable(slot, server)
    if server.position < resume:
        raise ServerError(
            f"the server's position, {lsn_text(server.position)}, is before {lsn_text(resume)}, up to which it was"
            " read: it has lost WAL, or it is another server.",
            cure="Check the server first. Changes that were shown may no longer exist there.",
        )
    if slot.confirmed > resume:
        raise ConsumedElsewhere(
            f"gap from {lsn_text(resume)} to {lsn_text(slot.confirmed)}: another client has consumed slot {slot.name},"
            " or it was dropped and created again.",
            cure="Changes committed between these positions were not read. To continue after the gap: pgtail stream"
            f" --startpos {lsn_text(slot.confirmed)}, or pgtail record --allow-gap",
        )
