"""Floor 5, a slot recorded into a capture: whether the one continues the other, and how the capture is described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pgtail.captures.framing import DUMPS
from pgtail.errors import OptionError, ServerError
from pgtail.server import facts
from pgtail.server.connection import Connection
from pgtail.server.facts import Slot
from pgtail.server.identity import Identity
from pgtail.server.plan import Plan, Request, prepare
from pgtail.wire.scalars import lsn_text

SLOT, SYSTEM, TIMELINE = "pgtail.slot", "pgtail.system_identifier", "pgtail.timeline"


@dataclass(frozen=True, slots=True)
class Known:
    """A capture that is gone on with: up to `position` it has everything; `head` says how its frames were made."""

    directory: str
    position: int
    head: Mapping[str, str]

    @property
    def identity(self) -> Identity | None:
        """The server that it was recorded from."""
        system, timeline = self.head.get(SYSTEM), self.head.get(TIMELINE, "")
        return Identity(system, int(timeline)) if system and timeline.isdecimal() else None


def prepare_recording(request: Request, known: Known, connection: Connection, *, allow_gap: bool) -> Plan:
    """As plan.prepare(); the slot is created where it is missing. Raises OptionError, and ServerError for a gap."""
    assert request.slot is not None
    slot = facts.slot(connection, request.slot)
    _check_position(known, connection)
    if not allow_gap:
        _check_follows(request.slot, slot, known)
    stands = None if slot is None else slot.confirmed_flush_lsn or 0
    start = known.position if stands is not None and known.position > stands else None
    plan = prepare(replace(request, create_slot=slot is None, start=start, yes=True), connection)
    if known.position and (stands is None or stands > known.position):
        begins = "where the new slot begins" if stands is None else lsn_text(stands)
        plan.warnings.append(
            f"the capture gets a gap: what was committed between {lsn_text(known.position)} and {begins} is not in it"
        )
    return plan


def head_of(plan: Plan, identity: Identity) -> dict[str, str]:
    """How the frames are made, for the beginning of each segment."""
    two_phase = plan.two_phase or (plan.slot is not None and plan.slot.two_phase)
    return {
        "server_version": plan.server.version_text,
        "server_encoding": plan.server.encoding,
        "client_encoding": plan.encoding or ("SQL_ASCII" if plan.server.encoding == "SQL_ASCII" else "UTF8"),
        "pgtail.database": plan.server.database,
        SLOT: plan.slot_name,
        "pgtail.publications": ",".join(plan.options.publications),
        "pgtail.proto_version": str(plan.options.proto_version),
        "pgtail.options": plan.options.words(),
        "pgtail.two_phase": "on" if two_phase else "off",
        SYSTEM: identity.system,
        TIMELINE: str(identity.timeline),
    }


def _check_position(known: Known, connection: Connection) -> None:
    """Whether the server is as far as the capture: else its positions say something else, whatever gap is allowed."""
    if known.position and DUMPS in known.head:
        raise OptionError(f"the capture in {known.directory} was made of dumps: name another directory for a slot")
    server = facts.server_facts(connection)
    if server.position < known.position:
        raise ServerError(
            f"the capture in {known.directory} goes up to {lsn_text(known.position)}, and this server only to"
            f" {lsn_text(server.position)}: it is another one, or was restored from a backup.",
            cure="Name another directory for it, or connect to the server that the capture is of. (A standby may only"
            " be a little behind: then try again.)",
        )


def _check_follows(name: str, slot: Slot | None, known: Known) -> None:
    if not known.position:
        return
    recorded = known.head.get(SLOT)
    if recorded is not None and recorded != name:
        raise OptionError(
            f"the capture in {known.directory} is of slot {recorded}, not {name}: name another directory, or go on all"
            " the same with --allow-gap"
        )
    cure = "Name another directory for a new capture, or go on behind the gap with --allow-gap."
    if slot is None:
        raise ServerError(
            f"slot {name} does not exist (any more), and the capture in {known.directory} ends at"
            f" {lsn_text(known.position)}: what was committed after that is not in it.",
            cure=cure,
        )
    confirmed = slot.confirmed_flush_lsn or 0
    if confirmed > known.position:
        raise ServerError(
            f"gap from {lsn_text(known.position)}, where the capture in {known.directory} ends, to"
            f" {lsn_text(confirmed)}, where slot {name} stands: somebody else has consumed it, or the capture"
            " has lost its end.",
            cure=cure,
        )
