"""`pgtail slot`: its command lines."""

from __future__ import annotations

from typing import Literal

import click

from pgtail.cli import Commands, complete
from pgtail.cli.options import converting, dsn_argument, takes
from pgtail.commands.server_options import ChangeOptions, ConnectionOptions, CreateOptions, ListOptions
from pgtail.replication.request import lsn_or_now


@click.group("slot", cls=Commands, aliases={"ls": "list", "rm": "drop"})
def command() -> None:
    """List, create, drop, advance and copy replication slots.

    \b
    pgtail slot list shop           who reads each slot, what it retains
    pgtail slot create audit shop   names the transactions it waits for
    pgtail slot copy audit audit_test shop
    pgtail slot drop audit_test shop

    `pgtail slot ls` is `pgtail slot list`, and `pgtail slot rm` is `pgtail slot drop`.
    """


@command.command("list")
@dsn_argument
@takes(ListOptions)
def list_(options: ListOptions) -> None:
    """Show every slot: who reads it, and what it retains.

    All slots of the server are shown, whatever the database. LAG is the distance from the confirmed position to the
    server's, WAL HELD that from restart_lsn to the server's. Values are those of pg_replication_slots,
    pg_stat_replication_slots and pg_stat_activity; columns that the server's version does not have are left out.
    """
    from pgtail.commands.slot_screen import run

    run(options)


@command.command("create")
@click.argument("name")
@dsn_argument
@takes(CreateOptions)
def create(name: str, options: CreateOptions) -> None:
    """Create a logical slot for pgoutput, and print its position.

    The slot starts with what is committed after its creation. The server first waits for all running transactions to
    end; after a second they are listed. No snapshot is exported.
    """
    from pgtail.commands import slots

    slots.create(options, name)


@command.command("drop")
@click.argument("name", shell_complete=complete.slots)
@dsn_argument
@takes(ChangeOptions)
def drop(name: str, options: ChangeOptions) -> None:
    """Drop a slot that nobody is reading.

    The server may then remove the WAL that the slot retained; its consumer can no longer read it. pgtail shows the
    slot and asks first.
    """
    from pgtail.commands import slots

    slots.drop(options, name)


@command.command("advance")
@click.argument("name", shell_complete=complete.slots)
@click.argument("to", metavar="LSN|now", callback=converting(lsn_or_now))
@dsn_argument
@takes(ChangeOptions)
def advance(name: str, to: int | Literal["now"], options: ChangeOptions) -> None:
    """Advance a slot without reading it, and print the position it reached.

    Its consumer never receives the changes in between. The server decodes up to the new position, which may take a
    while. pgtail shows the slot and asks first.
    """
    from pgtail.commands import slots

    slots.advance(options, name, to)


@command.command("copy")
@click.argument("source", metavar="SRC", shell_complete=complete.slots)
@click.argument("name", metavar="DST")
@dsn_argument
@takes(ConnectionOptions)
def copy(source: str, name: str, options: ConnectionOptions) -> None:
    """Copy a slot, even one in use, to a new permanent one, and print its position.

    The copy has the position and the plugin of SRC; the server does not copy two_phase and failover. To read a slot
    through a copy that is dropped at the end: pgtail stream --fork SRC.
    """
    from pgtail.commands import slots

    slots.copy(options, source, name)
