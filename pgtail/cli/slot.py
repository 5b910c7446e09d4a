"""`pgtail slot`: the options of its commands."""

from __future__ import annotations

from typing import Any, Literal

import click

from pgtail.cli import Commands, complete
from pgtail.cli.command import heading
from pgtail.cli.options.shared import color_options
from pgtail.cli.options.stream import connection_options, interval_option, place
from pgtail.commands.options import ConnectionOptions, ReportOptions, from_parameters
from pgtail.commands.stderr import exit_statuses

_yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group("slot", cls=Commands)
def command() -> None:
    """List, create, drop, advance and copy replication slots.

    \b
    pgtail slot list shop           who reads each slot, what it retains
    pgtail slot create audit shop   names the transactions it waits for
    pgtail slot copy audit audit_test shop
    pgtail slot drop audit_test shop
    """


@command.command("list")
@connection_options
@heading("output")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), help="Format; json in a pipe: a line per slot.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@interval_option
@color_options
def list_(watch: bool, interval: float, **options: Any) -> None:
    """Show every slot: who reads it, and what it retains.

    All slots of the server are shown, whatever the database. LAG is the distance from the confirmed position to the
    server's, WAL HELD that from restart_lsn to the server's. Values are those of pg_replication_slots,
    pg_stat_replication_slots and pg_stat_activity; columns that the server's version does not have are left out.
    """
    from pgtail.commands.slot_screen import run

    with exit_statuses():
        connection, report = from_parameters(ConnectionOptions, options), from_parameters(ReportOptions, options)
        run(connection, report, interval=interval if watch else None)


@command.command("create")
@click.argument("name")
@connection_options
@heading("slot")
@click.option("--temporary", is_flag=True, help="The slot exists until this command ends with Ctrl-C.")
@click.option("--two-phase", is_flag=True, help="Decode PREPARE TRANSACTION (PostgreSQL 15 and later).")
@click.option("--failover", is_flag=True, help="Let standbys synchronize the slot (PostgreSQL 17 and later).")
def create(name: str, temporary: bool, two_phase: bool, failover: bool, **options: Any) -> None:
    """Create a logical slot for pgoutput, and print its position.

    The slot starts with what is committed after its creation. The server first waits for all running transactions to
    end; after a second they are listed. No snapshot is exported.
    """
    from pgtail.commands import slots

    with exit_statuses():
        slots.create(
            from_parameters(ConnectionOptions, options),
            name,
            temporary=temporary,
            two_phase=two_phase,
            failover=failover,
        )


@command.command("drop")
@click.argument("name", shell_complete=complete.slots)
@connection_options
@heading("other")
@_yes_option
def drop(name: str, yes: bool, **options: Any) -> None:
    """Drop a slot that nobody is reading.

    The server may then remove the WAL that the slot retained; its consumer can no longer read it. pgtail shows the
    slot and asks first.
    """
    from pgtail.commands import slots

    with exit_statuses():
        slots.drop(from_parameters(ConnectionOptions, options), name, yes=yes)


@command.command("advance")
@click.argument("name", shell_complete=complete.slots)
@click.argument("to", metavar="LSN|now", type=place)
@connection_options
@heading("other")
@_yes_option
def advance(name: str, to: int | Literal["now"], yes: bool, **options: Any) -> None:
    """Advance a slot without reading it, and print the position it reached.

    Its consumer never receives the changes in between. The server decodes up to the new position, which may take a
    while. pgtail shows the slot and asks first.
    """
    from pgtail.commands import slots

    with exit_statuses():
        slots.advance(from_parameters(ConnectionOptions, options), name, to, yes=yes)


@command.command("copy")
@click.argument("source", metavar="SRC", shell_complete=complete.slots)
@click.argument("name", metavar="DST")
@connection_options
def copy(source: str, name: str, **options: Any) -> None:
    """Copy a slot, even one in use, to a new permanent one, and print its position.

    The copy has the position and the plugin of SRC; the server does not copy two_phase and failover. To read a slot
    through a copy that is dropped at the end: pgtail stream --fork SRC.
    """
    from pgtail.commands import slots

    with exit_statuses():
        slots.copy(from_parameters(ConnectionOptions, options), source, name)
