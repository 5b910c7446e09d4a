"""Floor 7, the slot commands that change something: what is at stake is shown, and asked for, before it is done."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

import click

from pgtail.cli.connecting import connector_of
from pgtail.cli.sinks import put
from pgtail.cli.standard import say
from pgtail.errors import OptionError
from pgtail.outputs.escape import escape
from pgtail.server import facts, slotlist, slotwork
from pgtail.server.interrupt import Interrupt
from pgtail.server.words import size_text
from pgtail.wire.scalars import lsn_text

if TYPE_CHECKING:
    from pgtail.server.connection import Connection
    from pgtail.server.facts import Slot


def create(name: str, options: dict[str, Any]) -> None:
    """Create a slot; a temporary one is held until Ctrl-C. Raises OptionError and ServerError."""
    connector = connector_of(options)
    temporary = options["temporary"]
    creation = slotwork.Creation(
        connector, name, temporary=temporary, two_phase=options["two_phase"], failover=options["failover"]
    )
    with Interrupt() as interrupt:
        try:
            with interrupt.raising():
                server = creation.prepare()
            session, point = creation.create(interrupt, server, lambda text: say(escape(text)))
        except KeyboardInterrupt:
            # The server may have been quicker than the request to stop.
            made = slotwork.exists(connector, name)
            say(f"stopped: slot {name} exists, and stays" if made else f"stopped: slot {name} was not created")
            raise SystemExit(1) from None
        try:
            if not temporary:  # said first: it is there, whatever becomes of the output
                say(f"slot {name} was created: it stays, and holds WAL, until pgtail slot drop {name}")
            put(lsn_text(point))
            if temporary:
                say(f"temporary slot {name} lives until Ctrl-C, and holds WAL as long")
                slotwork.hold(session, interrupt)
        finally:
            session.close()


def drop(name: str, options: dict[str, Any]) -> None:
    """Drop a slot. Raises ServerError, OptionError where nobody can be asked."""
    with connector_of(options).ordinary() as connection:
        slot = slotwork.droppable(connection, name)
        _ask(connection, slot, "Drop it", options)
        slotwork.drop(connection, slot)
        say(f"slot {name} was dropped")


def advance(name: str, to: int | Literal["now"], options: dict[str, Any]) -> None:
    """Move a slot on. Raises ServerError and OptionError."""
    with connector_of(options).ordinary() as connection:
        slot = slotwork.droppable(connection, name)
        target = slotwork.target(connection, slot, to)
        _ask(connection, slot, f"Move it on to {lsn_text(target)}", options)
        put(lsn_text(slotwork.advance(connection, slot, target)))


def copy(source: str, name: str, options: dict[str, Any]) -> None:
    """Copy a slot. Raises ServerError and OptionError."""
    with connector_of(options).ordinary() as connection:
        before, made = slotwork.copy(connection, source, name)
    stands = made.confirmed_flush_lsn or made.restart_lsn
    flags = {"two_phase": before.two_phase, "failover": before.failover}
    for flag in [flag for flag, there in flags.items() if there]:
        say(f"slot {source} has {flag}, its copy does not: the server does not copy that")
    say(f"slot {name} is a copy of {source}: it stays, and holds WAL, until pgtail slot drop {name}")
    put("" if stands is None else lsn_text(stands))


def _ask(connection: Connection, slot: Slot, what: str, options: dict[str, Any]) -> None:
    """Show the slot and ask; returns where the answer is yes. Raises OptionError where there is nobody to ask."""
    if options["yes"]:
        return
    if not (sys.stdin is not None and sys.stdin.isatty()):
        raise OptionError(
            f"{what[:1].lower()}{what[1:]}: this cannot be undone, and there is nobody to ask; --yes does it"
        )
    say(f"slot {_described(connection, slot)}")
    if not click.confirm(f"{what}? It cannot be undone.", err=True):
        say("nothing was done")
        raise SystemExit(1)


def _described(connection: Connection, slot: Slot) -> str:
    """The slot in one line: whose it is, where it stands, and what it holds."""
    report = slotlist.report(connection, facts.server_facts(connection).major, slot.name)
    words = [slot.name, "physical" if slot.physical else f"{slot.plugin}, database {slot.database}"]
    stands = slot.confirmed_flush_lsn or slot.restart_lsn
    if stands is not None:
        words.append(f"stands at {lsn_text(stands)}")
    if report is not None:
        words.append(f"holds {size_text(report.held)} of WAL")
    if slot.invalid is not None:
        words.append(f"invalidated: {slot.invalid}")
    elif report is not None and report.facts.get("inactive_seconds") is not None:
        words.append(f"read by nobody for {facts.span_text(report.facts['inactive_seconds'])}")
    return escape(", ".join(words))
