"""`pgtail stats`: its command line."""

from __future__ import annotations

import click
from msgspec.structs import replace

from pgtail.cli import complete
from pgtail.cli.command import Command
from pgtail.cli.options import takes
from pgtail.cli.settings import default_dsn
from pgtail.commands.options.server import StatsOptions


@click.command(
    "stats",
    cls=Command,
    first=("slot", "fork", "watch", "until", "seconds", "tables", "ops", "where", "output", "file", "dbname", "resync"),
)
@click.argument("sources", nargs=-1, metavar="[FILE|DSN]...", shell_complete=complete.dsn_or_file)
@takes(StatsOptions)
def command(sources: tuple[str, ...], options: StatsOptions) -> bool:
    """Count what is written: by table, transaction, time and key.

    Counts the changes in dumps, or with --slot in a slot, without consuming them; with --for or --watch and no slot,
    the changes that are committed from now on. The filters select what is counted.

    \b
    pgtail stats changes.bin
    pgtail stats --slot audit shop
    pgtail stats --watch --fork audit shop
    pgtail stats shop --for 60s -o json | jq '.tables[0]'
    """
    from pgtail.commands.stats.dumps import run

    if not sources:
        options = replace(options, connection=replace(options.connection, dsn=default_dsn()))
    return run(sources, options)
