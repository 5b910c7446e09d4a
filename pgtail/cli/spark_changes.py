"""Floor 7, `pgtail spark changes`: captures to a table of all changes, with their transactions and tables."""

from __future__ import annotations

from typing import Any

import click

from pgtail.cli.spark_follow import changes_options, say_update
from pgtail.cli.spark_options import Telling, captures_and_out, spark_options, spark_session, watch_options
from pgtail.errors import OptionError


@click.command("changes")
@click.argument("places", nargs=-1, required=True, metavar="CAPTURE... OUT")
@changes_options
@watch_options
@click.option("--compact", is_flag=True, help="Afterwards write small files anew as large ones.")
@spark_options
def command(places: tuple[str, ...], **options: Any) -> None:
    """Write every change in captures as rows: OUT/changes, OUT/transactions and OUT/relations.

    Each change is a row once, however often it was recorded: in several segments, in captures of several slots. Run
    again, it adds what is new. What is damaged or incomplete is named, and nothing of it is written.

    \b
    pgtail spark changes captures/shop warehouse
    pgtail spark changes --watch --every 1m captures/shop warehouse
    """
    from pgtail.cli.standard import exit_statuses, say

    with exit_statuses():
        captures, out = captures_and_out(places)
        if options["watch"] and options["compact"]:
            raise OptionError("--watch does not end, and --compact is for the end: run it by itself")
        try:
            _run(captures, out, options)
        except KeyboardInterrupt:
            say("stopped: what was written stays, and the same command goes on from there")


def _run(captures: list[str], out: str, options: dict[str, Any]) -> None:
    from pgtail.cli.standard import say
    from pgtail.spark.output import Output

    Output(out)  # tells before anything is started that it cannot be written to
    telling = Telling(options["verbose"])
    with spark_session(options) as spark, telling.shown(spark):
        from pgtail.spark.update import Datasets
        from pgtail.spark.watch import watch

        datasets = Datasets(spark, out, stored_as=options["stored_as"], tables=options["tables"], tell=telling.tell)
        if options["watch"]:
            watch(spark, captures, datasets, every=f"{options['every']} seconds", done=say_update)
            return
        say_update(datasets.update(captures))
        if options["compact"]:
            say(f"{datasets.compact()} batches of small files became one")
