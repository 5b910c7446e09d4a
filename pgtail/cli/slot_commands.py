"""Floor 7, the commands of `pgtail slot`, loaded when one of them, or the help of `slot`, is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import click

from pgtail.cli.options import color_options
from pgtail.cli.stream_options import connection_options, duration, place

_PSQL_HELP: Final = {"help_option_names": ["--help"]}
"""-h is the host, as in psql."""


def _pause(text: str) -> float:
    """Seconds between two looks. Raises BadParameter."""
    seconds = duration(text)
    if not 0.1 <= seconds <= 86_400:
        raise click.BadParameter(f"{text} is not from 100ms to 24h")
    return seconds


@click.command("list", context_settings=_PSQL_HELP)
@connection_options
@click.option("-o", "--output", type=click.Choice(["table", "json"]), help="Format; json in a pipe: a line per slot.")
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=_pause,
    metavar="TIME",
    default="2s",
    show_default=True,
    help="Pause of --watch.",
)
@color_options
def list_(**options: Any) -> None:
    """Show every slot: who reads it, and what it holds back.

    All slots of the server are shown, whatever the database. LAG is from the confirmed position to the server's, WAL
    HELD from restart_lsn to there. Values are those of pg_replication_slots, pg_stat_replication_slots and
    pg_stat_activity; what the server's version does not have is left out.
    """
    from pgtail.cli.slot_screen import show
    from pgtail.cli.standard import exit_statuses

    with exit_statuses():
        show(options)


@click.command("create", context_settings=_PSQL_HELP)
@click.argument("name")
@connection_options
@click.option("--temporary", is_flag=True, help="It lives as long as this command: until Ctrl-C.")
@click.option("--two-phase", is_flag=True, help="Decode PREPARE TRANSACTION (PostgreSQL 15 and later).")
@click.option("--failover", is_flag=True, help="Standbys may keep it in step (PostgreSQL 17 and later).")
def create(name: str, **options: Any) -> None:
    """Create a logical slot for pgoutput.

    It starts with what is committed after its creation, which waits for all transactions that are running: they are
    named after a second. No snapshot is exported. Its position is printed.
    """
    from pgtail.cli.slot_work import create as work
    from pgtail.cli.standard import exit_statuses

    with exit_statuses():
        work(name, options)


def _sure(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--yes", is_flag=True, help="Do not ask.")(function)


@click.command("drop", context_settings=_PSQL_HELP)
@click.argument("name")
@connection_options
@_sure
def drop(name: str, **options: Any) -> None:
    """Drop a slot, which nobody may be reading.

    What it holds back is free then, and lost to its consumer. pgtail shows the slot and asks first.
    """
    from pgtail.cli.slot_work import drop as work
    from pgtail.cli.standard import exit_statuses

    with exit_statuses():
        work(name, options)


@click.command("advance", context_settings=_PSQL_HELP)
@click.argument("name")
@click.argument("to", metavar="LSN|now", type=place)
@connection_options
@_sure
def advance(name: str, to: int | Literal["now"], **options: Any) -> None:
    """Move a slot on without reading it.

    Its consumer never gets what lies between. The server decodes up to there, which may take a while, and the
    position that it reached is printed. pgtail shows the slot and asks first.
    """
    from pgtail.cli.slot_work import advance as work
    from pgtail.cli.standard import exit_statuses

    with exit_statuses():
        work(name, to, options)


@click.command("copy", context_settings=_PSQL_HELP)
@click.argument("source", metavar="SRC")
@click.argument("name", metavar="DST")
@connection_options
def copy(source: str, name: str, **options: Any) -> None:
    """Copy a slot, also one that is in use, to a new one that stays.

    It stands where SRC stands and has its plugin; two_phase and failover are not copied by the server. Its position is
    printed. To look at a slot through a copy that ends by itself: pgtail stream --fork SRC.
    """
    from pgtail.cli.slot_work import copy as work
    from pgtail.cli.standard import exit_statuses

    with exit_statuses():
        work(source, name, options)


COMMANDS: Final = {"list": list_, "create": create, "drop": drop, "advance": advance, "copy": copy}
"""In the order of the help."""
