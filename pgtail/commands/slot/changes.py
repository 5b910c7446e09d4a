"""`pgtail slot create`, `drop`, `advance` and `copy`: shows possible losses, and asks for confirmation first."""

from __future__ import annotations

from typing import Literal

from pgtail.commands.connect import connector_of
from pgtail.commands.console.question import check_terminal, confirm
from pgtail.commands.options.common import NOT_DONE
from pgtail.commands.options.server import ChangeOptions, ConnectionOptions, CreateOptions
from pgtail.commands.output.file_sink import put
from pgtail.files.stopping import Interrupt, begin
from pgtail.humanize import seconds_text, size_text
from pgtail.log import log_outcome
from pgtail.pgoutput.scalars import lsn_text
from pgtail.postgres import catalog, slot_report, slots
from pgtail.postgres.catalog import Slot
from pgtail.postgres.connection import Connection
from pgtail.terminal.escape import escape


def create(options: CreateOptions, name: str) -> None:
    """Create a slot; keep a temporary one until Ctrl-C. Raises OptionError and ServerError."""
    connector, temporary = connector_of(options.connection), options.temporary
    creation = slots.Creation(
        connector, name, temporary=temporary, two_phase=options.two_phase, failover=options.failover
    )
    with Interrupt() as interrupt:
        try:
            with interrupt.raising():
                server = creation.prepare()
            session, (point, _) = creation.create(interrupt, server)
        except KeyboardInterrupt:
            # The server may have created it before it received the request to cancel.
            created = slots.exists(connector, name)
            log_outcome(f"stopped: slot {name} {'exists, and stays' if created else 'was not created'}")
            raise SystemExit(1) from None
        try:
            if not temporary:  # first, because the slot exists even if the position cannot be written
                log_outcome(f"slot {name} was created. {slots.retains(name)}")
            put(lsn_text(point))
            if temporary:
                log_outcome(f"temporary slot {name} exists, and retains WAL, until Ctrl-C")
                slots.hold(session, interrupt)
        finally:
            session.close()


def drop(options: ChangeOptions, name: str) -> None:
    """Drop a slot; --yes skips the question. Raises ServerError, and OptionError without a terminal to ask on."""
    begin()
    with connector_of(options.connection).ordinary() as connection:
        slot = slots.changeable(connection, name)
        if _is_settled(options, connection, slot, "Drop it", "dropped"):
            return
        slots.drop(connection, slot)
        log_outcome(f"slot {name} was dropped")


def advance(options: ChangeOptions, name: str, to: int | Literal["now"]) -> None:
    """Advance a slot; --yes skips the question. Raises ServerError and OptionError."""
    begin()
    with connector_of(options.connection).ordinary() as connection:
        slot = slots.changeable(connection, name)
        target = slots.target(connection, slot, to)
        to_there = f"to {lsn_text(target)}"
        if _is_settled(options, connection, slot, f"Advance it {to_there}", f"advanced {to_there}"):
            return
        put(lsn_text(slots.advance(connection, slot, target)))


def copy(options: ConnectionOptions, source: str, name: str) -> None:
    """Copy a slot. Raises ServerError and OptionError."""
    begin()
    with connector_of(options).ordinary() as connection:
        original, made = slots.copy(connection, source, name)
    for flag, set_ in {"two_phase": original.two_phase, "failover": original.failover}.items():
        if set_:
            log_outcome(f"slot {source} has {flag}, its copy does not: the server does not copy it")
    log_outcome(f"slot {name} is a copy of {source}. {slots.retains(name)}")
    position = made.confirmed_flush_lsn or made.restart_lsn
    put("" if position is None else lsn_text(position))


def _is_settled(options: ChangeOptions, connection: Connection, slot: Slot, action: str, done: str) -> bool:
    """Whether nothing is to be done, as for --dry-run, which says what would be; --yes skips the question."""
    if options.dry_run:
        log_outcome(f"slot {_described(connection, slot)}")
        log_outcome(f"it would be {done}; {NOT_DONE}")
    elif not options.yes:
        _confirm(connection, slot, action)
    return options.dry_run


def _confirm(connection: Connection, slot: Slot, action: str) -> None:
    """Show the slot and ask; returns after a yes, else exits with 1. Raises OptionError without a terminal."""
    check_terminal(
        f"slot {slot.name} was not changed: there is no terminal to ask on whether to {action[0].lower()}{action[1:]},"
        " which cannot be undone; --yes does it without asking"
    )
    log_outcome(f"slot {_described(connection, slot)}")
    confirm(f"{action}? It cannot be undone.")


def _described(connection: Connection, slot: Slot) -> str:
    """The slot in one line: its plugin, database and position, and the WAL it retains."""
    report = slot_report.report(connection, catalog.server_facts(connection).major, slot.name)
    parts = [slot.name, "physical" if slot.physical else f"{slot.plugin}, database {slot.database}"]
    position = slot.confirmed_flush_lsn or slot.restart_lsn
    if position is not None:
        parts.append(f"at {lsn_text(position)}")
    if report is not None:
        parts.append(f"retains {size_text(report.retained)} of WAL")
    if slot.invalid is not None:
        parts.append(f"invalidated: {slot.invalid}")
    elif report is not None and report.facts.get("inactive_seconds") is not None:
        parts.append(f"inactive for {seconds_text(report.facts['inactive_seconds'])}")
    return escape(", ".join(parts))
