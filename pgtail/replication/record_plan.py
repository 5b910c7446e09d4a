"""Recording a slot into a capture: checks that one continues the other, and describes the capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtail.capture.format import COMPLETE, DUMPS, TIMELINE
from pgtail.changes.complete_tables import CompleteTables
from pgtail.errors import OptionError, ServerError
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres import catalog
from pgtail.postgres.catalog import Slot
from pgtail.postgres.connection import Connection
from pgtail.postgres.pgoutput_options import Options
from pgtail.postgres.publications import flags
from pgtail.replication.identity import Identity
from pgtail.replication.plan import Plan, prepare
from pgtail.replication.request import Request
from pgtail.terminal.escape import escape

SLOT: Final = "pgtail.slot"
PUBLICATIONS: Final = "pgtail.publications"
OPTIONS: Final = "pgtail.options"
SYSTEM: Final = "pgtail.system_identifier"
STARTED: Final = "pgtail.postmaster_start_time"


class RecordedCapture(Struct, frozen=True):
    """An existing capture to continue: it is complete up to `position`; `head` describes how it was recorded.

    `copied`: whether it has copies of tables that are not newer than that.
    """

    directory: str
    position: int
    head: Mapping[str, str]
    copied: bool = False

    @property
    def server(self) -> tuple[Identity, int] | None:
        """The server that it was recorded from, and up to where; None if unknown."""
        system, timeline = self.head.get(SYSTEM), self.head.get(TIMELINE, "")
        if not (system and timeline.isdecimal()):
            return None
        return Identity(system, int(timeline), self.head.get(STARTED, "")), self.position


def prepare_recording(request: Request, known: RecordedCapture, connection: Connection, *, allow_gap: bool) -> Plan:
    """Like plan.prepare(), but creates a missing slot. Raises OptionError, and ServerError for a gap."""
    assert request.slot is not None
    slot = catalog.slot(connection, request.slot)
    _check_position(known, connection)
    if not allow_gap:
        _check_follows(request.slot, slot, known)
    confirmed = None if slot is None else slot.confirmed
    start = known.position if confirmed is not None and known.position > confirmed else None
    plan = prepare(replace(request, create_slot=slot is None, start=start, yes=True), connection)
    if not allow_gap:
        _check_publications(plan.options.publications, known, connection)
        _check_options(plan.options, known)
    if known.position and (confirmed is None or confirmed > known.position):
        start_text = "the start of the new slot" if confirmed is None else lsn_text(confirmed)
        cure = "; --snapshot-table '*' copies the tables again" if known.copied else ""
        plan.warnings.append(
            f"the capture has a gap: it lacks what was committed between {lsn_text(known.position)} and"
            f" {start_text}{cure}"
        )
    return plan


def head_of(plan: Plan, identity: Identity, complete: CompleteTables | None = None) -> dict[str, str]:
    """How the frames are produced, for the head of each segment, and which tables' changes are complete, if known."""
    return {
        "server_version": plan.server.version_text,
        "server_encoding": plan.server.encoding,
        "client_encoding": plan.encoding or ("SQL_ASCII" if plan.server.encoding == "SQL_ASCII" else "UTF8"),
        "pgtail.database": plan.server.database,
        SLOT: plan.slot_name,
        PUBLICATIONS: ",".join(plan.options.publications),
        "pgtail.proto_version": str(plan.options.proto_version),
        OPTIONS: plan.options.words(),
        "pgtail.two_phase": "on" if plan.decodes_two_phase else "off",
        COMPLETE: "" if complete is None else complete.text(),
        **head_of_server(identity),
    }


def head_of_server(identity: Identity) -> dict[str, str]:
    """Which server the frames are from: a later run checks that it continues the same history."""
    return {SYSTEM: identity.system, TIMELINE: str(identity.timeline), STARTED: identity.started}


def _check_position(known: RecordedCapture, connection: Connection) -> None:
    """Check that the server is not behind the capture; --allow-gap does not change that. Raises ServerError."""
    if known.position and DUMPS in known.head:
        raise OptionError(
            f"the capture in {known.directory} was made from dumps: name another directory to record a slot"
        )
    server = catalog.server_facts(connection)
    if server.position < known.position:
        raise ServerError(
            f"the capture in {known.directory} goes up to {lsn_text(known.position)}, but this server only to"
            f" {lsn_text(server.position)}: it is another server, or it was restored from a backup.",
            cure="Name another directory, or connect to the server that was recorded. (If this is a standby, it may"
            " only lag a little: then try again.)",
        )


def _check_publications(names: Sequence[str], known: RecordedCapture, connection: Connection) -> None:
    """Check that no publication of the capture is left out: its changes would be lost. Raises OptionError."""
    read = ",".join(names).split(",")  # as the head has them: a name may have a comma
    left_out = [name for name in known.head.get(PUBLICATIONS, "").split(",") if name and name not in read]
    if not left_out:
        return
    there = {one.name for one in catalog.publications(connection)}
    gone = [name for name in left_out if name not in there]
    why = "does not exist any more, or has another name: " if gone else f"would be left out: add {flags(left_out)}, "
    raise OptionError(
        f"the capture in {known.directory} is of publication {escape((gone or left_out)[0])}, which {why}name another"
        " directory and slot, or continue without its changes with --allow-gap"
    )


def _check_options(options: Options, known: RecordedCapture) -> None:
    """Check that options do not leave out what the capture has: it would be lost. Raises OptionError."""
    had, now = (words.split(", ") for words in (known.head.get(OPTIONS, ""), options.words()))
    for word, option, changes in (
        ("messages on", "--no-messages", "logical messages"),
        ("origin any", "--origin none", "changes that were replicated from elsewhere"),
    ):
        if word in had and word not in now:
            raise OptionError(
                f"the capture in {known.directory} has {changes}, which {option} would leave out: leave out {option},"
                " name another directory and slot, or continue without them with --allow-gap"
            )


def _check_follows(name: str, slot: Slot | None, known: RecordedCapture) -> None:
    recorded = known.head.get(SLOT)
    if recorded is not None and recorded != name:
        raise OptionError(
            f"the capture in {known.directory} is of slot {escape(recorded)}, not {name}: name another directory, or"
            " continue anyway with --allow-gap"
        )
    if not known.position:
        return
    cure = "Name another directory for a new capture, or continue after the gap with --allow-gap."
    if slot is None:
        raise ServerError(
            f"slot {name} does not exist (any more), and the capture in {known.directory} ends at"
            f" {lsn_text(known.position)}: it lacks what was committed after that.",
            cure=cure,
        )
    if slot.confirmed > known.position:
        raise ServerError(
            f"gap from {lsn_text(known.position)}, where the capture in {known.directory} ends, to"
            f" {lsn_text(slot.confirmed)}, the position of slot {name}: another client has consumed it, or the end of"
            " the capture is lost.",
            cure=cure,
        )
