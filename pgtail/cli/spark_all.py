"""Floor 7, `pgtail spark all`: changes, tables, state and history."""

from __future__ import annotations

from typing import Any

import click

from pgtail.cli import spark_tables
from pgtail.cli.spark_follow import changes_options, run
from pgtail.cli.spark_options import spark_options, watch_options
from pgtail.cli.spark_state import state_options, step


@click.command("all")
@click.argument("places", nargs=-1, required=True, metavar="CAPTURE... OUT")
@changes_options
@spark_tables.variant_option
@state_options
@watch_options
@spark_options
def command(places: tuple[str, ...], **options: Any) -> None:
    """Make everything: OUT/changes, OUT/transactions, OUT/relations, OUT/tables, OUT/state and OUT/history.

    \b
    pgtail spark all --watch captures/shop warehouse
    """
    run(places, options, [spark_tables.step(options), step(options, history=False), step(options, history=True)])
