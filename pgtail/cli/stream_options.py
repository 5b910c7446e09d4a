"""Floor 7, the options of commands that read a slot, in groups; imports click and nothing heavier."""

from __future__ import annotations

import re
from typing import Final, Literal

import click

from pgtail.cli.options import F, configured, in_order
from pgtail.cli.settings import ConfiguredArgument

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SLOT_HELP: Final = "The slot to read; without it a temporary one."
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def position(text: str) -> int:
    """A log position. Raises BadParameter."""
    from pgtail.wire.scalars import parse_lsn

    try:
        return parse_lsn(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def place(text: str) -> int | Literal["now"]:
    """A log position, or the word now. Raises BadParameter."""
    return "now" if text == "now" else position(text)


def size(text: str) -> int:
    """A number of bytes, with a unit or without: 500MB, 1GB. Raises BadParameter."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)i?b?", text, re.IGNORECASE)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size such as 500MB or 1GB")
    return int(match[1]) * _UNITS[match[2].lower()]


def connection_options(function: F) -> F:
    """Where to: as in psql."""
    return click.argument("dsn", cls=ConfiguredArgument, required=False)(server_options(function))


def server_options(function: F) -> F:
    """The same without the argument."""
    return in_order(
        [
            click.option("-h", "--host", metavar="HOST", help="The server's host, or the directory of its socket."),
            click.option("-p", "--port", metavar="PORT", help="The server's port."),
            click.option("-U", "--username", metavar="NAME", help="The user to connect as."),
            click.option("-d", "--dbname", metavar="DBNAME", help="The database, or a connection string."),
            click.option("-W", "--password", is_flag=True, help="Ask for the password before connecting."),
        ]
    )(function)


def duration(text: str) -> float:
    """Seconds, with a unit or without: 30s, 500ms, 2m. Raises BadParameter."""
    match = re.fullmatch(r"(\d*\.?\d+)\s*(ms|s|min|m|h)?", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no time such as 30s, 500ms or 2m")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def slot_option(function: F) -> F:
    """`slot`, where a configured one must not turn dumps into a slot."""
    return click.option("-S", "--slot", metavar="NAME", help=_SLOT_HELP)(function)


def publication_options(function: F) -> F:
    """What is published."""
    return in_order(
        [
            configured(
                "-P",
                "--publication",
                "publications",
                multiple=True,
                metavar="NAME",
                help="The publication to read; repeatable. Without it, the only one of the database.",
            ),
            click.option(
                "--allow-missing-publication",
                is_flag=True,
                help="PostgreSQL 18 and later: go on where a publication is missing, with nothing of it.",
            ),
        ]
    )(function)


def slot_options(function: F) -> F:
    """What is read, and what becomes of the slot."""
    return in_order(
        [
            configured("-S", "--slot", metavar="NAME", help=_SLOT_HELP),
            click.option(
                "--fork",
                metavar="SLOT",
                help="Look at what SLOT holds, whatever its plugin and whoever reads it, through a temporary copy.",
            ),
            click.option("--create-slot", is_flag=True, help="Create the slot first."),
            publication_options,
            click.option(
                "--ack",
                type=click.Choice(["none", "commit", "exit"]),
                help="What the slot is told: nothing, each commit that was written, or that only at a normal end. none"
                " is the default where the slot existed before, commit elsewhere.",
            ),
            click.option(
                "--yes", is_flag=True, help="Let --from with --ack skip changes for good, for all readers of the slot."
            ),
        ]
    )(function)


def range_options(function: F) -> F:
    """Where to begin, when to end."""
    start = click.option(
        "--from", "start", type=place, metavar="LSN|now", help="Start at this log position; now is the server's."
    )
    return start(end_options(function))


def end_options(function: F) -> F:
    """When to end, and what may happen before."""
    return in_order(
        [
            click.option(
                "-E",
                "--until-lsn",
                "--endpos",
                "until_lsn",
                type=position,
                metavar="LSN",
                help="Stop at this log position.",
            ),
            click.option(
                "--until", type=place, metavar="LSN|now", help="The same; now is the server's position at the start."
            ),
            click.option(
                "--for", "seconds", type=duration, metavar="TIME", help="Stop after so long: 30, 30s, 500ms, 2m, 1h."
            ),
            click.option(
                "--idle-exit",
                "idle",
                type=duration,
                metavar="TIME",
                help="Stop when nothing has come for so long.",
            ),
            click.option(
                "--reconnect/--no-reconnect",
                default=None,
                help="Connect again when the connection is lost. The default, but for a temporary slot: what comes"
                " meanwhile would be missed.",
            ),
            click.option(
                "--spill-limit",
                type=size,
                metavar="SIZE",
                default="1GB",
                show_default=True,
                help="How much may wait on disk for an output that is slower than the server.",
            ),
        ]
    )(function)


def content_options(function: F) -> F:
    """pgoutput's options that say what is sent."""
    return in_order(
        [
            click.option("--binary", is_flag=True, help="Values in binary form, where their types have one."),
            click.option("--messages/--no-messages", default=None, help="Logical messages; on from PostgreSQL 14."),
            click.option(
                "--origin",
                type=click.Choice(["any", "none"]),
                default="any",
                show_default=True,
                help="none: without what was replicated from elsewhere.",
            ),
        ]
    )(function)


def protocol_options(function: F) -> F:
    """pgoutput's own options; the defaults are the best that the server knows."""
    return in_order(
        [
            click.option(
                "--proto-version", type=int, metavar="N", help="Protocol version; without it the server's highest."
            ),
            content_options,
            click.option(
                "--streaming",
                type=click.Choice(["off", "on", "parallel"]),
                help="Large transactions before their commit; on from PostgreSQL 14.",
            ),
            click.option("--two-phase", is_flag=True, help="With --create-slot or a temporary slot: decode PREPARE."),
            click.option("--encoding", metavar="NAME", help="Take text as the server stores it, in this encoding."),
        ]
    )(function)
