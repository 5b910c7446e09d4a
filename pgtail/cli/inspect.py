"""`pgtail inspect`: its command line."""

from __future__ import annotations

import click

from pgtail.cli.command import Command
from pgtail.cli.options import files_argument, takes
from pgtail.commands.options.common import InspectOptions


@click.command(
    "inspect",
    cls=Command,
    first=("numbers", "offsets", "kinds", "lsns", "tables", "ops", "limit", "output", "file", "resync"),
)
@files_argument
@takes(InspectOptions)
def command(files: tuple[str, ...], options: InspectOptions) -> bool:
    """Show the bytes and fields of a dump. Without a FILE, or with -, standard input is read.

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

    return Inspect(options).run(files)
