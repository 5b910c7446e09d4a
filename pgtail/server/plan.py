"""Floor 5, what was asked for against what the server says: refused before anything starts, or made into a plan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pgtail.errors import OptionError, ServerError
from pgtail.server import facts, forks, publications, slots
from pgtail.server.connection import Connection
from pgtail.server.facts import Publication, ServerFacts, Slot
from pgtail.server.options import Options, Wanted, check_two_phase, resolve
from pgtail.wire.scalars import lsn_text

Ack: TypeAlias = Literal["none", "commit", "exit"]
Place: TypeAlias = int | Literal["now"] | None
"""A position in the log, or the server's last one."""

_TOKEN = re.compile(r'"((?:[^"]|"")*)"|([^\s,()"]+)|(\()')


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for; None is what suits the slot. Times are in seconds, sizes in bytes."""

    slot: str | None = None
    create_slot: bool = False
    fork: str | None = None
    """The slot of which a temporary copy is read."""
    publications: tuple[str, ...] = ()
    wanted: Wanted = field(default_factory=Wanted)
    ack: Ack | None = None
    start: Place = None
    until: Place = None
    tables: tuple[str, ...] = ()
    yes: bool = False
    allow_missing_publication: bool = False
    encoding: str | None = None
    """Take text as the server stores it, without conversion to UTF8, and read it in this encoding."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is going to be done. `slot` is None where one is to be created, under the name `slot_name`."""

    server: ServerFacts
    slot: Slot | None
    slot_name: str
    temporary: bool
    fork: Slot | None
    """The slot that is copied to the temporary one, None where that one is made anew."""
    publications: list[Publication]
    options: Options
    ack: Ack
    start: int
    """The position to ask for; 0 is the slot's own."""
    until: int | None
    warnings: list[str]
    two_phase: bool
    """Whether a slot that is created decodes two-phase commits."""
    encoding: str | None
    allow_missing_publication: bool


def prepare(request: Request, connection: Connection) -> Plan:
    """Look at the server and decide. Raises OptionError and ServerError."""
    server = facts.server_facts(connection)
    check_decoding(server)
    fork = None if request.fork is None else forks.find(connection, request.fork, server, request.wanted)
    slot, name = _slot(request, connection, server)
    temporary = request.slot is None
    ack: Ack = request.ack or ("none" if slot is not None else "commit")
    if ack != "none":
        check_synchronous(connection, server)
    if fork is not None and request.start is None:
        forks.check_any_older(connection, fork)
    chosen = publications.choose(
        connection, request.publications, server, allow_missing=request.allow_missing_publication
    )
    warnings = publications.warnings(connection, chosen, request.tables)
    if fork is not None and request.start is None:
        warnings += forks.check_older(connection, fork, chosen)
    start, remarks = _start(request, server, slot or fork, acknowledging=slot is not None and ack != "none")
    until = server.position if request.until == "now" else request.until
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
        warnings=warnings + remarks,
        two_phase=request.wanted.two_phase,
        encoding=request.encoding,
        allow_missing_publication=request.allow_missing_publication,
    )


def _slot(request: Request, connection: Connection, server: ServerFacts) -> tuple[Slot | None, str]:
    """The slot to read, None if it is to be created; and its name."""
    if request.slot is not None and not request.create_slot:
        slot = slots.find(connection, request.slot, server)
        if request.wanted.two_phase and not slot.two_phase:
            raise OptionError(
                f"--two-phase: slot {slot.name} was created without it, and this would change it for good;"
                " name another one to be created"
            )
        return slot, slot.name
    if request.wanted.two_phase:
        check_two_phase(request.wanted, server.major)
    if request.slot is not None:
        slots.check_name(request.slot)
        if facts.slot(connection, request.slot) is not None:
            raise ServerError(
                f"slot {request.slot} exists already.", cure="Leave --create-slot away to read it as it is."
            )
    return None, request.slot or slots.temporary_name()


def check_decoding(server: ServerFacts) -> None:
    """Whether the server can decode at all. Raises ServerError."""
    if server.in_recovery and server.major < 16:
        raise ServerError(
            f"the server is a standby, and PostgreSQL {server.major} decodes on a primary only (16 and later on both).",
            cure="Connect to the primary.",
        )
    # From 19 on a server with wal_level replica turns logical decoding on when a slot is created.
    if server.wal_level != "logical" and not (server.major >= 19 and server.wal_level == "replica"):
        raise ServerError(
            f"the server's wal_level is {server.wal_level}: its WAL does not hold what logical decoding needs.",
            cure="As a superuser: ALTER SYSTEM SET wal_level = logical; and restart the server. On Amazon RDS set"
            " rds.logical_replication = 1.",
        )


def _start(request: Request, server: ServerFacts, slot: Slot | None, *, acknowledging: bool) -> tuple[int, list[str]]:
    """The position to ask for, and what is to be said about it."""
    if request.start is None or (request.start == "now" and slot is None):
        return 0, []
    start = server.position if request.start == "now" else request.start
    if start > server.position:
        raise OptionError(
            f"--from {lsn_text(start)} lies beyond the server's position, {lsn_text(server.position)}:"
            " the server would take it and skip everything up to there without a word"
        )
    confirmed = 0 if slot is None else slot.confirmed_flush_lsn or 0
    if start < confirmed:
        remark = (
            f"--from {lsn_text(start)} is older than what the slot still has: starting at {lsn_text(confirmed)},"
            " its confirmed_flush_lsn"
        )
        return 0, [remark]
    if slot is not None and acknowledging and start > confirmed and not request.yes:
        raise OptionError(
            f"--from {lsn_text(start)} together with --ack skips for good what the slot still holds from"
            f" {lsn_text(confirmed)} on, also for its other readers; --yes does it"
        )
    return start, []


def check_synchronous(connection: Connection, server: ServerFacts) -> None:
    """An acknowledging session must not become a synchronous standby: commits would wait for a terminal."""
    name = connection.info.parameter_status("application_name") or ""
    if not server.in_recovery and counts_as_standby(server.synchronous_standby_names, name):
        raise ServerError(
            f"acknowledging, pgtail ({name}) would count as a synchronous standby (synchronous_standby_names ="
            f" {server.synchronous_standby_names}): commits on the server would wait for it.",
            cure="Read without acknowledging (--ack none), or under another application_name that does not match"
            " (PGAPPNAME=...).",
        )


def counts_as_standby(names: str, application_name: str) -> bool:
    """Whether synchronous_standby_names takes a session of this name (src/backend/replication/syncrep.c)."""
    tokens = list(_TOKEN.finditer(names))
    opening = next((index for index, token in enumerate(tokens) if token[3]), -1)
    standbys = [token[2] or token[1].replace('""', '"') for token in tokens[opening + 1 :] if not token[3]]
    return any(standby == "*" or standby.lower() == application_name.lower() for standby in standbys)


def same_slot(name: str, slot: Slot | None, server: ServerFacts, resume: int) -> None:
    """Whether a slot may be gone on with after the connection was lost, at `resume`. Raises ServerError."""
    if slot is None:
        raise ServerError(f"slot {name} is gone.", cure=f"What was committed after {lsn_text(resume)} was not seen.")
    slots.check(slot, server)
    if server.position < resume:
        raise ServerError(
            f"the server's position, {lsn_text(server.position)}, lies before {lsn_text(resume)}, up to where it was"
            " read: it has lost WAL, or is another server.",
            cure="Look at the server first; what was shown may not exist there any more.",
        )
    confirmed = slot.confirmed_flush_lsn or 0
    if confirmed > resume:
        raise ServerError(
            f"gap from {lsn_text(resume)} to {lsn_text(confirmed)}: somebody else has consumed slot {slot.name}"
            " meanwhile.",
            cure="What was committed between these positions was not seen. To go on behind the gap:"
            f" --from {lsn_text(confirmed)} (pgtail record: --allow-gap)",
        )


def tables_in_words(chosen: Sequence[Publication]) -> str:
    """Publications with their number of tables."""
    return ", ".join([f"{one.name} ({one.tables} table{'s'[: one.tables != 1]})" for one in chosen])
