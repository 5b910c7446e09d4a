"""Floor 7, `changes` brought up to date, and then what is made of them: what the commands beyond them do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pgtail.cli.options import in_order
from pgtail.cli.spark_options import Telling, captures_and_out, spark_session

if TYPE_CHECKING:
    from pgtail.spark.update import Update

F = TypeVar("F", bound=Callable[..., Any])

Step = Callable[[Any, str, Callable[[str], None]], str]
"""Makes something of OUT's changes: session, OUT, who hears what is under way -> what to say of it."""


def changes_options(function: F) -> F:
    """What `changes` are and of which tables: `stored_as`, `tables`."""
    return in_order(
        [
            click.option(
                "--format",
                "stored_as",
                type=click.Choice(["parquet", "orc", "json"]),
                default="parquet",
                show_default=True,
                help="What the files of changes and tables are.",
            ),
            click.option(
                "-t",
                "--table",
                "tables",
                multiple=True,
                metavar="GLOB",
                help="Only these tables: a glob on schema.table, or without a dot on the name alone. Repeatable.",
            ),
        ]
    )(function)


def run(places: Sequence[str], options: dict[str, Any], steps: Sequence[Step]) -> None:
    """Bring OUT/changes up to date, then take the steps; with --watch again and again. Ends the process."""
    from pgtail.cli.standard import exit_statuses, say

    with exit_statuses():
        captures, out = captures_and_out(places)
        try:
            _run(captures, out, options, steps)
        except KeyboardInterrupt:
            say("stopped: what was written stays, and the same command goes on from there")


def _run(captures: list[str], out: str, options: dict[str, Any], steps: Sequence[Step]) -> None:
    from pgtail.cli.standard import say
    from pgtail.outputs.escape import escape
    from pgtail.spark.output import Output

    output = Output(out)  # tells before anything is started that it cannot be written to
    telling = Telling(options["verbose"])
    with spark_session(options) as spark, telling.shown(spark):
        from pgtail.spark.update import Datasets
        from pgtail.spark.watch import watch

        def follow() -> None:
            for step in steps:
                say(escape(step(spark, out, telling.tell)))

        def updated(update: Update) -> None:
            say_update(update)
            follow()

        datasets = Datasets(spark, out, stored_as=options["stored_as"], tables=options["tables"], tell=telling.tell)
        if not options["watch"]:
            updated(datasets.update(captures))
            return
        if output.read() is not None:
            # It may have been stopped between the changes and what is made of them.
            follow()
        watch(spark, captures, datasets, every=f"{options['every']} seconds", done=updated)


def say_update(update: Update) -> None:
    """How many segments were new, and what is to be noted of them."""
    from pgtail.cli.standard import say
    from pgtail.outputs.escape import escape

    for note in update.notes:
        say(escape(f"note: {note}"))
    say(f"{update.segments} new segments" if update.segments != 1 else "1 new segment")
