"""`pgtail stats`: its options."""

from __future__ import annotations

from typing import Any

import click

from pgtail.cli import complete
from pgtail.cli.command import Command, heading
from pgtail.cli.options.shared import (
    color_options,
    dump_options,
    filter_options,
    limit_option,
    options_from,
    pager_option,
    verbose_option,
    verify_option,
)
from pgtail.cli.options.stream import (
    duration,
    end,
    fork_option,
    interval_option,
    publication_options,
    reconnect_option,
    server_options,
    since_option,
    slot_option,
)


@click.command(
    "stats",
    cls=Command,
    first=("slot", "fork", "watch", "until", "seconds", "tables", "ops", "where", "output", "file", "dbname", "resync"),
)
@click.argument("sources", nargs=-1, metavar="[FILE|DSN]...", shell_complete=complete.dsn_or_file)
@slot_option
@server_options
@reconnect_option
@publication_options
@fork_option
@since_option
@heading("range")
@click.option("--watch", is_flag=True, help="Show what is written now, in a slot or a temporary one, until Ctrl-C.")
@interval_option
@click.option(
    "--until",
    type=end,
    shell_complete=complete.points,
    metavar="TIME|LSN|now",
    help="Only what was committed up to this time (10:30, 2026-11-22T10:00; UTC without a zone) or log position; a slot"
    " is read up to now by default.",
)
@click.option("--for", "seconds", type=duration, metavar="TIME", help="Read a slot for this time: 30, 30s, 2m, 1h.")
@filter_options
@limit_option
@dump_options
@verify_option
@click.option("--resync", is_flag=True, help="Skip damage, up to the next message that decodes.")
@heading("output")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    help="Format; the default is table on a terminal, and json elsewhere.",
)
@click.option(
    "-f",
    "--file",
    type=click.Path(),
    metavar="FILE",
    help="Write to FILE (*.gz: compressed) instead of standard output; --watch appends to it.",
)
@color_options
@pager_option
@verbose_option
def command(sources: tuple[str, ...], **options: Any) -> None:
    """Count what is written: by table, transaction, time and key.

    Counts the changes in dumps, or with --slot in a slot, without consuming them; with --for or --watch and no slot,
    the changes that are committed from now on. The filters select what is counted.

    \b
    pgtail stats changes.bin
    pgtail stats --slot audit shop
    pgtail stats --watch --fork audit shop
    pgtail stats shop --for 60s -o json | jq '.tables[0]'
    """
    from pgtail.commands.options import StatsOptions
    from pgtail.commands.stats import run
    from pgtail.commands.stderr import exit_statuses

    with exit_statuses():
        damaged = run(sources, options_from(StatsOptions, options))
    raise SystemExit(1 if damaged else 0)
