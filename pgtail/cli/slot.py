"""`pgtail slot`: its command lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import click
from msgspec.structs import replace

from pgtail.cli import Commands, complete
from pgtail.cli.command import GroupedOption
from pgtail.cli.options import dsn_argument, takes
from pgtail.cli.settings import given
from pgtail.commands.options.server import ChangeOptions, ConnectionOptions, CreateOptions, ListOptions
from pgtail.errors import ServerError
from pgtail.replication.request import lsn_or_now

_PLACE: Final = re.compile("now|[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
T = TypeVar("T", CreateOptions, ChangeOptions)

_slot_option: Final = click.option(
    "-S",
    "--slot",
    cls=GroupedOption,
    group="slot",
    metavar="NAME",
    shell_complete=complete.slots,
    help="The slot, as for stream; then the argument is the DSN.",
)


def _arguments(*arguments: str | None, dsn: str | None) -> list[str]:
    """The arguments that the command line has; the last one is called DSN."""
    return [one for one in (*arguments, dsn if given("dsn") else None) if one is not None]


def _in_either_order(arguments: list[str], slot: str | None, options: T, run: Callable[[T, str], None]) -> None:
    """Call `run` with the options and the name of a slot, which may come before the DSN, after it, or with --slot."""
    dsn = None if given("dsn") else options.connection.dsn
    if slot is not None:
        if len(arguments) > 1:
            raise click.UsageError(f"with --slot {slot}, one argument: the DSN")
        arguments = [slot, *arguments]
    if not arguments:
        raise click.UsageError("missing argument 'NAME'")
    name, both = arguments[0], len(arguments) > 1
    if both:
        dsn = arguments[1]
        if slot is None and _is_dsn(name):
            name, dsn = dsn, name
    try:
        run(_at(options, dsn), name)
    except ServerError as error:
        if slot is not None or not both or f'database "{dsn}" does not exist' not in error.reason:
            raise
        try:
            run(_at(options, name), str(dsn))
        except ServerError as other:
            if f'database "{name}" does not exist' in other.reason:
                only_one = "The arguments are one slot and a database; of several slots, name each alone."
                error.cure = f"{only_one} {error.cure}"
                raise error from None
            raise


def _is_dsn(argument: str) -> bool:
    """Whether it cannot be the name of a slot."""
    return bool(set("=/:") & set(argument))


def _at(options: T, dsn: str | None) -> T:
    return replace(options, connection=replace(options.connection, dsn=dsn))


@click.group("slot", cls=Commands, aliases={"ls": "list", "rm": "drop"})
def command() -> None:
    """List, create, drop, advance and copy replication slots.

    \b
    pgtail slot list shop           who reads each slot, what it retains
    pgtail slot create audit shop   retains WAL from now on
    pgtail slot copy audit audit_test shop
    pgtail slot drop audit_test shop

    `pgtail slot ls` is `pgtail slot list`, and `pgtail slot rm` is `pgtail slot drop`. The slot may also be named as
    for stream: pgtail slot drop shop -S audit_test.
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
    from pgtail.commands.slot.list import run

    run(options)


@command.command("create")
@click.argument("name", required=False)
@dsn_argument
@_slot_option
@takes(CreateOptions)
def create(name: str | None, slot: str | None, options: CreateOptions) -> None:
    """Create a logical slot for pgoutput, and print its position.

    The slot starts with what is committed after its creation. The server first waits for all running transactions to
    end; after a second they are listed. No snapshot is exported.
    """
    from pgtail.commands.slot import changes as slots

    _in_either_order(_arguments(name, dsn=options.connection.dsn), slot, options, slots.create)


@command.command("drop")
@click.argument("name", required=False, shell_complete=complete.slots)
@dsn_argument
@_slot_option
@takes(ChangeOptions)
def drop(name: str | None, slot: str | None, options: ChangeOptions) -> None:
    """Drop a slot that nobody is reading.

    The server may then remove the WAL that the slot retained; its consumer can no longer read it. pgtail shows the
    slot and asks first.
    """
    from pgtail.commands.slot import changes as slots

    _in_either_order(_arguments(name, dsn=options.connection.dsn), slot, options, slots.drop)


@command.command("advance")
@click.argument("name", required=False, shell_complete=complete.slots)
@click.argument("to", metavar="LSN|now", required=False)
@dsn_argument
@_slot_option
@takes(ChangeOptions)
def advance(name: str | None, to: str | None, slot: str | None, options: ChangeOptions) -> None:
    """Advance a slot without reading it, and print the position it reached.

    Its consumer never receives the changes in between. The server decodes up to the new position, which may take a
    while. pgtail shows the slot and asks first.
    """
    from pgtail.commands.slot import changes as slots

    arguments = _arguments(name, to, dsn=options.connection.dsn)
    places = [one for one in arguments[1:] + arguments[:1] if _PLACE.fullmatch(one)]
    if not places:
        raise click.UsageError("missing argument 'LSN|now', such as 0/16B3748")
    arguments.remove(places[0])
    place = lsn_or_now(places[0])
    _in_either_order(arguments, slot, options, lambda those, slot: slots.advance(those, slot, place))


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
    from pgtail.commands.slot import changes as slots

    if given("dsn") and _is_dsn(source):
        source, name, options = name, str(options.dsn), replace(options, dsn=source)
    slots.copy(options, source, name)
