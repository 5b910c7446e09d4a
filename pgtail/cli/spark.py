"""`pgtail spark`: its commands and their options."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from pgtail.cli import Commands
from pgtail.cli.options.shared import in_order, storage_option, verbose_option
from pgtail.cli.options.spark import (
    changes_options,
    compact_option,
    spark_options,
    state_options,
    watch_options,
)
from pgtail.cli.settings import refuse_masks
from pgtail.commands.stderr import exit_statuses

if TYPE_CHECKING:
    from pgtail.commands.spark import Dataset
    from pgtail.storage import StorageOptions

Options = Callable[[Callable[..., None]], Callable[..., None]]


@click.group("spark", cls=Commands)
def command() -> None:
    """Turn captures into tables, on Spark.

    Captures are what pgtail record writes: directories of segments. The tables are Delta Lake tables, which Spark,
    DuckDB, Polars, pandas and many others read. The extra `spark` and Java 17 or later are required; if they are
    missing, pgtail says how to install them.
    """


def _add(
    name: str, *options: Options, makes: tuple[Dataset, ...] = ()
) -> Callable[[Callable[[], None]], click.Command]:
    """Add a command that brings OUT/changes up to date, then the datasets `makes`; its help is the docstring."""

    def add(described: Callable[[], None]) -> click.Command:
        def run(places: tuple[str, ...], **values: Any) -> None:
            from pgtail.commands import spark

            with exit_statuses():
                refuse_masks("pgtail spark")
                spark.run(spark.SparkOptions(*spark.captures_and_out(places), **values), makes)

        argument = click.argument("places", nargs=-1, required=True, metavar="CAPTURE... OUT")
        decorate: Options = in_order(
            [argument, changes_options, *options, watch_options, storage_option, spark_options]
        )
        return command.command(name, help=described.__doc__)(decorate(run))

    return add


@_add("changes", compact_option)
def _changes() -> None:
    """Write every change in captures as rows: OUT/changes, OUT/transactions and OUT/relations.

    Each change is one row, however often it was recorded: in several segments, in captures of several slots. Run
    again, the command adds what is new. Damaged or incomplete segments are named, and nothing of them is written.

    \b
    pgtail spark changes captures/shop warehouse
    pgtail spark changes --watch --every 1m captures/shop warehouse
    """


@_add("tables", compact_option, makes=("tables",))
def _tables() -> None:
    """Write the changes of each table with its columns and their types: OUT/tables/SCHEMA.TABLE.

    numeric becomes decimal, timestamptz timestamp, bytea binary, and arrays are arrays. A value that its type cannot
    hold (NaN in a decimal, infinity in a date, years BC) is NULL, and is kept as text in the map _rescued. OUT/changes
    is brought up to date too.

    \b
    pgtail spark tables captures/shop warehouse
    pgtail spark tables -t 'sales.*' captures/shop warehouse
    """


@_add("state", state_options, compact_option, makes=("state",))
def _state() -> None:
    """Keep the rows of every table as they are after the last commit: OUT/state/SCHEMA.TABLE.

    Run again, or with --watch, the command applies what is new. Prepared transactions count once they are committed. A
    value that was never sent (from before the capture, or made by ALTER TABLE) is named in _unknown, and never
    guessed. OUT/changes and OUT/tables are brought up to date first.

    \b
    pgtail spark state captures/shop warehouse
    pgtail spark state --until 2026-11-20T22:05:00Z captures/shop as-of-then
    """


@_add("history", state_options, compact_option, makes=("history",))
def _history() -> None:
    """Keep every version of every row, with the commits that made and ended it (SCD 2): OUT/history/SCHEMA.TABLE.

    Versions that only their own transaction saw are left out. OUT/changes and OUT/tables are brought up to date first.

    \b
    pgtail spark history captures/shop warehouse
    """


@_add("all", state_options, compact_option, makes=("tables", "state", "history"))
def _all() -> None:
    """Make everything: OUT/changes, OUT/transactions, OUT/relations, OUT/tables, OUT/state and OUT/history.

    \b
    pgtail spark all --watch captures/shop warehouse
    """


@command.command("vacuum")
@click.argument("out", metavar="OUT")
@click.option("--delete", is_flag=True, help="Remove the files; without this they are only listed.")
@storage_option
@verbose_option
def _vacuum(out: str, *, delete: bool, storage: StorageOptions, verbose: int) -> None:
    """List the files of OUT that no reader needs any more; with --delete remove them.

    These are files that were replaced, and what a killed run left behind. Files that are younger than the --retain of
    their table (see pgtail spark state) are kept. Needs no Java.

    \b
    pgtail spark vacuum warehouse
    pgtail spark vacuum --delete warehouse
    """
    from pgtail.commands import spark

    with exit_statuses():
        spark.vacuum(spark.SparkOptions(captures=(), out=out, storage=storage, verbose=verbose), delete=delete)
