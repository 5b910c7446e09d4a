"""Floor 7, `pgtail spark`: captures to tables, on Spark; one line in COMMANDS for each of its commands."""

from __future__ import annotations

from typing import Final

import click

from pgtail.cli import Commands

COMMANDS: Final = {
    "changes": "pgtail.cli.spark_changes",
    "tables": "pgtail.cli.spark_tables",
    "state": "pgtail.cli.spark_state",
    "history": "pgtail.cli.spark_history",
    "all": "pgtail.cli.spark_all",
}


@click.group("spark", cls=Commands, modules=COMMANDS)
def command() -> None:
    """Turn captures into tables, on Spark.

    Captures are what pgtail record keeps: directories of segments, on any file system that Spark reads. It needs the
    extra `spark` and Java 17 or later; their absence is told, with the cure.
    """
