"""`pgtail inspect`: its options."""

from __future__ import annotations

from typing import Any

import click

from pgtail.cli import complete
from pgtail.cli.command import Command, heading
from pgtail.cli.options.shared import (
    color_options,
    count,
    dump_options,
    options_from,
    own_filter_options,
    pager_option,
    verify_option,
)


@click.command(
    "inspect",
    cls=Command,
    first=("numbers", "offsets", "kinds", "lsns", "tables", "ops", "limit", "output", "file", "resync"),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@heading("filter")
@click.option(
    "--message", "numbers", multiple=True, metavar="N|N-M", help="Only message N, or N to M, from 1. Repeatable."
)
@click.option(
    "--offset", "offsets", multiple=True, metavar="BYTE", help="Only the message that contains this byte. Repeatable."
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    shell_complete=complete.kinds,
    help="Only messages of this kind: insert, relation, ..., keepalive, or a first byte such as I. Repeatable.",
)
@click.option(
    "--lsn",
    "lsns",
    multiple=True,
    metavar="LSN|LSN-LSN",
    help="Only messages at this log position or between two, or with such a position in a field. Repeatable.",
)
@own_filter_options
@heading("range")
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N messages were shown.")
@heading("output")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Lines for people, or a JSON object per message.",
)
@click.option(
    "-f",
    "--file",
    type=click.Path(),
    metavar="FILE",
    help="Write to FILE (*.gz: compressed) instead of standard output.",
)
@click.option(
    "--max-bytes",
    metavar="N",
    callback=count,
    default="48",
    show_default=True,
    help="table: bytes of a field to show, the rest is counted; 0 for no limit.",
)
@color_options
@pager_option
@dump_options
@verify_option
@click.option(
    "--resync", is_flag=True, help="Skip damage, up to the next message that decodes; the exit status is still 1."
)
def command(files: tuple[str, ...], **options: Any) -> None:
    """Show the bytes and fields of a dump. A FILE of - is standard input.

    Each field of each message is a line: its offset and bytes, its name and type as in PostgreSQL's manual, its
    value, and what that means. Cells have the names of their columns and are decoded as the column's type. For a
    damaged message the good fields are shown, then the bad bytes and what was expected there; the exit status is 1.

    Offsets count from the start of the file (uncompressed), or with a + from the start of the message if the file is
    text. The filters apply to changes: with one of them, other messages are not shown.

    \b
    pgtail inspect changes.bin --message 7
    pgtail inspect changes.bin --offset 1043 --resync
    pgtail inspect changes.bin --kind begin,commit -o json | jq .
    """
    from pgtail.commands.inspect import Inspect
    from pgtail.commands.options import InspectOptions
    from pgtail.commands.stderr import exit_statuses

    with exit_statuses():
        damaged = Inspect(options_from(InspectOptions, options)).run(files)
    raise SystemExit(1 if damaged else 0)
