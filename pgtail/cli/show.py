"""`pgtail show`: its command line."""

from __future__ import annotations

import click

from pgtail.cli.command import Command
from pgtail.cli.options import takes
from pgtail.commands.options.show import ShowOptions


@click.command("show", cls=Command, first=("at", "before", "history", "ddl", "where", "columns", "output", "file"))
@click.argument("capture", metavar="CAPTURE", type=click.Path(file_okay=False))
@click.argument("table", metavar="TABLE")
@takes(ShowOptions)
def command(capture: str, table: str, options: ShowOptions) -> bool:
    """Show the rows of a table as they were.

    CAPTURE is the directory that pgtail record writes, or a URI; TABLE is SCHEMA.TABLE, or TABLE if only one schema has
    it. The rows are those of the table's last snapshot before the moment and of the changes after it. Without a
    snapshot (pgtail record --snapshot-table) only rows are known that the capture has shown; a note says so, and the
    exit status is 1.

    \b
    pgtail show captures/shop orders --at 10:42 --where 'id = 7'
    pgtail show captures/shop public.orders --before 0/16B3748 -o csv
    pgtail show captures/shop orders --history --where 'id = 7'
    """
    from pgtail.commands.show import run

    return run(capture, table, options)
