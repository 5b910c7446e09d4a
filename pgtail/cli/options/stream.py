"""Groups of options for commands that read a slot. Imports click and nothing heavier."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

import click

from pgtail.cli import complete
from pgtail.cli.command import heading
from pgtail.cli.options.encoding import encoding_name
from pgtail.cli.options.shared import F, configured, in_order
from pgtail.cli.settings import ConfiguredArgument
from pgtail.humanize import parse_seconds

if TYPE_CHECKING:
    from pgtail.pgoutput.scalars import Point

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def position(text: str) -> int:
    """A log position. Raises BadParameter."""
    from pgtail.pgoutput.scalars import parse_lsn

    try:
        return parse_lsn(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def place(text: str) -> int | Literal["now"]:
    """A log position, or the word now for the server's current one. Raises BadParameter."""
    return "now" if text == "now" else position(text)


def point(text: str) -> Point:
    """A log position or a time of commit. Raises BadParameter."""
    from pgtail.changes.commit_range import point_of

    try:
        return point_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def end(text: str) -> Point | Literal["now"]:
    """The same, or the word now for the server's current position. Raises BadParameter."""
    return "now" if text == "now" else point(text)


def size(text: str) -> int:
    """A number of bytes, with or without a unit: 500MB, 1GB. Raises BadParameter."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)i?b?", text, re.IGNORECASE)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size such as 500MB or 1GB")
    return int(match[1]) * _UNITS[match[2].lower()]


def connection_options(function: F) -> F:
    """Where to connect, as in psql: the fields of commands.options.ConnectionOptions."""
    return click.argument("dsn", cls=ConfiguredArgument, required=False, shell_complete=complete.dsn)(
        server_options(function)
    )


def server_options(function: F) -> F:
    """The same without the argument `dsn`."""
    return in_order(
        [
            heading("connection"),
            click.option("-h", "--host", metavar="HOST", help="The server's host, or the directory of its socket."),
            click.option("-p", "--port", metavar="PORT", help="The server's port."),
            click.option("-U", "--username", metavar="NAME", help="The user to connect as."),
            click.option(
                "-d",
                "--dbname",
                metavar="DBNAME",
                shell_complete=complete.dsn,
                help="The database, or a connection string.",
            ),
            click.option("-W", "--password", is_flag=True, help="Ask for the password before connecting."),
            click.option("-w", "--no-password", is_flag=True, help="Never ask for a password."),
        ]
    )(function)


def duration(text: str) -> float:
    """Seconds, with or without a unit: 30s, 500ms, 2m. Raises BadParameter."""
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def positive_duration(text: str) -> float:
    """The same, more than zero. Raises BadParameter."""
    seconds = duration(text)
    if not seconds:
        raise click.BadParameter(f"{text} is not more than 0")
    return seconds


def _slot_option(declare: Callable[..., Callable[[F], F]]) -> Callable[[F], F]:
    return declare(
        "-S",
        "--slot",
        metavar="NAME",
        shell_complete=complete.slots,
        help="The slot to read; the default is a temporary one.",
    )


def interval(text: str) -> float:
    """Seconds between two reports. Raises BadParameter."""
    seconds = duration(text)
    if not 0.1 <= seconds <= 86_400:
        raise click.BadParameter(f"{text} is not from 100ms to 24h")
    return seconds


def interval_option(function: F) -> F:
    """`interval`."""
    return click.option(
        "--interval",
        type=interval,
        metavar="TIME",
        default="2s",
        show_default=True,
        help="Time between two reports of --watch.",
    )(function)


def slot_option(function: F) -> F:
    """`slot`, never from the configuration, for commands that read dumps without it."""
    return in_order([heading("slot"), _slot_option(click.option)])(function)


def fork_option(function: F) -> F:
    """`fork`."""
    return in_order(
        [
            heading("slot"),
            click.option(
                "--fork",
                metavar="SLOT",
                shell_complete=complete.slots,
                help="Read a temporary copy of SLOT, even if it is in use or has another plugin.",
            ),
        ]
    )(function)


def publication_options(function: F) -> F:
    """The fields of commands.options.PublicationOptions."""
    return in_order(
        [
            heading("slot"),
            configured(
                "-P",
                "--publication",
                "publications",
                multiple=True,
                metavar="NAME",
                shell_complete=complete.publications,
                help="The publication to read; the default is the only one of the database, or with a temporary slot"
                " all of them. Repeatable.",
            ),
            click.option(
                "--allow-missing-publication",
                is_flag=True,
                help="PostgreSQL 18 and later: ignore publications that do not exist.",
            ),
        ]
    )(function)


def slot_options(function: F) -> F:
    """What is read, and what happens to the slot."""
    return in_order(
        [
            heading("slot"),
            _slot_option(configured),
            fork_option,
            click.option("--create-slot", is_flag=True, help="Create the slot first."),
            publication_options,
            click.option(
                "--ack",
                type=click.Choice(["none", "commit", "exit"]),
                help="What to acknowledge: nothing, each commit once it is written, or all of them at a normal end. The"
                " default is none for a slot that existed before, and commit for others.",
            ),
            click.option(
                "--yes", is_flag=True, help="Allow --from with --ack, which skips changes for all readers of the slot."
            ),
        ]
    )(function)


def since_option(function: F) -> F:
    """`since`, a point from which on changes are shown."""
    return in_order(
        [
            heading("range"),
            click.option(
                "--since",
                type=point,
                shell_complete=complete.points,
                metavar="TIME|LSN",
                help="Only what was committed at this time or later: 10m (ago), yesterday, 10:30, 2026-11-22T10:00 (UTC"
                " without a zone); or at this log position or later.",
            ),
        ]
    )(function)


def dump_range_options(function: F) -> F:
    """`since` and `until` of a dump."""
    return in_order(
        [
            since_option,
            heading("range"),
            click.option(
                "--until",
                type=point,
                shell_complete=complete.points,
                metavar="TIME|LSN",
                help="Only what was committed up to this time or log position, written as for --since.",
            ),
        ]
    )(function)


def range_options(function: F) -> F:
    """Where to start, when to end."""
    return in_order(
        [
            since_option,
            heading("range"),
            click.option(
                "-I",
                "--from",
                "--startpos",
                "start",
                type=place,
                metavar="LSN|now",
                help="Start at this log position; now is the server's current one.",
            ),
            end_options,
        ]
    )(function)


def end_options(function: F) -> F:
    """When to end, and what may happen before: the fields of commands.options.EndOptions."""
    return in_order(
        [
            heading("range"),
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
                "--until",
                type=end,
                shell_complete=complete.points,
                metavar="TIME|LSN|now",
                help="Stop after what was committed up to this time (10:30, 2026-11-22T10:00; UTC without a zone) or"
                " log position; now is the server's position when pgtail starts.",
            ),
            click.option(
                "--for", "seconds", type=duration, metavar="TIME", help="Stop after this time: 30, 30s, 500ms, 2m, 1h."
            ),
            click.option(
                "--idle-exit",
                "idle",
                type=duration,
                metavar="TIME",
                help="Stop when nothing was received for this time.",
            ),
            reconnect_option,
            heading("other"),
            click.option(
                "--spill-limit",
                type=size,
                metavar="SIZE",
                default="1GB",
                show_default=True,
                help="How much to buffer on disk if the output is slower than the server.",
            ),
        ]
    )(function)


def reconnect_option(function: F) -> F:
    """`reconnect`."""
    return in_order(
        [
            heading("connection"),
            click.option(
                "--reconnect/--no-reconnect",
                default=None,
                help="Connect again when the connection is lost. The default, except for a temporary slot, which would"
                " miss the changes in between.",
            ),
        ]
    )(function)


def content_options(function: F) -> F:
    """Options of pgoutput that stream and record share."""
    return in_order(
        [
            heading("protocol"),
            click.option("--binary", is_flag=True, help="Send values in binary form, if their types have one."),
            click.option(
                "--messages/--no-messages",
                default=None,
                help="Send logical messages; the default from PostgreSQL 14 on.",
            ),
            click.option(
                "--origin",
                type=click.Choice(["any", "none"]),
                default="any",
                show_default=True,
                help="none: leave out changes that were replicated from elsewhere.",
            ),
        ]
    )(function)


def protocol_options(function: F) -> F:
    """Options of pgoutput; the defaults are the highest that the server supports."""
    return in_order(
        [
            heading("protocol"),
            click.option(
                "--proto-version", type=int, metavar="N", help="Protocol version; the default is the server's highest."
            ),
            content_options,
            click.option(
                "--streaming",
                type=click.Choice(["off", "on", "parallel"]),
                help="Send large transactions before they commit; the default is on from PostgreSQL 14.",
            ),
            click.option(
                "--two-phase", is_flag=True, help="With --create-slot or a temporary slot: decode PREPARE TRANSACTION."
            ),
            click.option(
                "--encoding",
                metavar="NAME",
                callback=encoding_name,
                help="Receive text as the server stores it, and decode it from this encoding.",
            ),
        ]
    )(function)
