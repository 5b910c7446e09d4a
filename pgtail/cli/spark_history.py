"""Floor 7, `pgtail spark history`: every version of every row."""

from __future__ import annotations

from typing import Any

import click

from pgtail.cli.spark_follow import changes_options, run
from pgtail.cli.spark_options import spark_options, watch_options
from pgtail.cli.spark_state import state_options, step


@click.command("history")
@click.argument("places", nargs=-1, required=True, metavar="CAPTURE... OUT")
@changes_options
@state_options
@watch_options
@spark_options
def command(places: tuple[str, ...], **options: Any) -> None:
    """Keep every version of every row, with the commits that made and ended it (SCD 2): OUT/history.

    What only its own transaction ever saw is not in it. Makes OUT/changes first. Read it with
    pgtail.spark.history(spark, "OUT", "schema.table").

    \b
    pgtail spark history captures/shop warehouse
    """
    run(places, options, [step(options, history=True)])
